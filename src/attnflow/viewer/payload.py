"""What the viewer is given: a header in JSON, and arrays of float16 by name, made when asked for.

The names and shapes are those of `docs/viewer.md`. Nothing here knows of notebooks, files or
servers; those are the hosts.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnflow.arrays import to_numpy
from attnflow.errors import InputError, SelectionError, expect_kind
from attnflow.explanation import Explanation, Progress
from attnflow.selection import resolve_layer, resolve_position
from attnflow.viewer.flow_rows import flow_of, flow_rows, n_pairs
from attnflow.viewer.header import describe, name_examples, shorten

FORMAT = 1
NAMES = ("attention", "flow", "heads", "weights")


@dataclass(frozen=True, eq=False)
class Payload:
    """Explanations as the viewer reads them.

    examples: one, or several to compare. title: what the page is called.
    """

    examples: tuple[Explanation, ...]
    title: str

    def header(self) -> dict[str, Any]:
        """All but the arrays, as JSON can write it."""
        names = name_examples(self.examples)
        described = [
            {"name": name, **describe(i, one)}
            for i, (name, one) in enumerate(zip(names, self.examples, strict=True))
        ]
        return {"format": FORMAT, "title": self.title, "examples": described}

    def header_json(self) -> str:
        """The header as JSON in ASCII, which holds half surrogate pairs that UTF-8 cannot."""
        return json.dumps(self.header(), allow_nan=False, separators=(",", ":"))

    def chunk_keys(self) -> list[str]:
        """The names of all arrays."""
        return [key for one in self.header()["examples"] for key in one["chunks"]]

    def chunk(self, key: str) -> bytes:
        """One array, float16 in C order, least byte first.

        Raises SelectionError if there is none of this name.
        """
        example, name, layer = self._find(key)
        if name == "attention":
            array = to_numpy(example.graph.attention)[layer - 1]
        elif name == "weights":
            array = to_numpy(example.graph.weights)[layer - 1]
        elif name == "heads" and example.heads is not None:
            array = to_numpy(example.heads.layers[layer - 1])
        else:
            array = flow_of(example).to_numpy()[layer - 1]
        return np.ascontiguousarray(array, dtype="<f2").tobytes()

    def flow(self, example: int, position: int, layer: int) -> NDArray[np.float32]:
        """The flow of a position at a layer, counted from 1, to each token, [tokens].

        Raises SelectionError if there is no such example, position or layer.
        """
        if not 0 <= example < len(self.examples):
            raise _no_example(example, len(self.examples))
        one = self.examples[example]
        number = resolve_layer(one.graph.n_layers, layer)
        place = resolve_position(one.tokens, len(one.tokens), position)
        rows = flow_rows(one)
        if rows is None or place in rows:
            row = flow_of(one).row(position=place, layer=number)
        else:
            row = one.flow(layers=number, positions=place).row(position=place, layer=number)
        return np.ascontiguousarray(row, dtype="<f4")

    def compute(self, progress: Progress | None = None) -> None:
        """Compute the flows that arrays are made of. progress: pairs done, pairs in all."""
        sizes = [n_pairs(one) for one in self.examples]
        for i, one in enumerate(self.examples):
            before = sum(sizes[:i])
            report = None
            if progress is not None:
                # Bound now, since `before` changes.
                def report(done: int, _: int, before: int = before) -> None:
                    progress(before + done, sum(sizes))

            flow_of(one, report)

    def n_bytes(self) -> int:
        """How much memory the arrays take."""
        return sum(_n_bytes(one) for one in self.examples)

    def _find(self, key: str) -> tuple[Explanation, str, int]:
        parts = key.split("/")
        numbers = [part for part in (parts[0], parts[-1]) if part.isascii() and part.isdigit()]
        if len(parts) == 3 and len(numbers) == 2 and len(key) < 40 and parts[1] in NAMES:
            example, layer = int(parts[0]), int(parts[2])
            if example < len(self.examples):
                found = self.examples[example]
                kept = parts[1] != "heads" or found.heads is not None
                if kept and 1 <= layer <= found.graph.n_layers:
                    return found, parts[1], layer
        raise SelectionError(
            f"there is no array {key[:40]!r}; expected one that the header names, such as "
            "'0/attention/1'. Ask for one of those."
        )


def make_payload(explanations: Sequence[Explanation], *, title: str | None = None) -> Payload:
    """Take explanations for the viewer, with their arrays on the host as NumPy.

    title: if not given, the text of the first.
    Raises InputError if there is none, or something else among them.
    """
    if not explanations:
        raise InputError(
            "no explanation was given; expected at least one. Make one: attnflow.explain(text)."
        )
    for one in explanations:
        expect_kind(one, Explanation, "Make one: attnflow.explain(text).")
    found = explanations[0].text or " ".join(explanations[0].tokens)
    shown = shorten(found, 80) if title is None else title
    return Payload(tuple(one.on_host() for one in explanations), shown)


def _n_bytes(explanation: Explanation) -> int:
    graph, heads = explanation.graph, explanation.heads
    arrays = [graph.weights, graph.attention, *(() if heads is None else heads.layers)]
    arrays += [attribution.scores for attribution in explanation.computed]
    image = 0 if explanation.image is None else len(explanation.image.png)
    return image + sum(to_numpy(array).nbytes for array in arrays)


def _no_example(example: int, n: int) -> SelectionError:
    return SelectionError(
        f"there is no example {example}; expected 0 to {n - 1}. Ask for one of these."
    )
