"""Explanations and attributions as text: tables for people, JSON and CSV for programs.

One position is printed as strips of scores under the tokens, many positions as a table per layer,
and an image as a map of its patches.
"""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any
from unicodedata import bidirectional, category

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text

from attnflow.attribution import Attribution
from attnflow.explanation import Explanation, ImageGrid
from attnflow.notes import explanation_notes
from attnflow.predictions import Answer
from attnflow.presentation import (
    color_range,
    color_share,
    describe_settings,
    row_ranges,
    title_with_edges,
)
from attnflow.token_text import readable_tokens, tell_apart

MOST_STEPS = 20  # tokens of an answer whose probabilities are listed
TOP_TOKENS = 5  # listed for one position without --top
TOP_PER_POSITION = 4  # listed for each of many positions without --top
MOST_TOKENS = 40  # printed as strips; longer inputs are printed as a table of the best tokens
MOST_ROWS = 20  # of that table without --top
TOKEN_WIDTH = 18  # of a column of tokens in a table, at most
SCORE_WIDTH = 6  # "0.123" and a space
INDEX_WIDTH = 6
CELL_WIDTH = 4  # "0.12" in a strip; one more for negative scores
LABEL_WIDTH = 8  # "layer 12"
LONGEST_TOKEN = 14  # in a strip; longer ones are cut
MAP_CELL_WIDTH = 5  # "0.012" in the map of an image
LEFT_TO_RIGHT = "\u200e"  # the left-to-right mark, which has no width


def to_json(
    explanation: Explanation, attributions: Sequence[Attribution], top: int | None = None
) -> str:
    """One JSON object: text, tokens, prediction, position, and scores and notes of each method.

    top: list the k best tokens of each row instead of all scores.
    """
    prediction: dict[str, Any] | None = None
    if explanation.prediction is not None:
        prediction = asdict(explanation.prediction)
    return json.dumps(
        {
            "text": explanation.text,
            "model": explanation.model,
            "tokens": readable_tokens(explanation.tokens, text=explanation.text),
            "pieces": explanation.tokens,
            "position": explanation.position,
            "prediction": prediction,
            "answer": explanation.answer and asdict(explanation.answer),
            "segments": [asdict(segment) for segment in explanation.segments],
            "offsets": explanation.offsets,
            "attributions": [
                attribution_to_dict(attribution, top)
                | {"notes": list(_list_notes(explanation, attribution))}
                | _describe_check(explanation, attribution.method)
                for attribution in attributions
            ],
        }
    )


def _describe_check(explanation: Explanation, method: str) -> dict[str, Any]:
    """The check of a method, if there is one, with types that JSON has."""
    if method not in explanation.checks:
        return {}
    check = explanation.checks[method]
    return {"check": {**asdict(check), "compared": dict(check.compared)}}


def _list_notes(explanation: Explanation, attribution: Attribution) -> Iterator[dict[str, Any]]:
    """The notes on each row that has some."""
    for layer in attribution.layers:
        for position in attribution.positions:
            notes = explanation_notes(explanation, attribution, position=position, layer=layer)
            if notes:
                yield {"layer": layer, "position": position, "notes": notes}


def attribution_to_dict(attribution: Attribution, top: int | None) -> dict[str, Any]:
    """Scores, labels and settings for JSON; with `top`, the k best tokens instead of all scores."""
    scores = {"scores": attribution.to_numpy().tolist()}
    return {
        "method": attribution.method,
        "settings": dict(attribution.settings),
        "tokens": attribution.labels,
        "pieces": attribution.tokens,
        "layers": attribution.layers,
        "positions": attribution.positions,
        "rows": [asdict(row) for row in attribution.rows],
        "columns": attribution.columns,
        "offsets": attribution.offsets,
        **(scores if top is None else {"top": list(_records(attribution, top))}),
    }


def to_csv(attributions: Sequence[Attribution], top: int | None = None) -> str:
    """One line for each method, layer, position and token; with `top`, the k best tokens only."""
    text = io.StringIO()
    fields = ["method", "layer", "position", "position_token", "index", "token", "piece"]
    fields += ["start", "end", "score"]
    writer = csv.DictWriter(text, fields, lineterminator="\n")
    writer.writeheader()
    for attribution in attributions:
        for record in _records(attribution, top):
            writer.writerow({"method": attribution.method, **record})
    return text.getvalue().rstrip("\n")


def _records(attribution: Attribution, top: int | None) -> Iterator[dict[str, Any]]:
    offsets = attribution.offsets or (None,) * len(attribution.tokens)
    for layer, rows in zip(attribution.layers, attribution.to_numpy(), strict=True):
        for position, row in zip(attribution.positions, rows, strict=True):
            for i in _highest(row, top) if top is not None else range(len(row)):
                index = attribution.columns[i]
                start, end = offsets[index] or (None, None)
                yield {
                    "layer": layer,
                    "position": position,
                    "position_token": attribution.row_labels[position],
                    "index": index,
                    "token": attribution.labels[index],
                    "piece": attribution.tokens[index],
                    "start": start,
                    "end": end,
                    "score": float(row[i]),
                }


def _highest(row: NDArray[np.floating], k: int) -> list[int]:
    return [int(i) for i in np.argsort(-row, kind="stable")[:k]]


def print_explanation(
    explanation: Explanation,
    attributions: Sequence[Attribution],
    top: int | None = None,
    console: Console | None = None,
) -> None:
    """Print the prediction, and the scores of each method at the width of the console."""
    console = console or Console(highlight=False)
    print_heading(explanation, console)
    for attribution in attributions:
        print_attribution(attribution, top, console, explanation=explanation)
        if attribution.method in explanation.checks:
            console.print(
                Text(f"check (last layer): {explanation.checks[attribution.method]}", style="bold")
            )


def print_attribution(
    attribution: Attribution,
    top: int | None,
    console: Console,
    *,
    explanation: Explanation | None = None,
) -> None:
    """Print the scores of one method: strips, tables, or the map of an image.

    explanation: that of the attribution, for the image and for notes on the last layer.
    """
    image = explanation.image if explanation is not None else None
    console.print()
    _print_title(attribution, console)
    if image is not None and explanation is not None:
        _print_image_map(explanation, image, attribution, top or TOP_TOKENS, console)
    elif len(attribution.positions) == 1 and len(attribution.columns) <= MOST_TOKENS:
        _print_strips(attribution, top or TOP_TOKENS, console)
    elif len(attribution.positions) == 1:
        _print_best_tokens(attribution, top or MOST_ROWS, console)
    else:
        _print_tables(attribution, top or TOP_PER_POSITION, console)
    if explanation is not None:
        _print_notes(explanation, attribution, console)


def print_heading(explanation: Explanation, console: Console) -> None:
    """Print the model, its prediction, and the explained position."""
    if explanation.model:
        console.print(Text(f"model: {explanation.model}", style="dim"))
    prediction = explanation.prediction
    if explanation.answer is not None:
        _print_answer(explanation.answer, console)
        return
    if prediction is not None:
        best, *others = prediction.top
        text = Text(f"{prediction.kind}: ")
        text.append(f"{printable(best.label)} {best.probability:.3f}", style="bold")
        for other in others:
            text.append(f", {printable(other.label)} {other.probability:.3f}", style="dim")
        if prediction.target.index != best.index:
            target = prediction.target
            text.append(f"; explaining {printable(target.label)} {target.probability:.3f}")
        console.print(text)
    elif explanation.model:
        console.print("no prediction: the model is a plain encoder")
    labels = readable_tokens(explanation.tokens, text=explanation.text)
    token = printable(labels[explanation.position])
    count = len(explanation.tokens)
    console.print(Text(f"explained position: {explanation.position} {token} (of {count} tokens)"))


def _print_answer(answer: Answer, console: Console) -> None:
    """Print an answer, and how probable its tokens are."""
    how = "given" if answer.settings.get("given") else f"generated, seed {answer.settings['seed']}"
    console.print(Text(f"answer ({len(answer)} tokens, {how}): ") + Text(answer.text, "bold"))
    shown = answer.steps[:MOST_STEPS]
    text = Text("probabilities: ", "dim")
    for i, step in enumerate(shown):
        text.append(", " if i else "")
        text.append(f"{printable(step.target.label)} {step.target.probability:.2f}")
        if step.top[0].index != step.target.index:
            best = step.top[0]
            text.append(f" (best: {printable(best.label)} {best.probability:.2f})", "dim")
    rest = len(answer) - len(shown)
    text.append(f", and {rest} more" if rest else "")
    console.print(text)


def _print_title(attribution: Attribution, console: Console) -> None:
    numbers = attribution.layers
    layers = f"layer {numbers[0]}" if len(numbers) == 1 else f"layers {numbers[0]} to {numbers[-1]}"
    title = title_with_edges(attribution.method, attribution.settings)
    console.print(Text(f"{title}, {layers}", style="bold"))
    text = " · ".join(describe_settings(attribution.settings))
    if text:
        console.print(Text(text, style="dim"))


def _print_strips(attribution: Attribution, top: int, console: Console) -> None:
    """Print the tokens, and under them the scores of one position at each layer.

    Scores are shaded if the console has colors. Tokens that do not fit continue in further blocks.
    """
    scores = attribution.to_numpy()[:, 0, :]  # [layers, tokens]
    ranges = row_ranges(scores) or [color_range(scores)] * len(scores)
    labels = [printable(attribution.labels[i]) for i in attribution.columns]
    least = CELL_WIDTH + int(scores.min(initial=0.0) < 0)
    widths = [min(max(cell_len(label), least), LONGEST_TOKEN) for label in labels]
    for block in split_blocks(widths, console.width - LABEL_WIDTH):
        header = Text(" " * LABEL_WIDTH)
        for i in block:
            header.append(" " + _fit(labels[i], widths[i]))
        console.print(header, no_wrap=True, overflow="ignore", crop=False)
        for layer, row, ends in zip(attribution.layers, scores, ranges, strict=True):
            line = Text(f"layer {layer}".ljust(LABEL_WIDTH))
            for i in block:
                line.append(" ")
                line.append(f"{row[i]:.2f}".ljust(widths[i]), style=shade(float(row[i]), *ends))
            console.print(line, no_wrap=True, overflow="ignore", crop=False)
    _print_ranges(ranges, console)
    names = tell_apart([printable(label) for label in attribution.labels])
    best = ", ".join(f"{names[i]} {score:.3f}" for _, i, score in attribution.top(top))
    console.print(Text(f"top tokens at layer {attribution.layers[-1]}: {best}"))


def split_blocks(widths: Sequence[int], room: int) -> Iterator[list[int]]:
    """Split columns into blocks that fit into the room; each has at least one column.

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


def _fit(label: str, width: int) -> str:
    """Cut or pad a token to a width; right-to-left text is isolated from its neighbors."""
    if cell_len(label) > LONGEST_TOKEN:
        label = set_cell_size(label, LONGEST_TOKEN - 1) + "\u2026"
    text = set_cell_size(label, width)
    is_right_to_left = any(bidirectional(c) in ("R", "AL") for c in label)
    return text + LEFT_TO_RIGHT if is_right_to_left else text


def _print_best_tokens(attribution: Attribution, top: int, console: Console) -> None:
    """Print the best tokens at the last layer as rows, with a column for each layer that fits."""
    scores = attribution.to_numpy()[:, 0, :]  # [layers, tokens]
    unranked = set(attribution.settings.get("unranked", ()))
    ranked = [i for i, column in enumerate(attribution.columns) if column not in unranked]
    rows = [ranked[k] for k in _highest(scores[-1][ranked], top)]
    fitting = max(1, (console.width - _token_width(attribution) - INDEX_WIDTH) // SCORE_WIDTH)
    columns = _spread(len(attribution.layers), fitting)
    shown = scores[np.ix_(columns, rows)]
    ranges = row_ranges(shown) or [color_range(shown)] * len(shown)
    table = _new_table()
    table.add_column("", justify="right")
    table.add_column("token", no_wrap=True, max_width=TOKEN_WIDTH)
    for i in columns:
        table.add_column(str(attribution.layers[i]), justify="right", no_wrap=True)
    for token in rows:
        index = attribution.columns[token]
        values = [float(scores[i, token]) for i in columns]
        cells = [
            Text(f"{value:.3f}", shade(value, *ends))
            for value, ends in zip(values, ranges, strict=True)
        ]
        table.add_row(str(index), Text(printable(attribution.labels[index])), *cells)
    console.print(table)
    _print_ranges(ranges, console)
    if len(columns) < len(attribution.layers):
        console.print(
            f"{len(columns)} of {len(attribution.layers)} layers. Use --layer N for one of them, "
            "--format csv for all."
        )
    if len(rows) < len(ranked):
        console.print(
            f"Top {len(rows)} of {len(ranked)} tokens at layer {attribution.layers[-1]}. "
            f"Use --top {len(ranked)} for all."
        )


def _spread(n: int, count: int) -> list[int]:
    """Up to `count` of n indices, evenly spread, including the last."""
    if n <= count:
        return list(range(n))
    return sorted({n - 1 - (i * n) // count for i in range(count)})


def _new_table(title: str | None = None) -> Table:
    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=None,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )


def _print_tables(attribution: Attribution, top: int, console: Console) -> None:
    """Print a table for each layer: positions as rows, each with its best tokens."""
    scores = attribution.to_numpy()
    width = _token_width(attribution)
    fitting = max(1, (console.width - width - INDEX_WIDTH) // (width + 1 + SCORE_WIDTH))
    count = min(top, fitting, scores.shape[-1])
    unranked = set(attribution.settings.get("unranked", ()))
    ranked = [i for i, column in enumerate(attribution.columns) if column not in unranked]
    names = tell_apart([printable(label) for label in attribution.labels])
    for layer, rows in zip(attribution.layers, scores, strict=True):
        ends = color_range(rows)
        table = _new_table(title=f"layer {layer}")
        table.add_column("", justify="right")
        table.add_column("position", no_wrap=True, max_width=TOKEN_WIDTH)
        for _ in range(count):
            table.add_column("token", no_wrap=True, max_width=TOKEN_WIDTH)
            table.add_column("score", justify="right", no_wrap=True)
        for position, row in zip(attribution.positions, rows, strict=True):
            cells: list[Text] = []
            for i in (ranked[k] for k in _highest(row[ranked], count)):
                label = names[attribution.columns[i]]
                score = float(row[i])
                cells += [Text(label), Text(f"{score:.3f}", shade(score, *ends))]
            table.add_row(str(position), Text(printable(attribution.row_labels[position])), *cells)
        console.print(table)
    if count < scores.shape[-1]:
        console.print(
            f"Top {count} of {scores.shape[-1]} tokens for each position. Use --format csv for all."
        )


def _token_width(attribution: Attribution) -> int:
    """The width of a column of tokens; at least the width of its heading."""
    widest = max(cell_len(printable(label)) for label in attribution.labels)
    return min(max(widest, len("position")), TOKEN_WIDTH)


def _print_image_map(
    explanation: Explanation,
    image: ImageGrid,
    attribution: Attribution,
    top: int,
    console: Console,
) -> None:
    """Print the best patches of each layer, and the last layer as a map if it fits the console.

    If the image comes with a text, the best of the other tokens too.
    """
    first = image.first
    if attribution.tokens != explanation.tokens:  # words; each patch is one
        first = explanation.words.word_of(first)
    patches = range(first, first + image.rows * image.columns)
    axes = [axis for axis, index in enumerate(attribution.columns) if index in patches]
    others = [axis for axis, index in enumerate(attribution.columns) if index not in patches]
    grid = range(image.first, image.first + len(patches))
    has_text = not all(mark or i in grid for i, mark in enumerate(explanation.special))
    names = [attribution.tokens[index] for index in attribution.columns]
    for layer, row in zip(attribution.layers, attribution.to_numpy()[:, 0, :], strict=True):
        scores = row[axes]
        best = _list_best([names[axis] for axis in axes], scores, top)
        if has_text:
            rest = _list_best([printable(names[axis]) for axis in others], row[others], top)
            best += f"; other tokens: {rest}"
        console.print(Text(f"layer {layer}, all patches {scores.sum():.3f}, top patches: {best}"))
    if image.columns * (MAP_CELL_WIDTH + 1) > console.width:
        return
    ends = color_range(scores)
    for row in scores.reshape(image.rows, image.columns):
        line = Text()
        for score in row:
            line.append(f"{score:.3f}", style=shade(float(score), *ends))
            line.append(" ")
        console.print(line, no_wrap=True)
    _print_ranges([ends], console)


def _list_best(names: Sequence[str], scores: Any, top: int) -> str:
    """The best names with their scores."""
    return ", ".join(f"{names[i]} {scores[i]:.3f}" for i in _highest(scores, top))


def _print_ranges(ranges: Sequence[tuple[float, float]], console: Console) -> None:
    """Print which scores the colors stand for, if the console has colors."""
    if console.color_system is None:
        return
    if len(set(ranges)) == 1:
        low, high = ranges[0]
        console.print(Text(f"colors: {low:.3g} to {high:.3g}", style="dim"))
    else:
        text = "colors: each layer from its lowest to its highest score"
        console.print(Text(text, style="dim"))


def _print_notes(explanation: Explanation, attribution: Attribution, console: Console) -> None:
    """Print the notes on the explained position, or the only one, at the last layer."""
    position: int | None = None
    if len(attribution.positions) > 1 and attribution.rows:
        return
    if len(attribution.positions) > 1:
        merged = attribution.tokens != explanation.tokens
        position = explanation.position
        position = explanation.words.word_of(position) if merged else position
        if position not in attribution.positions:
            return
    layer = attribution.layers[-1]
    notes = explanation_notes(explanation, attribution, position=position, layer=layer)
    if notes:
        where = f"layer {layer}" if position is None else f"position {position} at layer {layer}"
        text = printable(" ".join(notes))
        console.print(Text.assemble((f"note ({where}): ", "yellow"), text))


def shade(score: float, low: float, high: float) -> str:
    """The style of a score: the higher, the darker its background. low, high: the color range."""
    share = float(color_share(score, low, high))
    white, blue = (247, 251, 255), (8, 69, 148)
    red, green, last = (round(w + (b - w) * share) for w, b in zip(white, blue, strict=True))
    # Black and white text have equal contrast at about 0.7. RGB, because the named black of many
    # terminals is gray.
    front = "rgb(255,255,255)" if share > 0.7 else "rgb(0,0,0)"
    return f"{front} on rgb({red},{green},{last})"


def printable(token: str) -> str:
    r"""A token on one line, with escapes for characters that cannot be printed.

    Spaces alone are shown as \u2423, and a mark without its letter on a dotted circle.

    >>> printable("key"), printable(""), printable("  "), printable("\u0301")
    ('key', '""', '\u2423\u2423', '\u25cc\u0301')
    >>> print(printable("a\nb\x1b[31m"))
    a\nb\x1b[31m
    """
    if not token:
        return '""'
    if not token.strip(" "):
        return "\N{OPEN BOX}" * len(token)
    if category(token[0]).startswith("M"):
        token = "\N{DOTTED CIRCLE}" + token
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in token)
