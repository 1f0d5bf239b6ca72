"""Corpus runs over prompts with images: scores are those of `explain`."""

import json
import logging
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pyarrow import parquet

import attnflow
from attnflow.corpus import open_corpus, run
from attnflow.errors import InputError
from tests.models.vlm import make_image, make_vlm
from tests.refusal import refusal

explain: Any = attnflow.explain
TEXT = "what is this"
ROWS: list[dict[str, Any]] = [
    {"text": TEXT, "image": "pictures/wide.png", "answer": " cat"},
    {"text": TEXT, "image": ["pictures/wide.png", "pictures/high.png"], "answer": " dog"},
    {"text": TEXT, "image": "pictures/none.png", "answer": " dog"},
    {"text": TEXT, "answer": " dog"},
    {"text": TEXT, "image": 7, "answer": " dog"},
]


@pytest.fixture(autouse=True)
def quiet():
    """Transformers logs that torchvision is missing."""
    logging.getLogger("transformers").setLevel(logging.ERROR)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model, two images, and an input that names them by their paths beside it."""
    path = tmp_path_factory.mktemp("vlm")
    model, processor = make_vlm("llava")
    model.save_pretrained(path / "model")
    processor.save_pretrained(path / "model")
    (path / "pictures").mkdir()
    for name, size in (("wide", (20, 30)), ("high", (30, 20))):
        Image.fromarray(make_image(*size)).save(path / "pictures" / f"{name}.png")
    (path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def images_of(folder, row):
    names = row.get("image") or []
    return [str(folder / name) for name in ([names] if isinstance(names, str) else names)] or None


@pytest.mark.parametrize("edges", ["attention", "alti"])
def test_scores_are_those_of_explain(folder, tmp_path, edges):
    model = str(folder / "model")
    options: Any = {"methods": "rollout,raw", "edges": edges, "image_column": "image"}
    summary = run(folder / "rows.jsonl", tmp_path / "out", model=model, **options)
    assert (summary.rows, summary.rejected) == (5, 2)
    rejected = {row["index"]: row["reason"] for row in open_corpus(tmp_path / "out").rejected()}
    assert "none.png" in rejected[2]
    assert "7" in rejected[4]
    examples = {one.index: one for one in open_corpus(tmp_path / "out").examples()}
    for i in (0, 1, 3):
        explanation = explain(TEXT, model, images=images_of(folder, ROWS[i]), edges=edges)
        assert examples[i].tokens == explanation.tokens
        for method in ("rollout", "raw"):
            expected = explanation.attribute(method).to_numpy()[:, 0]
            np.testing.assert_allclose(examples[i].scores[method][:, 0], expected, atol=1e-5)
    assert examples[1].tokens.count("image 2 patch 0,0") == 1


@pytest.mark.parametrize("asked", [{"generate": 2}, {"answer_column": "answer"}])
def test_answers_to_prompts_with_images(folder, tmp_path, asked):
    model = str(folder / "model")
    data, out = folder / "rows.jsonl", tmp_path / "out"
    run(data, out, model=model, image_column="image", layers=(-1,), **asked)
    rows = parquet.read_table(next(out.glob("**/*.parquet"))).to_pylist()
    continuation = ROWS[0]["answer"] if "answer_column" in asked else None
    explanation = explain(
        TEXT, model, images=images_of(folder, ROWS[0]), generate=asked.get("generate"),
        continuation=continuation,
    )  # fmt: skip
    expected = explanation.rollout(layers=-1, answer="tokens").to_numpy()[0]
    found = [row["rollout"] for row in rows if row["id"] == "0"]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_importance_scores_are_for_texts_alone():
    with refusal(InputError, "importance", "blank_out"):
        run([TEXT], "out", image_column="image", importance="blank_out")
