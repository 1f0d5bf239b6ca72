"""An Attribution as text: a table to look at, or JSON and CSV for other programs.

An Explanation as text: what was predicted, and per layer a strip of scores over the tokens.
"""

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
from rich.table import Table
from rich.text import Text

from attnflow.attribution import Attribution
from attnflow.explanation import Explanation

MOST_ROWS = 20  # tokens shown when --top does not say how many
BEST = 4  # tokens shown for each of many positions
TOKEN_WIDTH = 18
CELL_WIDTH = 6  # "0.123" and a space
INDEX_WIDTH = 6


def to_json(attribution: Attribution, top: int | None) -> str:
    """Everything as one JSON object; with `top`, the best tokens only, in place of all scores."""
    result = {
        "method": attribution.method,
        "settings": dict(attribution.settings),
        "tokens": list(attribution.tokens),
        "layers": list(attribution.layers),
        "positions": list(attribution.positions),
    }
    if top is None:
        return json.dumps({**result, "scores": attribution.to_numpy().tolist()})
    return json.dumps({**result, "top": list(_records(attribution, top))})


def to_csv(attribution: Attribution, top: int | None) -> str:
    """One line for each layer, position and token; with `top`, of the best tokens only."""
    text = io.StringIO()
    fields = ["layer", "position", "position_token", "index", "token", "score"]
    writer = csv.DictWriter(text, fields, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_records(attribution, top))
    return text.getvalue().rstrip("\n")


def _records(attribution: Attribution, top: int | None) -> Iterator[dict[str, int | float | str]]:
    scores = attribution.to_numpy()
    for layer, of_layer in zip(attribution.layers, scores, strict=True):
        for position, row in zip(attribution.positions, of_layer, strict=True):
            for i in _best(row, top) if top is not None else range(len(row)):
                index = attribution.columns[i]
                yield {
                    "layer": layer,
                    "position": position,
                    "position_token": attribution.tokens[position],
                    "index": index,
                    "token": attribution.tokens[index],
                    "score": float(row[i]),
                }


def _best(row: NDArray[np.floating], k: int) -> list[int]:
    return [int(i) for i in np.argsort(-row, kind="stable")[:k]]


def print_tables(attribution: Attribution, top: int | None, console: Console) -> None:
    """Print what can be read at the width of the console, and say what was left out."""
    if len(attribution.positions) == 1:
        _print_position(attribution, top, console)
    else:
        _print_positions(attribution, top, console)
    _print_saturation(attribution, console)


def _print_position(attribution: Attribution, top: int | None, console: Console) -> None:
    """Tokens as rows and layers as columns, shaded by score."""
    _print_title(attribution, f"position {_name(attribution, attribution.positions[0])}", console)
    scores = attribution.to_numpy()[:, 0, :]  # [layers, tokens]
    rows = _choose_rows(scores[-1], top)
    fitting = max(1, (console.width - _token_width(attribution) - INDEX_WIDTH) // CELL_WIDTH)
    columns = _spread(len(attribution.layers), fitting)
    highest = float(scores[np.ix_(columns, rows)].max(initial=0.0)) or 1.0
    table = _new_table()
    table.add_column("", justify="right")
    table.add_column("token", no_wrap=True, max_width=TOKEN_WIDTH)
    for i in columns:
        table.add_column(str(attribution.layers[i]), justify="right", no_wrap=True)
    for token in rows:
        index = attribution.columns[token]
        cells = [heat_cell(float(scores[i, token]), highest) for i in columns]
        table.add_row(str(index), Text(show_token(attribution.tokens[index])), *cells)
    console.print(table)
    if len(columns) < len(attribution.layers):
        console.print(
            f"{len(columns)} of {len(attribution.layers)} layers shown. "
            "--layer N shows one, --format csv has all."
        )
    if len(rows) < scores.shape[1]:
        console.print(
            f"{len(rows)} of {scores.shape[1]} tokens shown, by their score at layer "
            f"{attribution.layers[-1]}. --top {scores.shape[1]} shows all."
        )


def _print_positions(attribution: Attribution, top: int | None, console: Console) -> None:
    """For each layer a table with positions as rows, each with its best tokens."""
    _print_title(attribution, f"{len(attribution.positions)} positions", console)
    scores = attribution.to_numpy()
    width = _token_width(attribution)
    fitting = max(1, (console.width - width - INDEX_WIDTH) // (width + 1 + CELL_WIDTH))
    shown = min(top or BEST, fitting, scores.shape[-1])
    for layer, of_layer in zip(attribution.layers, scores, strict=True):
        highest = float(of_layer.max()) or 1.0
        table = _new_table(title=f"layer {layer}")
        table.add_column("", justify="right")
        table.add_column("position", no_wrap=True, max_width=TOKEN_WIDTH)
        for _ in range(shown):
            table.add_column("token", no_wrap=True, max_width=TOKEN_WIDTH)
            table.add_column("score", justify="right", no_wrap=True)
        for position, row in zip(attribution.positions, of_layer, strict=True):
            cells: list[Text] = []
            for i in _best(row, shown):
                token = attribution.tokens[attribution.columns[i]]
                cells += [Text(show_token(token)), heat_cell(float(row[i]), highest)]
            table.add_row(str(position), Text(show_token(attribution.tokens[position])), *cells)
        console.print(table)
    if shown < scores.shape[-1]:
        console.print(
            f"The best {shown} of {scores.shape[-1]} tokens shown for each position. "
            "--format csv has all."
        )


def _new_table(title: str | None = None) -> Table:
    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=None,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )


def _print_title(attribution: Attribution, what: str, console: Console) -> None:
    numbers = attribution.layers
    layers = f"layer {numbers[0]}" if len(numbers) == 1 else f"layers {numbers[0]} to {numbers[-1]}"
    title = Text(f"{attribution.method}, {layers}, {what}", style="bold")
    console.print(title, no_wrap=True, overflow="ellipsis")
    settings = [
        f"{name.replace('_', ' ')} {value}"
        for name, value in attribution.settings.items()
        if isinstance(value, str | int | float) and value != "none" and name != "to_layer"
    ]
    console.print(Text(", ".join(settings), style="dim"))


def _print_saturation(attribution: Attribution, console: Console) -> None:
    """Warn where most flows are as large as can be, so that they rank nothing."""
    layer = attribution.layers[-1]
    share = attribution.settings.get("saturated", {}).get(str(layer), 0.0)
    if share >= 0.5:
        console.print(
            f"At layer {layer}, {share:.0%} of the flows are all that can leave the position: "
            "these tokens tie. Lower layers, or rollout, tell them apart."
        )


def _name(attribution: Attribution, position: int) -> str:
    token = attribution.tokens[position]
    return str(position) if token == str(position) else f"{position} {show_token(token)}"


def _token_width(attribution: Attribution) -> int:
    """The width of a column of tokens, and at least that of its heading."""
    widest = max(cell_len(show_token(token)) for token in attribution.tokens)
    return min(max(widest, len("position")), TOKEN_WIDTH)


def _choose_rows(scores: NDArray[np.floating], top: int | None) -> list[int]:
    """All tokens in their order if they are few; otherwise the best, highest first."""
    if top is None and len(scores) <= MOST_ROWS:
        return list(range(len(scores)))
    return _best(scores, MOST_ROWS if top is None else top)


def _spread(n: int, fitting: int) -> list[int]:
    """Up to `fitting` of n indices, evenly spread, with the last one among them."""
    if n <= fitting:
        return list(range(n))
    return sorted({n - 1 - (i * n) // fitting for i in range(fitting)})


def heat_cell(score: float, highest: float) -> Text:
    """A score on a background that is darker the higher it is; plain text without colors."""
    share = min(max(score / highest, 0.0), 1.0)
    white, blue = (247, 251, 255), (8, 69, 148)
    red, green, last = (round(w + (b - w) * share) for w, b in zip(white, blue, strict=True))
    # Where black and white text stand out alike; 16 colors turn the shades below into light grey.
    # In numbers, because many a terminal's own black is grey.
    front = "rgb(255,255,255)" if share > 0.7 else "rgb(0,0,0)"
    return Text(f"{score:.3f}", style=f"{front} on rgb({red},{green},{last})")


def show_token(token: str) -> str:
    r"""A token as it can be printed on one line, whatever characters it has.

    >>> show_token("key"), show_token("")
    ('key', '""')
    >>> print(show_token("a\nb\x1b[31m"))
    a\nb\x1b[31m
    """
    if not token:
        return '""'
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in token)


CELL = 4  # "0.12"; one more where there are negative scores
WIDEST = 14  # longer tokens are cut
LABEL = 8  # "layer 12"
SETTINGS = ("heads", "residual_weight", "edges", "normalize")
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

    Scores are shaded where there is color. Tokens that do not fit go on in further blocks.
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
