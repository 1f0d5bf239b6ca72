"""Saturation of flow: counted by hand, and equal to the public function."""

import numpy as np
import pytest

from attnflow import explain, load_model
from attnflow import saturation as flow_saturation
from attnflow.paper.experiments import saturation
from attnflow.paper.experiments.report import to_text
from attnflow.paper.experiments.saturation import count_bounds
from attnflow.paper.experiments.sentences import read_agreement


def test_bounds_by_hand():
    """Four tokens: one at the outflow, one at both bounds, one at its inflow, one below both."""
    text = {
        "flow": np.asarray([[1.0, 1.0, 0.4, 0.2]]),
        "outflow": np.ones((1, 4)),
        "inflow": np.asarray([[1.5, 1.0, 0.4, 0.6]]),
    }
    shares = count_bounds([text])
    assert (shares["source"], shares["sink"], shares["between"]) == ([0.5], [0.25], [0.25])


def test_ties_by_hand():
    """Two of three tokens tie, which is one of three pairs. Then all tie."""
    large = np.full((2, 3), 9.0)
    text = {
        "flow": np.asarray([[1.0, 1.0, 0.2], [1.0, 1.0, 1.0]]),
        "outflow": large,
        "inflow": large,
    }
    shares = count_bounds([text])
    assert shares["tied"] == pytest.approx([1 / 3, 1], abs=1e-5)
    assert shares["flat"] == [0.0, 1.0]


@pytest.mark.slow
def test_saturation_equals_the_public_function(options):
    result = saturation.run(options, None)
    loaded = load_model("verb-number")
    expected = []
    for example in read_agreement(options).natural:
        explanation = explain(example.text, loaded, edges="attention")
        expected.append(flow_saturation(explanation.graph, explanation.flow())[:, 0])
    assert result.numbers["0.5"]["source"] == pytest.approx(np.mean(expected, axis=0), abs=1e-4)
    for shares in result.numbers.values():
        total = np.sum([shares[name] for name in ("source", "sink", "between")], axis=0)
        assert total == pytest.approx(np.ones(6), abs=1e-4)
    assert "of tokens are saturated at layer 6" in to_text(saturation.render(result))
