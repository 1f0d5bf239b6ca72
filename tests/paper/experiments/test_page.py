"""docs/paper.md: up to date with the saved results, and with checked statements."""

from dataclasses import replace

import pytest

from attnflow.paper.experiments.experiment import EXPERIMENTS
from tools.paper_claims import StaleCommentError
from tools.paper_tables import claims_table, write_summary
from tools.write_paper import (
    APPENDIX,
    PAGE,
    RESULTS,
    read_results,
    write_appendix,
    write_page,
)


@pytest.fixture(scope="module")
def results():
    return read_results(RESULTS)


def test_the_page_is_up_to_date(results):
    """If not: python -m tools.write_paper."""
    assert PAGE.read_text(encoding="utf-8") == write_page(results)
    assert APPENDIX.read_text(encoding="utf-8") == write_appendix(results)


def test_the_page_is_short(results):
    assert len(write_page(results).encode()) <= 15_000


def test_all_experiments_have_been_run(results):
    assert list(results) == list(EXPERIMENTS)


def test_tables_1_and_2_have_2000_sentences(results):
    for name in ("table1", "table2"):
        assert results[name].settings["examples"] == 2000


def test_the_source_of_sentences_with_attractors_is_given(results):
    page = write_appendix(results)
    assert page.count("come from the treebanks EWT and PUD, held out by whole documents") == 3


def test_table_3_names_its_model(results):
    models = results["table3"].numbers["models"]
    assert list(models) == ["distilbert-sst2", "minilm-sst2"]
    assert "only the pattern can be compared" in write_page(results)
    for numbers in models.values():
        assert (numbers["all"]["examples"], numbers["sample"]["examples"]) == (300, 100)


def test_the_page_lists_commands_and_dates(results):
    page = write_appendix(results)
    for name, result in results.items():
        assert result.date
        assert f"| `{result.command}` | {result.date} |" in page
        assert result.command.startswith(f"attnflow reproduce {name}")


def test_a_statement_that_the_numbers_contradict_is_an_error(results):
    flat = dict(results["table1"].numbers)
    flat["methods"] = {**flat["methods"], "flow": flat["methods"]["raw"]}
    changed = {**results, "table1": replace(results["table1"], numbers=flat)}
    with pytest.raises(StaleCommentError, match="flow is near its maximum at layer 3"):
        write_page(changed)


def test_tables_and_figures_of_the_paper_come_first(results):
    headings = [line for line in write_page(results).splitlines() if line.startswith("## ")]
    kinds = [heading.split()[1] for heading in headings]
    assert kinds[:8] == ["Summary", *["Table"] * 3, *["Figure"] * 4]


def test_observations_are_counted_over_seeds(results):
    models = dict(results["trainings"].numbers["models"])
    n = len(models)
    assert n >= 5
    for name, numbers in models.items():  # rollout no longer increases
        changed = {**numbers["l2"], "rollout": {"mean": [0.9, *[0.5] * 5]}}
        models[name] = {**numbers, "l2": changed}
    numbers = {"models": models}
    changed_results = {**results, "trainings": replace(results["trainings"], numbers=numbers)}
    text = claims_table(changed_results)
    row = f"| Rollout increases from layer to layer | yes, yes, {n} | yes, no, 0 |"
    assert row in text
    assert f"median of {n} seeds" in text
    with pytest.raises(StaleCommentError, match="all observations hold"):
        write_summary(changed_results)
