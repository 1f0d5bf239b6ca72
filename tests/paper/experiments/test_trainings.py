"""Tables 1 and 2 for several models."""

from dataclasses import replace

import pytest

from attnflow import InputError
from attnflow.paper.experiments.agreement_tables import (
    render_trainings,
    run_table1,
    run_trainings,
)
from attnflow.paper.experiments.report import to_text
from tests.refusal import refusal


@pytest.fixture(scope="module")
def result(options):
    return run_trainings(replace(options, model="verb-number, verb-number-causal"), None)


def test_the_numbers_of_a_model_are_those_of_table_1(result, options):
    expected = run_table1(options, None).numbers
    found = result.numbers["models"]["verb-number"]
    assert found["accuracy"] == expected["accuracy"]
    for method in ("raw", "rollout", "flow"):
        assert found["blank_out"][method]["mean"] == expected["methods"][method]["mean"]


def test_the_report_compares_every_model_with_the_paper(result):
    text = to_text(render_trainings(result))
    assert "flow: median of 2" in text
    claims = [part for part in render_trainings(result).tables if "observations" in part.caption]
    assert [table.header for table in claims] == [
        ("", "paper", "median", "verb-number", "verb-number-causal")
    ] * 2


@pytest.mark.parametrize("models", ["one/model,other/model", " , "])
def test_models_need_different_names(options, models):
    with refusal(InputError, repr(models), "--model"):
        run_trainings(replace(options, model=models), None)
