"""Corpus runs over answers, generated or given: each token has the row of `explain`."""

from typing import Any

import numpy as np
import pytest
from pyarrow import parquet

import attnflow
from attnflow.corpus import open_corpus, run
from attnflow.errors import InputError
from tests.refusal import refusal
from tests.study.small_models import make_llama

explain: Any = attnflow.explain
ROWS = [
    {"text": "the key to the", "answer": "is here"},
    {"text": "here", "answer": "are the key"},
    {"text": "to", "answer": ""},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("llama")
    loaded = make_llama(start=True)
    loaded.model.save_pretrained(path)
    loaded.tokenizer.save_pretrained(path)
    return str(path)


def table_of(out):
    return parquet.read_table(next(out.glob("**/*.parquet"))).to_pylist()


@pytest.mark.parametrize("words", [False, True])
def test_given_answers_have_the_rows_of_explain(folder, tmp_path, words):
    options: Any = {"methods": "rollout,flow", "words": words, "layers": (-1,)}
    summary = run(ROWS, tmp_path / "out", model=folder, answer_column="answer", **options)
    assert (summary.rows, summary.rejected) == (3, 1)  # one answer is empty
    rows = table_of(tmp_path / "out")
    assert [(row["id"], row["answer_token"]) for row in rows] == [
        ("0", 0), ("0", 1), ("1", 0), ("1", 1), ("1", 2),
    ]  # fmt: skip
    for i, row in enumerate(ROWS[:2]):
        explanation = explain(row["text"], folder, continuation=row["answer"])
        mine = [stored for stored in rows if stored["id"] == str(i)]
        for method in ("rollout", "flow"):
            units = "words" if words else None
            expected = explanation.attribute(method, layers=-1, answer="tokens", units=units)
            found = np.asarray([stored[method] for stored in mine])
            np.testing.assert_allclose(found, expected.to_numpy()[0], atol=1e-5)
        chances = [step.target.probability for step in explanation.answer.steps]
        found = np.asarray([stored["answer_probability"] for stored in mine])
        np.testing.assert_allclose(found, chances, rtol=1e-5)
        assert {stored["answer"].strip() for stored in mine} == {row["answer"]}
        first = explanation.words.word_of(explanation.answer.first)
        assert mine[0]["answer_start"] == (first if words else explanation.answer.first)


def test_generated_answers_are_those_of_generate(folder, tmp_path):
    texts = ["the key to the", "here", "the cabinets"]
    run(texts, tmp_path / "out", model=folder, generate=3, layers=(-1,), threads=2)
    rows = table_of(tmp_path / "out")
    for i, text in enumerate(texts):
        explanation = explain(text, folder, generate=3)
        mine = [row for row in rows if row["id"] == str(i)]
        assert mine[0]["tokens"] == list(explanation.tokens)
        expected = explanation.rollout(layers=-1, answer="tokens").to_numpy()[0]
        np.testing.assert_allclose([row["rollout"] for row in mine], expected, atol=1e-5)
    example = next(iter(open_corpus(tmp_path / "out").examples()))
    assert example.scores["rollout"].shape[1] == 3


@pytest.mark.parametrize(
    ("options", "mentioned"),
    [
        ({"generate": 2, "answer_column": "answer"}, "answer_column"),
        ({"generate": 2, "target": "is"}, "target"),
        ({"generate": 2, "positions": "all"}, "positions"),
        ({"generate": -1}, "-1"),
        ({"generate": 2, "importance": "input_gradients"}, "importance"),
    ],
)
def test_settings_that_do_not_fit(folder, tmp_path, options, mentioned):
    with refusal(InputError, mentioned):
        run(ROWS, tmp_path / "out", model=folder, **options)


def test_a_classifier_has_no_answers(tmp_path):
    with refusal(InputError, "verb-number", "generate"):
        run(["the key"], tmp_path / "out", generate=2)
