"""Tables for pandas and polars, and arrays for xarray."""

import json

import numpy as np
import pytest

from attnflow import Attribution
from attnflow.convert import to_pandas, to_polars, to_xarray
from tests.convert.models import PROMPT, explain, make_speaker


@pytest.fixture(scope="module")
def explanation():
    return explain(PROMPT, make_speaker(), continuation=" is here are")


@pytest.fixture
def batch():
    scores = np.arange(16.0).reshape(2, 2, 2, 2)
    offsets = (None, (0, 3))
    return Attribution(scores, ("[CLS]", "key"), "raw", (1, 2), (0, 1), offsets=offsets)


def test_pandas_has_the_table_of_the_attribution(explanation):
    pytest.importorskip("pandas")
    frame = to_pandas(explanation, method="flow", layers=[1, 2])
    expected = explanation.flow(layers=[1, 2]).to_pandas()
    assert frame.equals(expected)
    assert frame.attrs["model"] == explanation.model
    assert frame.attrs["method"] == "flow"
    assert json.loads(frame.attrs["settings"])["edges"] == "alti"


@pytest.mark.parametrize("source", ["explanation", "batch"])
def test_polars_has_the_same_table(source, request):
    polars = pytest.importorskip("polars")
    pytest.importorskip("pandas")
    source = request.getfixturevalue(source)
    frame, expected = to_polars(source), to_pandas(source)
    assert frame.columns == list(expected.columns)
    for name in frame.columns:
        values = expected[name]
        if name in ("start", "end"):
            values = values.astype(object).where(values.notna(), None)
        assert frame[name].to_list() == values.tolist(), name
    assert frame.schema["start"] == polars.Int64


def test_unknown_offsets_are_null():
    polars = pytest.importorskip("polars")
    frame = to_polars(Attribution(np.ones((1, 1, 2)), ("a", "b"), "raw", (1,), (0,)))
    assert frame["start"].to_list() == frame["end"].to_list() == [None, None]
    assert frame.schema["end"] == polars.Int64


def test_xarray_names_axes_and_tokens(explanation):
    pytest.importorskip("xarray")
    array = to_xarray(explanation, method="flow")
    scores = explanation.flow()
    assert array.dims == ("layer", "position", "token")
    np.testing.assert_array_equal(array.values, scores.to_numpy())
    assert array.sel(layer=2, token=1).item() == scores.to_numpy()[1, 0, 1]
    assert array.coords["text"].values.tolist() == list(scores.labels)
    assert array.coords["piece"].values.tolist() == list(scores.tokens)
    spans = list(zip(array.coords["start"].values, array.coords["end"].values, strict=True))
    assert spans == list(scores.offsets)
    assert array.coords["label"].values.tolist() == list(scores.row_labels)
    assert array.name == "flow"
    assert json.loads(array.attrs["settings"])["edges"] == "alti"
    assert array.attrs["model"] == explanation.model


def test_xarray_of_a_batch(batch):
    pytest.importorskip("xarray")
    array = to_xarray(batch)
    assert array.dims == ("example", "layer", "position", "token")
    np.testing.assert_array_equal(array.isel(example=1).values, batch.scores[1])
    assert array.coords["start"].values.tolist() == [-1, 0]


def test_hidden_tokens_are_left_out(explanation):
    pytest.importorskip("xarray")
    hidden = Attribution(np.ones((1, 1, 1)), ("a", "b"), "raw", (1,), (0,), columns=(1,))
    assert to_xarray(hidden).coords["text"].values.tolist() == ["b"]
    assert explanation.rollout().columns == tuple(range(7))
