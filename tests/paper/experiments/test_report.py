"""Reports: output formats, cells and shared tables."""

from attnflow.paper.experiments.report import (
    Picture,
    Report,
    Table,
    comparison_table,
    format_mean,
    format_number,
    format_p,
    to_csv,
    to_markdown,
    to_text,
)

REPORT = Report(
    "A title",
    (
        "Some words.",
        Table("A caption", ("", "L1", "L2"), (("Raw", "0.10", "-0.25"), ("Flow|x", "1", "a,b"))),
        Picture("one.svg", "A picture of it."),
    ),
)


def test_columns_of_text_tables_are_aligned():
    assert to_text(REPORT).splitlines() == [
        "A title",
        "",
        "Some words.",
        "",
        "A caption",
        "            L1     L2",
        "  Raw     0.10  -0.25",
        "  Flow|x     1    a,b",
        "",
        "[one.svg] A picture of it.",
    ]


def test_long_paragraphs_are_wrapped_and_stay_separate():
    lines = to_text(Report("T", ("word " * 30 + "\n\nanother",))).splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[-2:] == ["", "another"]


def test_markdown_has_tables_and_pictures():
    lines = to_markdown(REPORT, level=3, pictures="images").splitlines()
    assert lines[0] == "### A title"
    assert "| Raw | 0.10 | -0.25 |" in lines
    assert "| --- | ---: | ---: |" in lines
    assert "| Flow\\|x | 1 | a,b |" in lines
    assert "![A picture of it.](images/one.svg)" in lines


def test_csv_names_the_table_in_every_row():
    assert to_csv(REPORT).splitlines() == [
        "A caption,,L1,L2",
        "A caption,Raw,0.10,-0.25",
        'A caption,Flow|x,1,"a,b"',
    ]


def test_cell_formats():
    assert format_number(-0.001) == "0.00"
    assert format_number(None) == "-"
    assert format_number(-0.126) == "-0.13"
    assert format_mean({"mean": [0.126, None], "sd": [0.5, None]}, 0) == "0.13±0.50"
    assert format_mean({"mean": [0.126, None], "sd": [0.5, None]}, 1) == "-"
    assert [format_p(p) for p in (None, 0.0002, 0.04)] == ["same", "p<0.001", "p=0.040"]


def test_comparisons_have_a_sign():
    comparison = {"first": "flow", "second": "raw", "difference": [0.1, 0.0], "p": [0.01, None]}
    [row] = comparison_table("c", [comparison]).rows
    assert row == ("flow \N{MINUS SIGN} raw", "+0.100 p=0.010", "same")
