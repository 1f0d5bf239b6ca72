"""What goes beyond the paper: decoders, edges, saturation, residual weights."""

import numpy as np
import pytest

from attnflow import explain, load_model, saturation
from attnflow.paper.experiments import decoders, edges, residual
from attnflow.paper.experiments import saturation as saturating
from attnflow.paper.experiments.report import to_text
from attnflow.paper.experiments.saturation import count_limits
from attnflow.paper.experiments.sentences import read_agreement


def test_saturation_by_hand():
    """Four tokens: one saturated, one at both bounds, one at its own, one at neither."""
    one = {
        "flow": np.asarray([[1.0, 1.0, 0.4, 0.2]]),
        "leaving": np.ones((1, 4)),
        "entering": np.asarray([[1.5, 1.0, 0.4, 0.6]]),
    }
    found = count_limits([one])
    assert (found["source"], found["sink"], found["between"]) == ([0.5], [0.25], [0.25])


def test_ties_by_hand():
    """Two of three tokens tie: one of three pairs. Then all tie."""
    wide = np.full((2, 3), 9.0)
    one = {
        "flow": np.asarray([[1.0, 1.0, 0.2], [1.0, 1.0, 1.0]]),
        "leaving": wide,
        "entering": wide,
    }
    found = count_limits([one])
    assert found["tied"] == pytest.approx([1 / 3, 1], abs=1e-5)
    assert found["flat"] == [0.0, 1.0]


def test_saturation_is_that_of_the_public_function(options):
    result = saturating.run(options, None)
    loaded = load_model("verb-number")
    shares = []
    for example in read_agreement(options).natural:
        explanation = explain(example.text, loaded)
        shares.append(saturation(explanation.graph, explanation.flow())[:, 0])
    assert result.numbers["0.5"]["source"] == pytest.approx(np.mean(shares, axis=0), abs=1e-4)
    for found in result.numbers.values():
        total = np.sum([found[name] for name in ("source", "sink", "between")], axis=0)
        assert total == pytest.approx(np.ones(6), abs=1e-4)
    assert "cut off at 1" in to_text(saturating.render(result))


def test_decoders_look_from_the_last_token_and_normalize(options):
    result = decoders.run(options, None)
    first = result.numbers["first"]
    # Dividing by what evenly spread attention gives takes weight from the first token.
    assert first["normalized"]["rollout"][-1] < first["plain"]["rollout"][-1]
    assert first["normalized"]["raw"] == pytest.approx(first["plain"]["raw"], abs=1e-4)
    loaded = load_model("verb-number-causal")
    shares = []
    for example in read_agreement(options).natural:
        row = explain(example.text, loaded).rollout(positions=-1).to_numpy()[-1, 0]
        shares.append(row[0] / row.sum())
    assert first["plain"]["rollout"][-1] == pytest.approx(np.mean(shares), abs=1e-4)
    text = to_text(decoders.render(result))
    assert "verb-number-causal" in text
    assert "normalizing makes rollout clearly better at" in text


def test_edges_are_compared_with_plain_ones(options):
    result = edges.run(options, None)
    numbers = result.numbers
    assert numbers["head_width"] == 16
    plain, effective = (
        numbers["blank_out"][kind]["rollout"] for kind in ("attention", "effective")
    )
    assert plain["n"] == effective["n"]
    assert numbers["blank_out"]["gradient"]["rollout"]["mean"] != plain["mean"]
    assert len(numbers["l2 comparisons"]) == 9
    assert "the edges that agree best with blank-out" in to_text(edges.render(result))


def test_residual_weights_are_swept(options):
    result = residual.run(options, None)
    assert list(result.numbers["l2"]) == [str(w / 10) for w in range(1, 10)]
    report = residual.render(result)
    assert len(report.tables) == 4
    assert [row[0] for row in report.tables[0].rows][4] == "r = 0.5"
    best = max(
        mean for found in result.numbers["blank_out"].values() for mean in found["rollout"]["mean"]
    )
    assert f"({best:.2f})" in to_text(report)
