"""Tables as LaTeX and CSV."""

import csv
import io
from dataclasses import replace

import pytest

from attnflow.study.export import escape_latex, to_csv, to_latex
from attnflow.study.findings import Choice, gather_results
from attnflow.study.table import MetricTable, Row
from tests.study.toy_study import make_study

NAN = float("nan")


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return make_study(tmp_path_factory.mktemp("study") / "out")


def make_row(name, mean, *, p=NAN, gain=0.0):
    return Row(name, 30, mean, mean - 0.1, mean + 0.1, gain, gain - 0.1, gain + 0.1, p, 20, 4, 6,
               0.5, NAN, 0)  # fmt: skip


def make_table(**options):
    rows = (
        make_row("rollout/alti", 0.4567, p=0.001, gain=0.3),
        make_row("flow/attention", 0.2, p=0.3, gain=0.1),
        make_row("random", -0.05),
        make_row("my_scores", NAN),
    )
    table = MetricTable("comprehensiveness", "Compr. 50 %", "high", "unknown", "signed", "random",
                        rows)  # fmt: skip
    return replace(table, **options)


def lines_with(text, part):
    return [line for line in text.splitlines() if part in line]


def test_latex_marks_the_best_and_the_significant():
    text = to_latex(make_table(), caption="SST-2 & more.", label="tab:trust")
    assert lines_with(text, "rollout") == [r"rollout, ALTI & \textbf{0.457}$^{*}$ \\"]
    assert lines_with(text, "flow,") == [r"flow, attention & 0.200 \\"]
    assert lines_with(text, "random &") == [r"random & $-$0.050 \\"]
    assert lines_with(text, "my scores") == [r"my scores & -- \\"]
    assert lines_with(text, "Explainer") == [r"Explainer & Compr. 50 \% $\uparrow$ \\"]
    [caption] = lines_with(text, r"\caption")
    for part in (r"SST-2 \& more.", "replacement: unknown", "sign: signed", "30 texts", "random"):
        assert part in caption
    assert r"\label{tab:trust}" in text
    rules = (r"\toprule", r"\midrule", r"\bottomrule", r"\end{tabular}", r"\end{table}")
    places = [text.index(rule) for rule in rules]
    assert places == sorted(places)


def test_low_values_are_best_where_they_are_better():
    text = to_latex(make_table(better="low", metric="sufficiency"))
    assert r"\textbf{$-$0.050}" in text
    assert r"$\downarrow$" in text
    assert r"\textbf{0.457}" not in text


def test_each_replacement_and_sign_is_a_table_of_its_own():
    tables = [
        make_table(),
        make_table(title="Other"),
        make_table(replacement="remove"),
    ]
    text = to_latex(tables, label="tab:x")
    assert text.count(r"\begin{table}") == 2
    assert text.count(r"\begin{tabular}{lrr}") == 1
    assert text.count(r"\begin{tabular}{lr}") == 1
    assert r"\label{tab:x-2}" in text
    assert "replacement: remove" in lines_with(text, r"\caption")[1]


@pytest.mark.parametrize("character", list(r"\&%$#_{}~^<>|"))
def test_special_characters_are_escaped(character):
    escaped = escape_latex(f"a{character}b")
    assert escaped.startswith("a\\")
    assert f"a{character}b" != escaped
    assert f"\\{character}" in escaped or "\\text" in escaped
    assert escaped in to_latex(make_table(title=f"a{character}b"))


def test_csv_has_every_number_of_every_table(study):
    rows = list(csv.DictReader(io.StringIO(to_csv(study))))
    results = gather_results(study)
    assert len(rows) == len(study.metrics) * 2 * 2 * len(study.explainers)
    for row in rows:
        table = results.table(row["metric"], Choice(row["replacement"], row["sign"]))
        expected = table.row(row["explainer"])
        assert row["against"] == "random"
        assert row["better"] == table.better
        for name in ("mean", "low", "high", "gain", "p"):
            value = float(row[name]) if row[name] else NAN
            assert value == pytest.approx(getattr(expected, name), nan_ok=True, abs=0)
        for name in ("n", "wins", "ties", "losses", "failed"):
            assert int(row[name]) == getattr(expected, name)


def test_csv_has_no_formulas(study, monkeypatch):
    monkeypatch.setattr(Row, "title", property(lambda row: f"=HYPERLINK({row.explainer!r})"))
    titles = {row["title"][:2] for row in csv.DictReader(io.StringIO(to_csv(study)))}
    assert titles == {"'="}
