"""How results are presented everywhere: settings in words, titles, and the range of colors.

The terminal, the viewer and figures share these. What draws colors shows their range.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnflow.edges.registry import EDGES
from attnflow.graph import AttentionGraph
from attnflow.methods.registry import method_title

STRETCH = 0.4  # colors start at the lowest score if it is at least this share of the highest
PALE = 0.25  # of the highest score: rows or maps with lower scores only would be nearly blank
FEW = 4  # tokens: with so few, all colors are easy to see
DOMINANT = 3  # times the largest score of the other tokens
LIGHTEST = 0.15  # the strength of the color of the lowest score of a stretched range


def edges_name(settings: Mapping[str, Any]) -> str:
    """The edge weighting that settings record; plain attention if they record none."""
    return str(settings.get("edges", "attention"))


def title_with_edges(method: str, settings: Mapping[str, Any]) -> str:
    """The title of a method; what is not attention is not called raw attention.

    >>> title_with_edges("raw", {"edges": "alti"}), title_with_edges("rollout", {"edges": "alti"})
    ('Raw edge weights', 'Attention rollout')
    """
    if method == "raw" and edges_name(settings) != "attention":
        return "Raw edge weights"
    return method_title(method)


def describe_settings(settings: Mapping[str, Any], *, model: str = "") -> list[str]:
    """The model and the settings of a graph or an Attribution in words, one text for each.

    >>> describe_settings({"edges": "alti", "residual_weight": "inside the edges"}, model="gpt2")
    ['gpt2', 'edges: ALTI', 'residual connection inside the edges']
    """
    parts = [model] if model else []
    if "edges" in settings or "residual_weight" in settings:
        parts.append(f"edges: {_edges_title(edges_name(settings))}")
    if "residual_weight" in settings:
        parts.append(_describe_residual(settings["residual_weight"]))
    if settings.get("heads"):
        parts.append(f"heads: {settings['heads']}")
    if settings.get("mixing"):
        parts.append(f"mixing matrices in place of attention: {settings['mixing']}")
    if settings.get("residual_only"):
        parts.append(f"residual connection only: {settings['residual_only']}")
    if "normalize" in settings:
        parts.append(describe_normalization(str(settings["normalize"])))
    if settings.get("special", "show") != "show":
        shown = {"hide": "hidden", "rank_out": "not ranked"}
        parts.append(f"special tokens {shown.get(settings['special'], settings['special'])}")
    return parts


def describe_generation(settings: Mapping[str, Any]) -> str:
    """How an answer was generated, in words.

    >>> describe_generation({"max_new_tokens": 40, "do_sample": True, "seed": 7})
    'answer: at most 40 new tokens, do_sample True, seed 7'
    >>> describe_generation({"given": True})
    'answer: given'
    """
    parts = []
    for name, value in settings.items():
        if name == "given":
            parts.append("given")
        elif name == "max_new_tokens":
            parts.append(f"at most {value} new token{'' if value == 1 else 's'}")
        else:
            parts.append(f"{name} {value}")
    return f"answer: {', '.join(parts)}"


def residual_only_note(settings: Mapping[str, Any]) -> str:
    """A sentence about layers of which only the residual connection is known; "" without them.

    >>> residual_only_note({"residual_only": "1 (MiniMaxLightningAttention)"}).split(",")[0]
    'Layers 1 (MiniMaxLightningAttention) have no attention'
    """
    layers = settings.get("residual_only")
    if not layers:
        return ""
    return (
        f"Layers {layers} have no attention, and how they mix positions is not captured: they "
        "count as residual connections only."
    )


def name_layers(graph: AttentionGraph) -> tuple[str, ...]:
    """The layers of an encoder-decoder by name; empty for other graphs.

    >>> one = [[[1.0]]]
    >>> name_layers(AttentionGraph.encoder_decoder(encoder=one, decoder=one, cross=one))
    ('encoder 1', 'decoder 1, self-attention', 'decoder 1, cross-attention')
    """
    n_source = count_source(graph)
    if n_source == 0 or graph.carried is None or graph.receptive_field is None:
        return ()
    names: list[str] = []
    blocks = {"encoder": 0, "decoder": 0}
    for carried, field in zip(graph.carried, graph.receptive_field, strict=True):
        if not carried[0]:
            blocks["encoder"] += 1
            names.append(f"encoder {blocks['encoder']}")
        elif field[n_source:, n_source:].any():
            blocks["decoder"] += 1
            names.append(f"decoder {blocks['decoder']}, self-attention")
        else:
            names.append(f"decoder {blocks['decoder']}, cross-attention")
    return tuple(names)


def count_source(graph: AttentionGraph) -> int:
    """The number of source tokens of an encoder-decoder, which come first; 0 for other graphs."""
    if graph.carried is None or graph.receptive_field is None:
        return 0
    source = ~graph.carried[0]
    n = int(source.sum())
    is_split = 0 < n < len(source) and source[:n].all()
    fits = all(not (row != source).any() or not (row == source).any() for row in graph.carried)
    return n if is_split and fits else 0


def describe_normalization(normalize: str) -> str:
    """The option `normalize` in words.

    >>> describe_normalization("rows")
    'rows normalized'
    """
    known = {
        "none": "not normalized",
        "rows": "rows normalized",
        "receptive_field": "normalized by the receptive field",
    }
    return known.get(normalize, f"normalized: {normalize}")


def _edges_title(name: str) -> str:
    """The title of edges inside a sentence: acronyms keep their capitals."""
    if name not in EDGES.names:  # made with a plugin that is not installed here
        return name
    first, *rest = EDGES[name].title.split(" ")
    return " ".join([first.lower() if first[1:].islower() else first, *rest])


def _describe_residual(residual: Any) -> str:
    """The residual weight in words.

    >>> _describe_residual(0.5), _describe_residual([0.25, 0.5]), _describe_residual("measured")
    ('residual weight 0.5', 'residual weights 0.25 to 0.5', 'residual weight measured')
    """
    if isinstance(residual, str):
        return f"residual {'weight' if residual == 'measured' else 'connection'} {residual}"
    if isinstance(residual, Sequence):
        return f"residual weights {min(residual):.3g} to {max(residual):.3g}"
    return f"residual weight {residual:.3g}"


def color_range(scores: NDArray[Any]) -> tuple[float, float]:
    """The scores that the lightest and the darkest color stand for.

    From 0 to the highest score; from the lowest if scores are so close to each other that colors
    from 0 would hardly differ. Zeros, as of tokens that a position cannot attend to, do not count.
    What draws the colors must show this range.

    >>> color_range(np.asarray([0.1, 0.4])), color_range(np.asarray([0.6, 0.68, 0.0]))
    ((0.0, 0.4), (0.6, 0.68))
    """
    positive = scores[scores > 0]
    if not positive.size:
        return 0.0, 1.0
    low, high = float(positive.min()), float(positive.max())
    return (low, high) if STRETCH * high <= low < high else (0.0, high)


def row_ranges(rows: NDArray[Any]) -> list[tuple[float, float]] | None:
    """The color range of each row, if half of them need their own; None if one serves all.

    A row needs its own if its scores are close to each other, or all low compared with those of
    other rows. Then each range is from the lowest score of the row to its highest.
    """
    highest = float(rows.max(initial=0.0))
    blank = [color_range(row)[0] > 0 or 0 < row.max() < PALE * highest for row in rows]
    equal = [len(np.unique(row[row > 0])) == 1 for row in rows]
    needing = sum(a or b for a, b in zip(blank, equal, strict=True))
    if not any(blank) or 2 * needing < len(rows):
        return None
    return [_whole_range(row) for row in rows]


def special_dominate(rows: NDArray[Any], special: Sequence[bool]) -> bool:
    """Whether special tokens take most of the color scale in half of the rows or more.

    The viewer then offers to hide them, and figures do. rows: [rows, tokens].

    >>> special_dominate(np.asarray([[0.9, 0.05, 0.1, 0.0, 0.05]]), [True] + [False] * 4)
    True
    """
    marks = np.asarray(special, dtype=bool)
    if len(marks) <= FEW or marks.all() or not marks.any():
        return False
    return _dominate(rows, marks)


def color_limit(rows: NDArray[Any]) -> float:
    """The highest score, without those of a single token that dominates half of the rows.

    rows: [rows, tokens].

    >>> color_limit(np.asarray([[0.9, 0.05, 0.1, 0.0, 0.05]]))
    0.1
    """
    highest = float(rows.max(initial=0.0))
    if rows.shape[-1] <= FEW or not highest:
        return highest
    best = np.bincount(rows.argmax(axis=-1)).argmax()
    marks = np.arange(rows.shape[-1]) == best
    return float(rows[:, ~marks].max()) if _dominate(rows, marks) else highest


def _dominate(rows: NDArray[Any], marks: NDArray[np.bool_]) -> bool:
    others = rows[:, ~marks].max(axis=-1)
    dominated = (others > 0) & (rows[:, marks].max(axis=-1) > DOMINANT * others)
    return 2 * int(dominated.sum()) >= len(rows)


def _whole_range(row: NDArray[Any]) -> tuple[float, float]:
    """From the lowest positive score to the highest; from 0 if they are equal."""
    positive = row[row > 0]
    low, high = (float(positive.min()), float(positive.max())) if positive.size else (0.0, 1.0)
    return (low, high) if low < high else (0.0, high)


def color_share(scores: Any, low: float, high: float) -> Any:
    """The strength of the color of scores, from 0 to 1, for a range from `color_range`.

    The lowest score of a stretched range is not as light as 0, so that it does not look like it.

    >>> color_share(np.asarray([0.0, 0.25, 0.5]), 0.0, 0.5)
    array([0. , 0.5, 1. ])
    >>> color_share(np.asarray([0.0, 0.6, 0.68]), 0.6, 0.68)
    array([0.  , 0.15, 1.  ])
    """
    scores = np.asarray(scores, dtype=np.float64)
    if low <= 0:
        return np.clip(scores / high, 0.0, 1.0)
    share = LIGHTEST + (1 - LIGHTEST) * np.clip((scores - low) / (high - low), 0.0, 1.0)
    return np.where(scores > 0, share, 0.0)
