"""to_neuronpedia: the flow as a graph, by hand on small graphs."""

import json
from collections import defaultdict

import numpy as np
import pytest

from attnflow import AttentionGraph, Explanation, InputError, SelectionError, flow_path
from attnflow.convert import to_neuronpedia
from attnflow.convert.neuronpedia import Node, strongest_ways
from tests.convert.models import PROMPT, explain, make_speaker, make_translator
from tests.refusal import refusal

# What the schema of Neuronpedia requires, as of version 1.0.0, and of which type it must be.
REQUIRED: dict[str, dict[str, tuple[type, ...]]] = {
    "metadata": {"slug": (str,), "scan": (str,), "prompt_tokens": (list,), "prompt": (str,)},
    "nodes": {
        "node_id": (str,),
        "feature": (int, type(None)),
        "layer": (str, int),
        "ctx_idx": (int,),
        "feature_type": (str,),
        "jsNodeId": (str,),
        "clerp": (str,),
    },
    "links": {"source": (str,), "target": (str,), "weight": (float,)},
    "qParams": {
        "pinnedIds": (list,),
        "supernodes": (list,),
        "linkType": (str,),
        "clickedId": (str,),
        "sg_pos": (str,),
    },
}
OPTIONAL = {"influence": (float, type(None)), "activation": (float, type(None))}


def check_schema(graph):
    """Check types and required keys, and what the viewer assumes besides."""
    assert json.loads(json.dumps(graph, allow_nan=False)) == graph
    assert set(graph) == set(REQUIRED)
    for part, types in REQUIRED.items():
        items = graph[part] if isinstance(graph[part], list) else [graph[part]]
        for item in items:
            for name, kinds in types.items():
                assert isinstance(item[name], kinds), (part, name)
            for name, kinds in OPTIONAL.items():
                assert isinstance(item.get(name), (*kinds, type(None)))
    assert all(isinstance(token, str) for token in graph["metadata"]["prompt_tokens"])
    names = [node["node_id"] for node in graph["nodes"]]
    assert len(set(names)) == len(names)
    for link in graph["links"]:
        assert {link["source"], link["target"]} <= set(names)
    assert graph["qParams"]["clickedId"] in names
    layers = [int(n["layer"]) for n in graph["nodes"] if n["feature_type"] == "attention position"]
    assert max(layers) >= 1  # the viewer stops without a layer above 0
    for node in graph["nodes"]:
        assert 0 <= node["ctx_idx"] < len(graph["metadata"]["prompt_tokens"])
        if node["feature_type"] == "logit":  # the viewer reads the probability from the label
            assert 0 <= float(node["clerp"].split("(p=")[1].split(")")[0]) <= 1


def two_layers():
    """From position 2 at layer 2 to token 0: two ways, over 0 and 1, the second one narrow.

    2 -(.4)-> 0 -(1)-> 0, and 2 -(.35)-> 1 -(.25)-> 0; what goes over 2 has no way on.
    """
    lower = [[1.0, 0.0, 0.0], [0.25, 0.75, 0.0], [0.0, 0.0, 1.0]]
    upper = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.4, 0.35, 0.25]]
    graph = AttentionGraph.from_weights([lower, upper], tokens=["<a>", "b", "c"], residual_weight=0)
    return Explanation.from_graph(graph, text="<a> b c", model="tiny")


def test_a_graph_by_hand():
    graph = to_neuronpedia(two_layers(), token=0)
    check_schema(graph)
    weights = {(link["source"], link["target"]): link["weight"] for link in graph["links"]}
    assert weights == {
        ("E_null_0", "1_null_0"): pytest.approx(0.4),
        ("E_null_0", "1_null_1"): pytest.approx(0.25),
        ("1_null_0", "2_null_2"): pytest.approx(0.4),
        ("1_null_1", "2_null_2"): pytest.approx(0.25),
    }
    flows = {node["node_id"]: node["activation"] for node in graph["nodes"]}
    assert flows == {
        "E_null_0": pytest.approx(0.65),
        "1_null_0": pytest.approx(0.4),
        "1_null_1": pytest.approx(0.25),
        "2_null_2": pytest.approx(0.65),
    }
    assert graph["metadata"]["pruning_settings"]["kept_flow"] == pytest.approx(0.65)
    assert graph["metadata"]["scan"] == "tiny"


def test_the_minimum_cut_is_marked():
    """The cut is the edge of .4 from the position, and that of .25 from b."""
    graph = to_neuronpedia(two_layers(), token=0)
    cut = [(link["source"], link["target"]) for link in graph["links"] if link["cut"]]
    assert cut == [("E_null_0", "1_null_1"), ("1_null_0", "2_null_2")]
    labels = {node["node_id"]: node["clerp"] for node in graph["nodes"]}
    assert labels["1_null_1"] == (
        "b at layer 1: flow 0.250 of 0.650; minimum cut: to \u2039a\u203a 0.250"
    )
    assert labels["2_null_2"].endswith("minimum cut: to \u2039a\u203a 0.400")
    assert "minimum cut" not in labels["1_null_0"]
    assert graph["qParams"]["supernodes"] == [["minimum cut", "2_null_2", "1_null_1"]]


def test_labels_have_no_html_but_tokens_do():
    graph = to_neuronpedia(two_layers(), token=0)
    assert graph["metadata"]["prompt_tokens"][0] == "<a>"
    assert not any("<" in node["clerp"] for node in graph["nodes"])


def test_the_strongest_way_is_kept():
    graph = to_neuronpedia(two_layers(), token=0, keep=0.5)
    assert [node["node_id"] for node in graph["nodes"]] == ["E_null_0", "1_null_0", "2_null_2"]
    settings = graph["metadata"]["pruning_settings"]
    assert settings == {
        "keep": 0.5,
        "kept_flow": pytest.approx(0.4),
        "flow": pytest.approx(0.65),
    }
    check_schema(graph)
    assert len(to_neuronpedia(two_layers(), token=0, keep=0.62)["nodes"]) == 4


@pytest.mark.parametrize("keep", [0.01, 0.5, 0.9, 1.0])
def test_what_is_left_is_a_flow_between_the_ends(keep):
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.full(12, 0.3), size=(5, 12))
    graph = AttentionGraph.from_weights(weights)
    path = flow_path(graph, position=3, token=7)
    ins: defaultdict[Node, float] = defaultdict(float)
    outs: defaultdict[Node, float] = defaultdict(float)
    for lower, upper, flow in strongest_ways(path, keep):
        assert 0 < flow <= path.edges[lower[0], upper[1], lower[1]] + 1e-12
        outs[lower] += flow
        ins[upper] += flow
    nodes = set(ins) | set(outs)
    assert {node for node in nodes if node not in ins} == {(0, 7)}
    assert {node for node in nodes if node not in outs} == {(5, 3)}
    assert keep * path.value - 1e-8 <= ins[5, 3] <= path.value + 1e-8
    for node in nodes - {(0, 7), (5, 3)}:
        assert ins[node] == pytest.approx(outs[node], abs=1e-8)
    if keep == 1:
        assert ins[5, 3] == pytest.approx(path.value, abs=1e-8)


def test_the_prediction_is_a_node_above_the_last_layer():
    explanation = explain(PROMPT, make_speaker(), edges="attention")
    graph = to_neuronpedia(explanation, token=1, scan="my-model", slug="my-graph")
    check_schema(graph)
    target = explanation.prediction.target
    logit = graph["nodes"][-1]
    assert (logit["feature_type"], logit["feature"]) == ("logit", target.index)
    assert logit["clerp"] == f'Output "{target.label}" (p={target.probability:.3f})'
    top = f"{explanation.graph.n_layers}_null_{explanation.position}"
    metadata = graph["metadata"]
    value = explanation.flow(layers=-1).to_numpy()[0, 0, 1]
    assert metadata["pruning_settings"]["flow"] == pytest.approx(value, abs=1e-6)
    [link] = [link for link in graph["links"] if link["target"] == logit["node_id"]]
    kept = metadata["pruning_settings"]["kept_flow"]
    assert (link["source"], link["weight"]) == (top, kept)  # what enters the node leaves it
    assert (metadata["scan"], metadata["slug"]) == ("my-model", "my-graph")
    assert metadata["prompt_offsets"] == [list(span) for span in explanation.offsets]
    assert metadata["generation_settings"]["edges"] == "attention"
    below = to_neuronpedia(explanation, token=1, layer=1)
    assert below["nodes"][-1]["feature_type"] == "attention position"
    other = to_neuronpedia(explanation, token=1, position=2)
    assert other["nodes"][-1]["feature_type"] == "attention position"


def test_words_and_encoder_decoders():
    explanation = explain(PROMPT, make_translator(), generate=3)
    answer = list(explanation.answer.positions)
    graph = to_neuronpedia(explanation, token=[1, 2], position=answer)
    check_schema(graph)
    sinks = {node["ctx_idx"] for node in graph["nodes"] if node["layer"] == "E"}
    assert sinks == {1, 2}


def test_what_has_no_flow_is_refused():
    explanation = two_layers()
    with refusal(InputError, "no flow"):
        to_neuronpedia(explanation, token=2, position=0)
    with refusal(InputError, "keep", 1.5):
        to_neuronpedia(explanation, token=0, keep=1.5)
    with refusal(SelectionError, "zebra"):
        to_neuronpedia(explanation, token="zebra")
    with refusal(InputError, "Attribution"):
        to_neuronpedia(explanation.rollout(), token=0)
