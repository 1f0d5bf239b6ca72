"""Reading inputs of every format, with invalid rows among them."""

import gzip
import json
import tracemalloc

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

from attnflow.corpus import delimited, example, formats
from attnflow.corpus.example import Example, Rejected
from attnflow.corpus.formats import split_lines
from attnflow.corpus.readers import open_source
from attnflow.errors import FileError, InputError, SelectionError
from tests.refusal import refusal


def read(path, **options):
    """Return the ID and text of each example, or why a row is rejected."""
    found = list(open_source(path, **options).rows())
    assert [row.index if isinstance(row, Example) else row.example.index for row in found] == list(
        range(len(found))
    )
    return [(row.id, row.text) if isinstance(row, Example) else row.why for row in found]


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_text_is_one_example_a_line(tmp_path):
    path = write(tmp_path / "a.txt", b"\xef\xbb\xbfthe key\r\n\n  \nto \xff it\ncaf\xc3\xa9 x")
    assert read(path) == [("0", "the key"), "empty", "empty", "encoding", ("4", "café x")]
    found = list(open_source(path).rows())
    assert isinstance(found[3], Rejected)
    assert found[3].example.line == 4
    assert found[3].reason.startswith("0xff at 3 ")


def test_lines_end_at_newlines_only(tmp_path):
    # Other characters that str.splitlines would take for the end of a line.
    path = write(tmp_path / "a.txt", "one\x0btwo\u2028three\x1efour\nlast\n")
    assert read(path) == [("0", "one\x0btwo\u2028three\x1efour"), ("1", "last")]


@pytest.mark.parametrize("name", ["a.txt.gz", "A.TXT.GZ"])
def test_gzip_gives_the_same_rows(tmp_path, name):
    path = tmp_path / name
    with gzip.open(path, "wb") as file:
        file.write(b"the key\n\nlast")
    assert read(path) == [("0", "the key"), "empty", ("2", "last")]
    assert open_source(path).count == 3


def test_a_truncated_gzip_file_is_an_error_at_once(tmp_path):
    with gzip.open(tmp_path / "a.txt.gz", "wb") as file:
        file.write(b"the key\n" * 5000)
    whole = (tmp_path / "a.txt.gz").read_bytes()
    path = write(tmp_path / "b.txt.gz", whole[:-20])
    with refusal(FileError, "b.txt.gz", "gzip"):
        open_source(path)


def test_a_line_of_any_length_takes_little_memory(tmp_path):
    path = tmp_path / "a.txt"
    with path.open("wb") as file:
        file.write(b"first\n")
        for _ in range(64):
            file.write(b"x" * 2**20)
        file.write(b"\nlast\n")
    tracemalloc.start()
    assert read(path) == [("0", "first"), "too_long", ("2", "last")]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * formats.MAX_BYTES  # of 64 MiB in one line


@given(st.binary())
def test_splitting_lines_loses_no_bytes(content):
    from io import BytesIO

    found = list(split_lines(BytesIO(b"x" + content)))
    assert b"".join(line for line, _ in found) == b"x" + content
    assert all(line.endswith(b"\n") for line, _ in found[:-1])
    assert sum(line.count(b"\n") for line, _ in found) == content.count(b"\n")


def test_csv_finds_the_column_and_keeps_quoted_newlines(tmp_path):
    path = write(tmp_path / "a.csv", 'id,text\na,"one, ""two""\nthree"\nb,four\n')
    assert read(path, id_column="id") == [("a", 'one, "two"\nthree'), ("b", "four")]
    assert [row.line for row in open_source(path).rows()] == [2, 4]  # type: ignore[union-attr]


def test_invalid_records_of_csv_are_rejected_one_by_one(tmp_path):
    content = b'id,text\na,good\nb\n\nc,one,too many\nd,"bad" quote\ne,\ng,\xff\xfe\nf,last\n'
    path = write(tmp_path / "a.csv", content)
    assert read(path, id_column="id") == [
        ("a", "good"),
        "missing",
        "empty",
        "malformed",
        "malformed",
        "empty",
        "encoding",
        ("f", "last"),
    ]
    reasons = [row.reason for row in open_source(path).rows() if isinstance(row, Rejected)]
    assert "3 cells; expected 2" in reasons[2]
    assert reasons[3].startswith("line 6: ',' expected after '\"'")


def test_an_open_quote_extends_a_record_by_at_most_the_maximal_length(tmp_path, monkeypatch):
    monkeypatch.setattr(delimited, "MAX_CHARACTERS", 100)
    path = write(tmp_path / "a.csv", 'text\ngood\n"open\n' + "swallowed\n" * 12 + "\nlast\n")
    found = read(path)
    assert found[:2] == [("0", "good"), "too_long"]
    assert found[-1][1] == "last"
    [long] = [row for row in open_source(path).rows() if getattr(row, "why", "") == "too_long"]
    assert isinstance(long, Rejected)
    assert "lines 3 to 13" in long.reason
    assert "100 characters" in long.reason


@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_a_first_line_that_is_too_long_is_one_rejected_row(tmp_path, monkeypatch, name, bom):
    monkeypatch.setattr(formats, "MAX_BYTES", 100)
    for length in range(95, 105):
        path = write(tmp_path / name, bom + b'"' + b"x" * (length - 2) + b'"' + b'\n"last"\n')
        rows = read(path)
        assert len(rows) == 2
        kept = length if name == "a.txt" else length - 2
        is_long = len(bom) + length + 1 > 101
        assert rows[0] == "too_long" if is_long else len(rows[0][1]) == kept


# A record of a table with the columns a, text, b: each cell is within the limit of 100 characters,
# and the lines have more than 300 bytes.
LONG_RECORDS = {
    "csv": [
        ",".join(["x" * 90] * 3 + ["y" * 90]),
        f'{"x" * 90},"{"y" * 80} ""a"", b",{"z" * 400}',
        f'"{"x" * 400}","two\nlines","three\nmore\nlines"',
        f'plain,"{"line, with a comma" * 30}\nanother ""line""",last',
        f'"{"short" * 10}\n{"x" * 400}\n"" , ","b\r\n",c',
        f'"{"x" * 101}\n{"y" * 20}",b,c',  # a cell that is too long, in short lines
        f'{"x" * 150},"b\nc",d',
    ],
    "tsv": ["\t".join(["x" * 99] * 4), "\t".join(['"' + "x" * 90, "y" * 90, "z" * 400])],
}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("format", "record"), [(f, record) for f, records in LONG_RECORDS.items() for record in records]
)
def test_a_long_record_is_rejected_as_a_whole(tmp_path, monkeypatch, format, record, end):
    monkeypatch.setattr(delimited, "MAX_CHARACTERS", 100)
    monkeypatch.setattr(delimited, "MAX_BYTES", 300)
    monkeypatch.setattr(delimited, "BLOCK", 7)
    tab = "," if format == "csv" else "\t"
    short = [tab.join([name, f"text {name}", "b"]) for name in ("first", "last")]
    header = tab.join(["a", "text", "b"])
    lines = [header, short[0], record, short[1], record]
    path = write(tmp_path / f"a.{format}", end.join(lines).encode())
    assert read(path) == [("0", "text first"), "too_long", ("2", "text last"), "too_long"]
    rows = open_source(path).rows()
    numbers = [(row.example if isinstance(row, Rejected) else row).line for row in rows]
    height = record.count("\n") + 1
    assert numbers == [2, 3, 3 + height, 4 + height]
    with gzip.open(tmp_path / f"b.{format}.gz", "wb") as file:
        file.write(path.read_bytes())
    assert read(tmp_path / f"b.{format}.gz") == read(path)


def test_a_table_of_wide_records_at_the_real_limits(tmp_path):
    cell = "x" * (formats.MAX_BYTES // 5)
    for name, tab in (("a.csv", ","), ("a.tsv", "\t")):
        lines = [tab.join("abcdef") + f"{tab}text", tab.join([cell] * 6 + ["cut"]), "1" + tab * 6]
        path = write(tmp_path / name, "\n".join([*lines, tab * 6 + "last\n"]))
        assert read(path) == ["too_long", "empty", ("2", "last")]


def test_columns_of_one_name_are_refused(tmp_path):
    path = write(tmp_path / "a.csv", "text,id,text,id,\na,b,c,d,\n")
    with refusal(InputError, "'text'", "2 columns"):
        open_source(path)
    path = write(tmp_path / "b.tsv", "text\tid\tid\na\tb\tc\n")
    assert read(path) == [("0", "a")]
    with refusal(InputError, "'id'", "2 columns"):
        open_source(path, id_column="id")
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    pq.write_table(table, tmp_path / "c.parquet")
    with refusal(InputError, "'text'", "2 columns"):
        open_source(tmp_path / "c.parquet")
    lines = '{"text": "a", "text": "b"}\n{"text": "c", "x": 1, "x": 2}\n'
    path = write(tmp_path / "d.jsonl", lines)
    assert read(path) == ["malformed", ("1", "c")]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("name", ["a.txt", "a.csv", "a.jsonl", "a.txt.gz"])
def test_utf16_without_a_mark_is_refused(tmp_path, encoding, name):
    content = "text\nthe key to the cabinets\n".encode(encoding)
    path = write(tmp_path / name, gzip.compress(content) if name.endswith("gz") else content)
    with refusal(FileError, name, "UTF-16", "UTF-8", "iconv"):
        open_source(path)


def test_rows_with_a_zero_byte_are_rejected(tmp_path):
    chinese = "中文文本" * 50 + "\n"
    path = write(tmp_path / "a.txt", b"plain\n" * 20 + b"a\0b\n" + chinese.encode())
    assert read(path)[20:] == ["encoding", ("21", chinese.strip())]


@pytest.mark.parametrize(
    ("data", "options", "values"),
    [
        ("a.txt", {"text_column": "text"}, ["'text'", "plain text", "--text-column"]),
        ("a.txt", {"id_column": "id"}, ["'id'", "plain text", "--id-column"]),
        (["a"], {"text_column": "text"}, ["'text'", "a list", "text_column="]),
        (["a"], {"format": "csv"}, ["'csv'", "a list", "format="]),
        ("hf:name", {"format": "csv"}, ["'csv'", "a data set", "--format"]),
        (["a"], {"input_id": ""}, ["''", "input_id="]),
        ("a.txt", {"input_id": " "}, ["' '", "--input-id"]),
    ],
)
def test_options_that_an_input_does_not_have(tmp_path, monkeypatch, data, options, values):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.txt", "the key\n")
    with refusal(InputError, *values):
        open_source(data, **options)


def test_an_input_that_is_rewritten_with_its_time_set_back(tmp_path):
    import os

    path = write(tmp_path / "a.txt", "one\ntwo\n")
    source = open_source(path)
    times = path.stat()
    path.chmod(0o600)
    assert source.unchanged()  # touched, with the same content
    write(path, "one\nTWO\n")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert not source.unchanged()


def test_a_file_that_cannot_be_opened(tmp_path):
    import os

    path = write(tmp_path / "a.txt", "the key\n")
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read every file")
    with refusal(FileError, "a.txt"):
        open_source(path, input_id="mine")


def test_tsv_has_no_quotes(tmp_path):
    path = write(tmp_path / "a.tsv", 'sentence\tlabel\n"to be\t1\nthe "key"\t0\n')
    assert read(path) == [("0", '"to be'), ("1", 'the "key"')]


def test_json_lines(tmp_path):
    records = [
        json.dumps({"id": 7, "text": "the key"}),
        "{not json",
        "",
        json.dumps({"id": "x", "other": "?"}),
        json.dumps({"text": None}),
        json.dumps({"text": 3.5}),
        json.dumps({"text": ["a"]}),
        json.dumps("a bare string"),
        '{"text": "half a pair \\ud800"}',
        '{"text": "nested", "x": ' + "[" * 100_000 + "}",
        '{"text": ' + "9" * 10_000 + "}",
        json.dumps({"id": None, "text": "last"}),
    ]
    path = write(tmp_path / "a.jsonl", "\n".join(records))
    assert read(path, id_column="id") == [
        ("7", "the key"),
        "malformed",
        "empty",
        "missing",
        "missing",
        "not_text",
        "not_text",
        ("7", "a bare string"),
        "encoding",
        "malformed",
        "malformed",
        ("11", "last"),
    ]


def test_columns_are_found_after_invalid_lines(tmp_path):
    path = write(tmp_path / "a.jsonl", "{\n" * 150 + '{"text": "the key"}\n{"sentence": "to"}\n')
    assert read(path) == ["malformed"] * 150 + [("150", "the key"), ("151", "to")]
    path = write(tmp_path / "b.jsonl", "{\n" * 150 + '{"body": "the key"}\n')
    assert read(path, text_column="body")[-1] == ("150", "the key")


def test_parquet_with_null_and_invalid_utf8(tmp_path):
    texts = pa.array([b"the key", None, b"\xff", b" ", b"last"], pa.binary())
    table = pa.table({"n": pa.array([5, 6, 7, 8, None]), "text": texts})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    expected = [("5", "the key"), "missing", "encoding", "empty", ("4", "last")]
    assert read(tmp_path / "a.parquet", id_column="n") == expected
    # The same bytes in a column that claims to be text.
    claimed = texts.view(pa.string())
    pq.write_table(table.set_column(1, "text", claimed), tmp_path / "b.parquet")
    assert read(tmp_path / "b.parquet", id_column="n") == expected
    assert open_source(tmp_path / "b.parquet").count == 5
    coded = pa.table({"text": pa.array(["a", "b", "a"]).dictionary_encode()})
    pq.write_table(coded, tmp_path / "c.parquet")
    assert read(tmp_path / "c.parquet") == [("0", "a"), ("1", "b"), ("2", "a")]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.timestamp("us"), [2**62, 5]),
        (pa.timestamp("s", "Nowhere/Zone"), [1, 2]),
        (pa.date64(), [-(2**62), 0]),
        (pa.duration("s"), [2**62, -5]),
    ],
)
def test_ids_that_are_dates_out_of_range(tmp_path, kind, values):
    ids = pa.array(values, pa.int64()).view(kind)
    pq.write_table(pa.table({"id": ids, "text": ["a", "b"]}), tmp_path / "a.parquet")
    rows = list(open_source(tmp_path / "a.parquet", id_column="id").rows())
    assert len({int(row.id) for row in rows if isinstance(row, Example)}) == 2


def test_hugging_face_data_sets():
    dataset = Dataset.from_dict({"sentence": ["the key", None, ""], "label": [1, 0, 1]})
    expected = [("0", "the key"), "missing", "empty"]
    assert read(dataset) == expected
    assert read(dataset.to_iterable_dataset()) == expected
    first, again = (open_source(dataset.to_iterable_dataset()).checksum for _ in range(2))
    assert first == again
    other = Dataset.from_dict({"sentence": ["the keys", None, ""]})
    assert open_source(other).checksum != open_source(dataset).checksum
    assert open_source(other.to_iterable_dataset()).checksum != first


def test_a_data_set_by_its_address_is_streamed(tmp_path):
    folder = tmp_path / "set"
    folder.mkdir()
    write(folder / "train.jsonl", '{"text": "the key"}\n{"text": "to"}\n')
    write(folder / "test.jsonl", '{"text": "cabinets"}\n')
    assert read(f"hf:{folder}:test") == [("0", "cabinets")]
    source = open_source(f"hf:{folder}:train")
    assert (source.name, source.count) == (f"hf:{folder}:train", 2)
    with refusal(InputError, "train", "test", f"hf:{folder}:"):
        open_source(f"hf:{folder}")
    with refusal(FileError, str(tmp_path / "nothing"), "hub"):
        open_source(f"hf:{tmp_path / 'nothing'}:train")
    with refusal(InputError, "hf:name:split", "hf:name:configuration:split"):
        open_source("hf:")


def test_a_data_set_that_cannot_be_read_to_the_end(tmp_path):
    (tmp_path / "data").mkdir()
    write(tmp_path / "data" / "a.jsonl", b'{"text": "the key"}\n{"text": "here"}\n')
    write(tmp_path / "data" / "b.jsonl", b'{"text": "third"}\n{broken\n')
    source = open_source(f"hf:{tmp_path / 'data'}", input_id="broken")
    with refusal(FileError, "2 records", "same command"):
        list(source.rows())
    with refusal(FileError, "2 records"):
        open_source(f"hf:{tmp_path / 'data'}")


def test_lists_of_texts():
    assert read(["the key", None, 3]) == [("0", "the key"), "missing", "not_text"]
    assert open_source(["a", "bc"]).checksum != open_source(["ab", "c"]).checksum
    assert open_source(["a"], input_id="mine").checksum == "mine"


def test_a_stream_that_can_be_read_only_once_is_an_error():
    with refusal(InputError, "generator", "list of texts"):
        open_source(text for text in ["a"])


def test_the_checksum_is_of_the_content(tmp_path):
    path = write(tmp_path / "a.txt", "one")
    before = open_source(path)
    times = path.stat()
    write(path, "two")
    import os

    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # same size, same time
    assert open_source(path).checksum != before.checksum
    write(path, "three")
    assert not before.unchanged()


@pytest.mark.parametrize(
    ("name", "content", "options", "kind", "parts"),
    [
        ("a.doc", "x", {}, FileError, ["'.doc'", ".jsonl", "--format"]),
        ("a.txt", b"\xff\xfeh\x00i\x00", {}, FileError, ["UTF-16", "UTF-8", "iconv"]),
        ("a.csv", "", {}, FileError, ["a.csv", "header"]),
        ("a.csv", "one,two\n1,2\n", {}, InputError, ["'one', 'two'", "--text-column"]),
        (
            "a.csv",
            "one,two\n1,2\n",
            {"text_column": "twe"},
            SelectionError,
            ["'twe'", "'one', 'two'", "Did you mean 'two'?"],
        ),
        (
            "a.jsonl",
            '{"body": "x", "n": 1}',
            {"text_column": "text"},
            SelectionError,
            ["'text'", "'body'"],
        ),
        ("a.parquet", "no parquet at all", {}, FileError, ["a.parquet", "Parquet", "--format"]),
        ("a.txt", "x", {"format": "excel"}, InputError, ["'excel'", "'text', 'csv', 'tsv'"]),
    ],
)
def test_inputs_that_cannot_be_read(tmp_path, name, content, options, kind, parts):
    path = write(tmp_path / name, content)
    with refusal(kind, *parts):
        open_source(path, **options)


def test_a_column_of_numbers_is_an_error_at_once(tmp_path):
    pq.write_table(pa.table({"text": [1, 2]}), tmp_path / "a.parquet")
    with refusal(InputError, "'text'", "int64", "--text-column"):
        open_source(tmp_path / "a.parquet")


def test_missing_files_and_folders(tmp_path):
    with refusal(FileError, "nothing.txt"):
        open_source(tmp_path / "nothing.txt")
    with refusal(FileError, "the key the key", "file"):
        open_source("the key " * 1000)  # a text in the place of a file
    with refusal(FileError, str(tmp_path), "folder"):
        open_source(tmp_path)


def test_the_start_of_rejected_rows_is_stored(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "MAX_BYTES", 300)
    text = write(tmp_path / "a.txt", b"caf\xe9 here\n" + b"x" * 400 + b"\nfine")
    kept = [row.example.text for row in open_source(text).rows() if isinstance(row, Rejected)]
    assert kept == [r"caf\xe9 here", "x" * 200]
    json_lines = write(tmp_path / "a.jsonl", b'{"text": "a"}\n{"text": broken}\n"\\ud800 half"\n')
    kept = [row.example.text for row in open_source(json_lines).rows() if isinstance(row, Rejected)]
    assert kept == ['{"text": broken}', r"\ud800 half"]
    table = write(tmp_path / "a.csv", "id,text\n1,too,many\n")
    [row] = open_source(table).rows()
    assert isinstance(row, Rejected)
    assert row.example.text == "too"


def test_long_texts_are_rejected(monkeypatch):
    monkeypatch.setattr(example, "MAX_CHARACTERS", 10)
    assert read(["x" * 10, "x" * 11]) == [("0", "x" * 10), "too_long"]


def with_fields(data, *fields, **options):
    """The text and the further columns of each example, or why a row is rejected."""
    rows = open_source(data, fields=fields, **options).rows()
    return [(r.text, r.fields) if isinstance(r, Example) else r.why for r in rows]


RECORDS = [
    {"text": "the key", "label": "one", "part": "key"},
    {"text": "to it", "label": "two", "part": "it"},
]
EXPECTED = [(row["text"], {"label": row["label"], "part": row["part"]}) for row in RECORDS]


def write_records(path):
    """Write the records in the format that the name of the file tells."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(RECORDS), path)
    elif path.suffix == ".jsonl":
        write(path, "\n".join(map(json.dumps, RECORDS)))
    else:
        mark = "," if path.suffix == ".csv" else "\t"
        write(
            path, "\n".join(mark.join(row) for row in [RECORDS[0], *(r.values() for r in RECORDS)])
        )
    return path


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.parquet"])
def test_further_columns_of_files(tmp_path, name):
    path = write_records(tmp_path / name)
    assert with_fields(path, "label", "part") == EXPECTED
    assert with_fields(path) == [(text, {}) for text, _ in EXPECTED]
    with refusal(SelectionError, name, "'parts'", "'part'"):
        open_source(path, fields=("label", "parts"))


def test_further_columns_of_data_sets_and_lists():
    dataset = Dataset.from_list(RECORDS)
    assert with_fields(dataset, "label", "part") == EXPECTED
    with refusal(SelectionError, "'parts'", "'part'"):
        open_source(dataset, fields=("parts",))
    assert with_fields(RECORDS, "label", "part") == EXPECTED
    assert with_fields([{"text": "the key"}, {"label": "one"}, "to it"], "label") == [
        ("the key", {"label": None}),
        "missing",
        ("to it", {}),
    ]
    [named] = open_source([{"text": "the key", "id": 7}], fields=("label",)).rows()
    assert isinstance(named, Example)
    assert named.id == "7"


def test_further_columns_keep_the_values_of_their_format(tmp_path):
    spans = [{"text": "the key", "spans": [[4, 7]], "n": 1}, {"text": "to it"}]
    path = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, spans)))
    found = [("the key", {"spans": [[4, 7]], "n": 1}), ("to it", {"spans": None, "n": None})]
    assert with_fields(path, "spans", "n") == found
    pq.write_table(pa.Table.from_pylist(spans), tmp_path / "a.parquet")
    assert with_fields(tmp_path / "a.parquet", "spans", "n") == found


def test_plain_text_has_no_further_columns(tmp_path):
    path = write(tmp_path / "a.txt", "the key\n")
    with refusal(InputError, "'label'"):
        open_source(path, fields=("label",))


def test_a_further_column_twice_in_a_record_is_malformed(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"text": "a b", "label": 1, "label": 2}\n')
    assert with_fields(path, "label") == ["malformed"]
    assert with_fields(path) == [("a b", {})]


def test_the_checksum_of_a_list_depends_on_further_columns():
    def checksum(label, *fields):
        return open_source([{"text": "the key", "label": label}], fields=fields).checksum

    assert checksum("one", "label") == checksum("one", "label")
    assert checksum("one", "label") != checksum("two", "label")
    assert checksum(1, "label") != checksum("1", "label")
    assert checksum("one", "other") == checksum("two", "other")


def test_the_first_rows_of_an_input(tmp_path):
    source = open_source(write(tmp_path / "a.txt", "one\n\nthree\n"))
    first = source.first(2)
    for _ in range(2):  # it can be read several times
        rows = list(first.rows())
        assert [getattr(row, "text", "rejected") for row in rows] == ["one", "rejected"]
    assert first.count == 2
    assert first.checksum == source.checksum
    assert first.first(1).count == 1
    more = source.first(9)
    assert more.count == len(list(more.rows())) == 3
    assert open_source(tmp_path / "a.txt", input_id="a").first(2).count is None
