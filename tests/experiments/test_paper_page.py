"""The page on the paper: it is what the saved results make it."""

from dataclasses import replace

import pytest

from attnflow.paper.experiments import EXPERIMENTS, table1, table2
from attnflow.paper.experiments.result import Result
from tools.paper_beyond import comment_trainings, point_to_trainings
from tools.paper_claims import StaleCommentError
from tools.write_paper import PAGE, RESULTS, anchor, read_results, write_page


@pytest.fixture(scope="module")
def results():
    return read_results(RESULTS)


def test_the_page_is_up_to_date(results):
    """If not: python -m tools.write_paper."""
    assert PAGE.read_text(encoding="utf-8") == write_page(results)


def test_all_experiments_have_been_run(results):
    assert list(results) == list(EXPERIMENTS)


def test_tables_1_and_2_are_of_two_thousand_sentences(results):
    for name in ("table1", "table2"):
        assert results[name].settings["examples"] == 2000


def test_it_is_said_where_sentences_with_attractors_come_from(results):
    page = write_page(results)
    assert page.count("are of the treebanks EWT and PUD, held out by whole documents") == 3


def test_table_3_is_not_said_to_be_of_the_paper_s_model(results):
    result = results["table3"]
    assert "minilm" in result.settings["model"]
    assert (result.numbers["all"]["examples"], result.numbers["sample"]["examples"]) == (872, 100)


def test_what_is_written_names_date_and_command(results):
    page = write_page(results)
    for name, result in results.items():
        assert result.date
        assert f"| `{result.command}` | {result.date} |" in page
        assert result.command.startswith(f"attnflow reproduce {name}")


def test_a_comment_that_numbers_no_longer_bear_out_is_not_written(results):
    flat = dict(results["table1"].numbers)
    flat["methods"] = {**flat["methods"], "rollout": flat["methods"]["raw"]}
    changed = {**results, "table1": replace(results["table1"], numbers=flat)}
    with pytest.raises(StaleCommentError, match="rollout climbs: revise"):
        write_page(changed)


def test_links_go_to_headings():
    assert anchor("Table 1: correlation with blank-out") == "table-1-correlation-with-blank-out"


def test_trainings_are_counted_by_how_they_were_trained(results):
    """One model with the paper's own numbers, and the bundled one, which is not like it."""
    theirs = {
        kind: {m: {"mean": [float(c.split("±")[0]) for c in cells]} for m, cells in paper.items()}
        for kind, paper in {"blank_out": table1.PAPER, "l2": table2.PAPER}.items()
    }
    ours = {
        "blank_out": results["table1"].numbers["methods"],
        "l2": results["table2"].numbers["methods"],
    }
    models = {"plain-0": {"accuracy": 0.96, **theirs}, "verb-number": {"accuracy": 0.98, **ours}}
    made = {**results, "trainings": Result("trainings", {"models": models})}
    text = comment_trainings(made)
    claim = "| Raw attention is highest at layer 1 | 1 of 1 | 0 of 1 | 1 of 1 | 0 of 1 |"
    assert claim in text.splitlines()
    assert "raw 0.53 at layer 1" in text
    assert "raw attention is highest at layer 1 in 1 of 1" in point_to_trainings(made, "l2")
    assert point_to_trainings({"table1": results["table1"]}, "l2") == ""
