"""An Explanation as text: what was predicted, and per layer a strip of scores over the tokens."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any
from unicodedata import bidirectional

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from attnflow.attribution import Attribution
from attnflow.cli.render import heat_cell, show_token, to_csv, to_json
from attnflow.explanation import Explanation

CELL = 4  # "0.12"; one more where there are negative scores
WIDEST = 14  # longer tokens are cut
LABEL = 8  # "layer 12"
SETTINGS = ("heads", "residual_weight", "edges", "normalise")
LEFT_TO_RIGHT = "\u200e"  # of no width


def print_heading(explanation: Explanation, console: Console) -> None:
    """Print what the model predicts, and which position is explained."""
    prediction = explanation.prediction
    if prediction is None:
        console.print("predicts nothing: a plain encoder")
    else:
        best, *others = prediction.top
        text = Text(f"{prediction.kind}: ")
        text.append(f"{show_token(best.label)} {best.probability:.3f}", style="bold")
        for other in others:
            text.append(f", {show_token(other.label)} {other.probability:.3f}", style="dim")
        if prediction.target.index != best.index:
            target = prediction.target
            text.append(f"; explaining {show_token(target.label)} {target.probability:.3f}")
        console.print(text)
    token = show_token(explanation.tokens[explanation.position])
    console.print(
        Text(f"position {explanation.position} {token}, {len(explanation.tokens)} tokens")
    )


def print_strip(attribution: Attribution, top: int, console: Console) -> None:
    """Print the tokens, and under them the scores of the one position at each layer.

    Scores are shaded where there is colour. Tokens that do not fit go on in further blocks.
    """
    console.print()
    layers = attribution.layers
    span = f"layer {layers[0]}" if len(layers) == 1 else f"layers {layers[0]} to {layers[-1]}"
    console.print(Text(f"{attribution.method}, {span}", style="bold"))
    shown = {k: v for k, v in attribution.settings.items() if k in SETTINGS and v != "none"}
    text = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in shown.items())
    console.print(Text(text, style="dim"))
    scores = attribution.to_numpy()[:, 0, :]  # [layers, tokens]
    highest = float(scores.max(initial=0.0)) or 1.0
    labels = [show_token(attribution.tokens[i]) for i in attribution.columns]
    widths = [_width(label, CELL + int(scores.min(initial=0.0) < 0)) for label in labels]
    for block in split_blocks(widths, console.width - LABEL):
        header = Text(" " * LABEL)
        for i in block:
            header.append(" " + _fit(labels[i], widths[i]))
        console.print(header, no_wrap=True, overflow="ignore", crop=False)
        for layer, row in zip(attribution.layers, scores, strict=True):
            line = _line(f"layer {layer}".ljust(LABEL), row, block, widths, highest)
            console.print(line, no_wrap=True, overflow="ignore", crop=False)
    position = attribution.positions[0]
    best = attribution.top(top, position=position)
    text = ", ".join(f"{show_token(token)} {score:.3f}" for token, _, score in best)
    console.print(Text(f"top at layer {attribution.layers[-1]}: {text}"))


def _line(
    label: str,
    row: NDArray[np.floating],
    block: Sequence[int],
    widths: Sequence[int],
    highest: float,
) -> Text:
    line = Text(label)
    for i in block:
        shade = heat_cell(float(row[i]), highest).style
        line.append(" ")
        line.append(f"{row[i]:.2f}".ljust(widths[i]), style=shade)
    return line


def split_blocks(widths: Sequence[int], room: int) -> Iterator[list[int]]:
    """Indices of columns, in blocks that fit the room; at least one in each.

    >>> list(split_blocks([4, 4, 4], 10))
    [[0, 1], [2]]
    """
    block: list[int] = []
    used = 0
    for i, width in enumerate(widths):
        if block and used + width + 1 > room:
            yield block
            block, used = [], 0
        block.append(i)
        used += width + 1
    if block:
        yield block


def _width(label: str, least: int) -> int:
    return min(max(cell_len(label), least), WIDEST)


def _fit(label: str, width: int) -> str:
    """A token in its cell, cut if it is too long; one to be read from the right kept to itself."""
    if cell_len(label) > WIDEST:
        label = set_cell_size(label, WIDEST - 1) + "\u2026"
    text = set_cell_size(label, width)
    backwards = any(bidirectional(c) in ("R", "AL") for c in label)
    return text + LEFT_TO_RIGHT if backwards else text


def explanation_to_json(
    explanation: Explanation, attributions: Sequence[Attribution], top: int | None
) -> str:
    """One JSON object: text, tokens, prediction, position, and what each method gave."""
    prediction: dict[str, Any] | None = None
    if explanation.prediction is not None:
        prediction = {
            "kind": explanation.prediction.kind,
            "target": asdict(explanation.prediction.target),
            "top": [asdict(outcome) for outcome in explanation.prediction.top],
        }
    return json.dumps(
        {
            "text": explanation.text,
            "tokens": list(explanation.tokens),
            "position": explanation.position,
            "prediction": prediction,
            "attributions": [
                {**json.loads(to_json(one, top)), "columns": list(one.columns)}
                for one in attributions
            ],
        }
    )


def attributions_to_csv(attributions: Sequence[Attribution], top: int | None) -> str:
    """One line for each method, layer, position and token."""
    text = io.StringIO()
    fields = ["method", "layer", "position", "position_token", "index", "token", "score"]
    writer = csv.DictWriter(text, fields, lineterminator="\n")
    writer.writeheader()
    for attribution in attributions:
        for record in csv.DictReader(io.StringIO(to_csv(attribution, top), newline="")):
            writer.writerow({"method": attribution.method, **record})
    return text.getvalue().rstrip("\n")
