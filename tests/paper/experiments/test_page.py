"""docs/paper.md: up to date with the saved results, and with checked statements."""

import re
from dataclasses import replace

import pytest

from attnflow.paper.experiments.agreement_tables import (
    PAPER_TABLE1,
    PAPER_TABLE2,
    RAW_HIGHEST_FIRST,
    printed_means,
)
from attnflow.paper.experiments.experiment import EXPERIMENTS, Result
from tools.paper_claims import StaleCommentError
from tools.paper_variants import comment_trainings, refer_to_trainings
from tools.write_paper import PAGE, RESULTS, anchor, read_results, write_page


@pytest.fixture(scope="module")
def results():
    return read_results(RESULTS)


def test_the_page_is_up_to_date(results):
    """If not: python -m tools.write_paper."""
    assert PAGE.read_text(encoding="utf-8") == write_page(results)


def test_all_experiments_have_been_run(results):
    assert list(results) == list(EXPERIMENTS)


def test_tables_1_and_2_have_2000_sentences(results):
    for name in ("table1", "table2"):
        assert results[name].settings["examples"] == 2000


def test_the_source_of_sentences_with_attractors_is_given(results):
    page = write_page(results)
    assert page.count("come from the treebanks EWT and PUD, held out by whole documents") == 3


def test_table_3_names_its_model(results):
    result = results["table3"]
    assert "minilm" in result.settings["model"]
    assert "only the pattern can be compared" in write_page(results)
    assert (result.numbers["all"]["examples"], result.numbers["sample"]["examples"]) == (872, 100)


def test_the_page_lists_commands_and_dates(results):
    page = write_page(results)
    for name, result in results.items():
        assert result.date
        assert f"| `{result.command}` | {result.date} |" in page
        assert result.command.startswith(f"attnflow reproduce {name}")


def test_a_statement_that_the_numbers_contradict_is_an_error(results):
    flat = dict(results["table1"].numbers)
    flat["methods"] = {**flat["methods"], "rollout": flat["methods"]["raw"]}
    changed = {**results, "table1": replace(results["table1"], numbers=flat)}
    with pytest.raises(StaleCommentError, match="rollout increases with depth"):
        write_page(changed)


def test_anchors_of_headings():
    assert anchor("Table 1: correlation with blank-out") == "table-1-correlation-with-blank-out"


def test_every_link_to_a_section_has_a_heading(results):
    page = write_page(results)
    anchors = {anchor(line.lstrip("# ")) for line in page.splitlines() if line.startswith("#")}
    links = re.findall(r"\]\(#([^)]+)\)", page)
    assert len(links) > len(results)
    assert set(links) <= anchors


def test_tables_and_figures_of_the_paper_come_first(results):
    headings = [line for line in write_page(results).splitlines() if line.startswith("## ")]
    kinds = [heading.split()[1] for heading in headings]
    assert kinds[:8] == ["Summary", *["Table"] * 3, *["Figure"] * 4]


def test_trainings_are_counted_by_kind(results):
    """One model with the numbers of the paper, and the bundled one, which differs."""
    paper = {
        kind: {method: {"mean": means} for method, means in printed_means(table).items()}
        for kind, table in {"blank_out": PAPER_TABLE1, "l2": PAPER_TABLE2}.items()
    }
    ours = {
        "blank_out": results["table1"].numbers["methods"],
        "l2": results["table2"].numbers["methods"],
    }
    models = {"plain-0": {"accuracy": 0.96, **paper}, "verb-number": {"accuracy": 0.98, **ours}}
    changed = {**results, "trainings": Result("trainings", {"models": models})}
    text = comment_trainings(changed)
    row = f"| {RAW_HIGHEST_FIRST} | 1 of 1 | 0 of 1 | 1 of 1 | 0 of 1 |"
    assert row in text.splitlines()
    assert "raw 0.53 at layer 1" in text
    assert "raw attention is highest at layer 1 in 1 of 1" in refer_to_trainings(changed, "l2")
    assert refer_to_trainings({"table1": results["table1"]}, "l2") == ""
