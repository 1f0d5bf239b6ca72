"""Neuronpedia: the flow from a position to a token as a graph that its viewer draws.

Nodes are positions after each layer, links the flow on edges. The format is that of the attribution
graphs of circuit-tracer and Neuronpedia, whose nodes are features: `feature` is null here.
"""

import re
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnflow.errors import InputError, check_number, check_text, check_type
from attnflow.explanation import Explanation
from attnflow.methods.flow import FlowPath, flow_path
from attnflow.predictions import Outcome
from attnflow.selection import Position
from attnflow.token_text import readable_tokens, tell_apart

PAPER = "https://doi.org/10.18653/v1/2020.acl-main.385"
EMBEDDING, POSITION, LOGIT = "embedding", "attention position", "logit"
NO_FLOW = 1e-9  # flows are exact to 1e-12

# A position after a layer; layer 0 is the input.
Node = tuple[int, int]
Link = tuple[Node, Node, float]


def to_neuronpedia(
    source: Explanation,
    *,
    token: Position | Sequence[Position],
    position: Position | Sequence[Position] | None = None,
    layer: int = -1,
    keep: float = 0.95,
    slug: str = "",
    scan: str = "",
) -> dict[str, Any]:
    """Convert the flow from a position to a token to the graph JSON of Neuronpedia.

    token, position, layer: as in `flow_path`; the position is by default the explained one.
    keep: the share of the flow to show. The flow is split into ways from the position to the token,
    and the strongest ones are kept; `metadata.pruning_settings` says how much they carry.
    slug: the name of the graph, by default made from the text. scan: the model, by its name on
    Neuronpedia.
    The minimum cut is marked in the `clerp` (the label) of each node that its edges start from, in
    `cut` of the links, and as a supernode. Write the result with `json.dump`.
    Raises SelectionError for a layer, position or token that does not exist, InputError if there is
    no flow.
    """
    check_type(source, Explanation, "Pass what explain returned.")
    check_number("keep", keep, above=0, high=1)
    for name, text in {"slug": slug, "scan": scan}.items():
        check_text(name, text)
    place = source.position if position is None else position
    path = flow_path(source.graph, layer=layer, position=place, token=token)
    if path.value <= NO_FLOW:
        raise InputError(
            f"there is no flow in {path}",
            expected="a position that the token reaches",
            fix="In a decoder, choose a token at or before the position.",
        )
    links = strongest_ways(path, keep)
    labels = tell_apart(readable_tokens(source.tokens, text=source.text))
    target = _target(source, path)
    nodes = _draw_nodes(path, links, labels, target)
    drawn = [_draw_link(link, path) for link in links]
    if target is not None:
        top = _name((path.layer, source.position))
        logit = nodes[-1]["node_id"]
        kept = _kept_flow(path, links)
        drawn.append({"source": top, "target": logit, "weight": kept, "cut": False})
    names = [node["node_id"] for node in nodes]
    cut = [_name((edge.layer, edge.position)) for edge in path.cut]
    cut = [name for name in dict.fromkeys(cut) if name in names]
    return {
        "metadata": _describe(source, path, links, keep, slug or _slug(source), scan),
        "qParams": {
            "pinnedIds": names,
            "supernodes": [["minimum cut", *cut]] if len(cut) > 1 else [],
            "linkType": "both",
            "clickedId": names[-1],
            "sg_pos": "",
        },
        "nodes": nodes,
        "links": drawn,
    }


def strongest_ways(path: FlowPath, keep: float) -> list[Link]:
    """Split a flow into ways from the position to the token, and keep the strongest ones.

    keep: the share of the flow that they carry at least. Returns the edges from the input upwards,
    each with the flow of the ways that use it.

    >>> from attnflow import AttentionGraph
    >>> graph = AttentionGraph.from_weights([[[1.0, 0.0], [0.25, 0.75]]], residual_weight=0)
    >>> strongest_ways(flow_path(graph, position=1, token=0), keep=1)
    [((0, 0), (1, 1), 0.25)]
    """
    left = path.edges.copy()
    sources, sinks = np.atleast_1d(path.position), np.atleast_1d(path.token)
    carried: dict[tuple[Node, Node], float] = {}
    total = 0.0
    while total < keep * path.value - NO_FLOW:
        way, flow = _widest_way(left, sources, sinks)
        if flow <= NO_FLOW:
            break
        for lower, upper in pairwise(way):
            left[lower[0], upper[1], lower[1]] -= flow
            carried[lower, upper] = carried.get((lower, upper), 0.0) + flow
        total += flow
    return [(lower, upper, carried[lower, upper]) for lower, upper in sorted(carried)]


def _widest_way(
    left: NDArray[np.float64], sources: NDArray[np.int_], sinks: NDArray[np.int_]
) -> tuple[list[Node], float]:
    """The way from the input upwards whose narrowest edge is widest, and the width of that edge."""
    width = np.where(np.isin(np.arange(left.shape[1]), sinks), np.inf, 0.0)
    steps = []
    for edges in left:
        through = np.minimum(edges, width)
        steps.append(through.argmax(axis=1))
        width = through.max(axis=1)
    place = int(sources[width[sources].argmax()])
    flow = float(width[place])
    way = [(len(left), place)]
    for level in range(len(left) - 1, -1, -1):
        place = int(steps[level][place])
        way.append((level, place))
    return way[::-1], flow


def _target(source: Explanation, path: FlowPath) -> Outcome | None:
    """The predicted outcome, if the flow starts where the prediction is made."""
    if source.prediction is None or path.layer != source.graph.n_layers:
        return None
    return source.prediction.target if path.position == source.position else None


def _draw_nodes(
    path: FlowPath, links: Sequence[Link], labels: Sequence[str], target: Outcome | None
) -> list[dict[str, Any]]:
    """The nodes on links, from the input upwards, and the predicted outcome."""
    through: dict[Node, float] = {}
    for lower, upper, flow in links:
        through[upper] = through.get(upper, 0.0) + flow
        if lower[0] == 0:
            through[lower] = through.get(lower, 0.0) + flow
    nodes = [_draw_node(node, through[node], path, labels) for node in sorted(through)]
    if target is not None:
        last = nodes[-1]
        nodes.append(
            {
                **last,
                "node_id": f"{path.layer + 1}_{target.index}_{last['ctx_idx']}",
                "jsNodeId": f"L_{target.index}-{last['ctx_idx']}",
                "feature": target.index,
                "layer": str(path.layer + 1),
                "feature_type": LOGIT,
                "clerp": f'Output "{_safe(target.label)}" (p={target.probability:.3f})',
                "token_prob": target.probability,
                "is_target_logit": True,
            }
        )
    return nodes


def _draw_node(node: Node, flow: float, path: FlowPath, labels: Sequence[str]) -> dict[str, Any]:
    level, place = node
    text = f"{_safe(labels[place])} at layer {level}: flow {flow:.3f} of {path.value:.3f}"
    if level == 0:
        text = f"{_safe(labels[place])}: flow {flow:.3f}"
    cut = [e for e in path.cut if (e.layer, e.position) == node]
    if cut:
        ends = ", ".join(f"{_safe(labels[e.below])} {e.capacity:.3f}" for e in cut)
        text += f"; minimum cut: to {ends}"
    name = _name(node)
    return {
        "node_id": name,
        "jsNodeId": name,
        "feature": None,
        "layer": "E" if level == 0 else str(level),
        "ctx_idx": place,
        "feature_type": EMBEDDING if level == 0 else POSITION,
        "clerp": text,
        "influence": None,
        "activation": flow,
    }


def _draw_link(link: Link, path: FlowPath) -> dict[str, Any]:
    lower, upper, flow = link
    is_cut = any((e.layer, e.position, e.below) == (*upper, lower[1]) for e in path.cut)
    return {"source": _name(lower), "target": _name(upper), "weight": flow, "cut": is_cut}


def _name(node: Node) -> str:
    return f"{node[0] or 'E'}_null_{node[1]}"


def _safe(text: str) -> str:
    """A token for labels, which the viewer inserts as HTML."""
    return text.replace("<", "\N{SINGLE LEFT-POINTING ANGLE QUOTATION MARK}").replace(
        ">", "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}"
    )


def _slug(source: Explanation) -> str:
    """A name made from the first words of the text."""
    words = re.findall(r"\w+", source.text.casefold()) or ["graph"]
    return "attention-flow-" + "-".join(words[:8])


def _describe(
    source: Explanation, path: FlowPath, links: Sequence[Link], keep: float, slug: str, scan: str
) -> dict[str, Any]:
    offsets = source.offsets
    return {
        "slug": slug,
        "scan": scan or source.model,
        "prompt": source.text,
        "prompt_tokens": list(readable_tokens(source.tokens, text=source.text)),
        "prompt_offsets": None if offsets is None else [span and list(span) for span in offsets],
        "info": {
            "description": f"Maximum flow over attention, {path!r}.",
            "generator": {"name": "attnflow", "version": _version(), "url": PAPER},
        },
        "generation_settings": {**source.graph.settings, "model": source.model},
        "pruning_settings": {
            "keep": keep,
            "kept_flow": _kept_flow(path, links),
            "flow": path.value,
        },
    }


def _kept_flow(path: FlowPath, links: Sequence[Link]) -> float:
    """What the links carry from the explained layer."""
    return sum(flow for _, upper, flow in links if upper[0] == path.layer)


def _version() -> str:
    try:
        return version("attnflow")
    except PackageNotFoundError:  # run from a folder, without being installed
        return "unknown"
