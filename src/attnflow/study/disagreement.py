"""Disagreement: the texts on which explanations disagree most, with their scores as colors."""

import re
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from attnflow.study.explainers import explainer_title
from attnflow.study.study import Study
from attnflow.study.table import find_disagreements
from attnflow.viewer.preview import visible

COUNT = 5  # texts
SHOWN = 4  # explainers
PATCH = re.compile(r"patch (\d+),(\d+)")


def describe_disagreements(study: Study, explainers: Sequence[str]) -> str:
    """Return the HTML of the texts on which some explainers agree least."""
    chosen = list(explainers)[:SHOWN]
    found = find_disagreements(study, chosen, COUNT) if len(chosen) > 1 else []
    if not found:
        return "<p>There are no two explanations to compare.</p>"
    intro = (
        "<p>The texts with the lowest rank correlation between these explanations, the best of "
        "each kind. Blue: for the prediction; orange with dots below: against it. Colors are "
        "relative to the strongest score of a line. Doubly underlined: evidence, where it is "
        "known.</p>"
    )
    return intro + "".join(_describe_text(study, index, chosen) for index in found)


def _describe_text(study: Study, index: int, explainers: Sequence[str]) -> str:
    """Return a text with the scores of some explainers."""
    columns = study.columns
    rows = np.flatnonzero(columns["index"] == index)
    first = rows[0]
    lines = []
    for name in explainers:
        scored = [i for i in rows if columns["explainer"][i] == name]
        if scored and columns["scores"][scored[0]] is not None:
            row = scored[0]
            shown = paint(columns["tokens"][row], columns["scores"][row], columns["evidence"][row])
            lines.append(f"<dt>{escape(visible(explainer_title(name)))}</dt><dd>{shown}</dd>")
    label = escape(visible(columns["label"][first]))
    name = escape(visible(str(columns["id"][first])))
    chance = f"p = {columns['probability'][first]:.3f}"
    return (
        f"<article><h3>Text {name}: predicted {label}, {chance}</h3>"
        f'<dl class="scores">{"".join(lines)}</dl></article>'
    )


def paint(tokens: Sequence[str], scores: Any, evidence: Any = None) -> str:
    """Return tokens colored by their scores, relative to the strongest; patches as a grid."""
    values = np.asarray(scores, dtype=np.float64)
    top = float(np.abs(values).max(initial=0.0)) or 1.0
    places = [PATCH.fullmatch(str(token)) for token in tokens]
    grid = bool(places) and all(places)
    parts = []
    for i, (token, value) in enumerate(zip(tokens, values, strict=True)):
        kind = "minus" if value < 0 else "plus"
        known = evidence is not None and bool(evidence[i])
        style = f"--s:{abs(value) / top:.2f}"
        place = places[i]
        if grid and place is not None:
            style += f";grid-area:{int(place[1]) + 1}/{int(place[2]) + 1}"
        text = escape(visible(str(token)))
        parts.append(
            f'<span class="{kind}{" evidence" if known else ""}" style="{style}" '
            f'title="{text}: {value:.4g}">{"" if grid else text}</span>'
        )
    return f'<div class="{"patches" if grid else "tokens"}">{" ".join(parts)}</div>'
