"""Experiments on other graphs: decoders, edges and residual weights."""

import numpy as np
import pytest

from attnflow import explain, load_model
from attnflow.edges.registry import EDGES
from attnflow.paper.experiments import graph_variants
from attnflow.paper.experiments.experiment import PAPER_METHODS
from attnflow.paper.experiments.report import to_text
from attnflow.paper.experiments.sentences import read_agreement


@pytest.mark.slow
def test_decoders_are_explained_at_the_last_token_and_normalized(options):
    result = graph_variants.run_decoders(options, None)
    shares = result.numbers["first_token_share"]
    # Dividing by the scores of uniform attention lowers the first token.
    assert shares["normalized"]["rollout"][-1] < shares["plain"]["rollout"][-1]
    assert shares["normalized"]["raw"] == pytest.approx(shares["plain"]["raw"], abs=1e-4)
    loaded = load_model("verb-number-causal")
    expected = []
    for example in read_agreement(options).natural:
        row = (
            explain(example.text, loaded, edges="attention").rollout(positions=-1).to_numpy()[-1, 0]
        )
        expected.append(row[0] / row.sum())
    assert shares["plain"]["rollout"][-1] == pytest.approx(np.mean(expected), abs=1e-4)
    text = to_text(graph_variants.render_decoders(result))
    assert "verb-number-causal" in text
    assert "Normalization significantly increases the correlation of rollout" in text


@pytest.mark.slow
def test_all_registered_edges_are_compared_with_plain_attention(options):
    result = graph_variants.run_edges(options, None)
    numbers = result.numbers
    assert numbers["head_dim"] == 16
    assert tuple(numbers["blank_out"]) == EDGES.names
    plain, effective = (
        numbers["blank_out"][edges]["rollout"] for edges in ("attention", "effective")
    )
    assert plain["n"] == effective["n"]
    assert numbers["blank_out"]["gradient"]["rollout"]["mean"] != plain["mean"]
    assert len(numbers["l2_comparisons"]) == len(PAPER_METHODS) * (len(EDGES.names) - 1)
    text = " ".join(to_text(graph_variants.render_edges(result)).split())
    assert "the edges with the highest correlation with blank-out are" in text


def test_residual_weights_range_from_one_tenth_to_nine_tenths(options):
    result = graph_variants.run_residual(options, None)
    assert list(result.numbers["l2"]) == [str(w / 10) for w in range(1, 10)]
    report = graph_variants.render_residual(result)
    assert len(report.tables) == 4
    assert [row[0] for row in report.tables[0].rows][4] == "r = 0.5"
    best = max(
        mean
        for methods in result.numbers["blank_out"].values()
        for mean in methods["rollout"]["mean"]
    )
    assert f"({best:.2f})" in to_text(report)
