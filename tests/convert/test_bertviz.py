"""to_bertviz. The views themselves need BertViz."""

import numpy as np
import pytest

from attnflow import InputError
from attnflow.convert import to_bertviz
from tests.convert.models import PROMPT, explain, make_classifier, make_translator
from tests.refusal import refusal

TEXT = "the key to cabinets"


@pytest.fixture(scope="module")
def explanation():
    return explain(TEXT, make_classifier())


@pytest.mark.parametrize("method", [None, "raw", "flow"])
def test_each_layer_is_one_head(explanation, method):
    arguments = to_bertviz(explanation, method=method)
    n = len(explanation.tokens)
    expected = explanation.attribute(method or "rollout", positions=range(n)).to_numpy()
    assert arguments["tokens"] == list(explanation.tokens)
    assert [layer.shape for layer in arguments["attention"]] == [(1, 1, n, n)] * 2
    for layer, scores in zip(arguments["attention"], expected, strict=True):
        np.testing.assert_allclose(layer[0, 0].numpy(), scores, rtol=1e-6)
    assert arguments.offsets == explanation.offsets
    assert set(arguments) == {"attention", "tokens"}


def test_layers_are_selected(explanation):
    [layer] = to_bertviz(explanation, layers=1, normalize="rows")["attention"]
    np.testing.assert_allclose(layer[0, 0].sum(dim=1).numpy(), 1, rtol=1e-6)


def test_rows_are_in_the_order_of_the_tokens(explanation):
    n = len(explanation.tokens)
    backwards = explanation.rollout(positions=range(n - 1, -1, -1))
    expected = to_bertviz(explanation)["attention"]
    for layer, other in zip(to_bertviz(backwards)["attention"], expected, strict=True):
        np.testing.assert_array_equal(layer.numpy(), other.numpy())


def test_missing_positions_are_refused(explanation):
    with refusal(InputError, "1 positions", "6 tokens"):
        to_bertviz(explanation.rollout())
    with refusal(InputError, "positions=range(n)"):
        to_bertviz(explanation.rollout(positions=[[0, 1], [2, 3]]))


# BertViz leaves files open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_views_draw_it(explanation):
    bertviz = pytest.importorskip("bertviz")
    translated = explain(PROMPT, make_translator(), generate=3)
    for source in (explanation, translated):
        arguments = to_bertviz(source)
        for view in (bertviz.head_view, bertviz.model_view):
            page = view(**arguments, html_action="return").data
            assert all(token in page for token in arguments["tokens"])
            assert str(arguments["attention"][0][0, 0].tolist()) in page
