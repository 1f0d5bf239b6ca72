"""One run of a model on a batch of texts, and what it says of each: graph, prediction and answer.

Import this module after a model is loaded, because it imports torch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
import torch
from array_api_compat import array_namespace
from torch import Tensor

from attnflow.arrays import to_numpy
from attnflow.edges.registry import EDGES
from attnflow.errors import InputError
from attnflow.explanation import Explanation
from attnflow.graph import AttentionGraph
from attnflow.head_merge import Heads
from attnflow.layers import ModelResidual
from attnflow.models.capture.api import capture_graphs
from attnflow.models.capture.merge import KeptHeads
from attnflow.models.capture.rollout_capture import capture_rollout
from attnflow.models.generation import AnsweredText
from attnflow.models.inputs import EncodedText, collate
from attnflow.models.loading import LoadedModel, display_name
from attnflow.models.prediction import (
    answer_scores,
    find_pooled,
    logits_of_batch,
    predict,
    predict_answer,
    predict_positions,
    resolve_contrast,
    resolve_explained,
)
from attnflow.predictions import Answer, Prediction
from attnflow.selection import Position
from attnflow.unkept import UnkeptLayers

OF_ROLLOUT = ("to_layer", "normalize")  # settings of a rollout, not of its graph


class GraphOptions(TypedDict):
    """How the attention graph is built; see `capture_graphs`."""

    residual_weight: ModelResidual | None
    heads: Heads
    edges: str


@dataclass(frozen=True)
class Explained:
    """What is explained: a position and the score of a target there, or the answers."""

    position: Position | None
    target: int | str | None
    against: int | str | None
    answers: Sequence[AnsweredText] = ()
    keep_graph: bool = True


class TextRun:
    """A batch of texts that runs through a model together.

    answers: one for each text, or none at all. pooled: the positions of each text that are
    explained together, if the model pools them. positions: the one of each text that is explained.
    """

    def __init__(
        self, loaded: LoadedModel, texts: Sequence[EncodedText], explained: Explained
    ) -> None:
        self.loaded = loaded
        self.texts = texts
        self.explained = explained
        by_text = {id(answer.encoded): answer for answer in explained.answers}
        self.answers = [by_text[id(text)] for text in texts] if by_text else []
        self.pooled = [find_pooled(loaded, text, explained.position) for text in texts]
        self.positions = [self._find_position(i) for i in range(len(texts))]

    def explanations(
        self, options: GraphOptions, kept_heads: KeptHeads | None
    ) -> list[Explanation]:
        """Run the model, and return an explanation of each text."""
        if self.explained.keep_graph:
            graphs, output = self._capture_graphs(options, kept_heads)
        else:
            kept_heads = None
            graphs, output = self._capture_rows(options)
        answers = self._read_answers(graphs, output)
        predictions = [a.steps[0] for a in answers] if answers else self._predict(output)
        heads = None if kept_heads is None else kept_heads.examples
        return [
            Explanation(
                text=text.text,
                tokens=text.tokens,
                special=text.special,
                words=text.words,
                position=self.positions[i],
                prediction=predictions[i],
                predictions=self._predict_positions(output, i),
                graph=graphs[i],
                heads=None if heads is None else heads[i],
                model=display_name(self.loaded.name),
                offsets=text.offsets,
                answer=answers[i] if answers else None,
                segments=text.segments,
                positions=self.pooled[i],
                image=getattr(text, "image", None),
            )
            for i, text in enumerate(self.texts)
        ]

    def _find_position(self, i: int) -> int:
        """The position that is explained: for an answer, the one that predicts its first token."""
        if self.answers:
            return self.answers[i].first - 1
        if places := self.pooled[i]:
            return places[0]
        return resolve_explained(self.loaded, self.texts[i], self.explained.position)

    def _inputs(self) -> dict[str, Any]:
        inputs = collate(self.loaded, self.texts)
        if self.loaded.task == "seq2seq":  # with a cache, FSMT applies no causal mask
            inputs["use_cache"] = False
        return inputs

    def _capture_graphs(
        self, options: GraphOptions, kept_heads: KeptHeads | None
    ) -> tuple[list[AttentionGraph], Any]:
        """The graphs of all texts, and the output of the model."""
        return capture_graphs(
            self.loaded.model,
            self._inputs(),
            tokens=[text.tokens for text in self.texts],
            target=gradient_target(options["edges"], self.loaded, self._score_targets),
            kept_heads=kept_heads,
            **options,
        )

    def _capture_rows(self, options: GraphOptions) -> tuple[list[AttentionGraph], Any]:
        """The rollout of what is explained, as a graph without weights, and the output."""
        [text] = self.texts
        if self.answers:
            [answer] = self.answers
            rows = range(answer.first - 1, answer.first - 1 + len(answer.ids))
        residual: Any = options["residual_weight"]
        [result], output = capture_rollout(
            self.loaded.model,
            self._inputs(),
            tokens=[text.tokens],
            heads=options["heads"],
            residual_weight=0.5 if residual is None else residual,
            positions=tuple(rows) if self.answers else self.pooled[0] or (self.positions[0],),
        )
        [n_layers] = result.layers
        settings = dict(result.settings)
        weights = settings["residual_weight"]
        layers = UnkeptLayers(n_layers, result.scores[0], result.positions)
        graph = AttentionGraph(
            weights=layers,
            attention=layers,
            tokens=text.tokens,
            residual_weights=tuple(weights) if isinstance(weights, list) else (weights,) * n_layers,
            causal=self.loaded.is_causal,
            widths=(len(text.tokens),) * (n_layers + 1),
            settings={name: settings[name] for name in settings if name not in OF_ROLLOUT},
        )
        return [graph], output

    def _score_targets(self, output: Any) -> Tensor:
        """The score of each text's target, [texts], for gradient edges."""
        if self.answers:
            scores: Tensor = answer_scores(self.loaded, output.logits, self.answers)
            return scores
        logits = logits_of_batch(self.loaded, output.logits, self.texts, self.positions)
        return torch.stack([self._contrast(row).score(row) for row in logits])

    def _contrast(self, row: Tensor) -> Any:
        return resolve_contrast(self.loaded, row, self.explained.target, self.explained.against)

    def _predict(self, output: Any) -> list[Prediction | None]:
        """The prediction for each text at its position; none of a plain encoder."""
        if self.loaded.task == "encoder":
            return [None] * len(self.texts)
        logits = logits_of_batch(self.loaded, output.logits, self.texts, self.positions)
        for row in logits:
            self._contrast(row)  # checks the names
        return [predict(self.loaded, row, self.explained.target) for row in logits]

    def _predict_positions(self, output: Any, i: int) -> tuple[Prediction | None, ...]:
        """The predictions of a text at all its positions, if the model makes such."""
        logits = getattr(output, "logits", None)
        if logits is None:
            return ()
        return predict_positions(self.loaded, logits[i], len(self.texts[i].tokens))

    def _read_answers(self, graphs: Sequence[AttentionGraph], output: Any) -> list[Answer]:
        """The answers, with the predictions of their tokens."""
        if not self.answers:
            return []
        for graph, answer in zip(graphs, self.answers, strict=True):
            self._check_causal(graph, answer.first)
        return [
            answer.read(predict_answer(self.loaded, logits, answer))
            for logits, answer in zip(output.logits, self.answers, strict=True)
        ]

    def _check_causal(self, graph: AttentionGraph, first: int) -> None:
        """Raise InputError if a position sees later tokens of the answer.

        first: the first token of the answer.
        """
        if graph.causal:
            return
        seen = array_namespace(graph.weights).any(graph.weights[:, :, first:] > 0, axis=0)
        later = np.triu(to_numpy(seen), k=1 - first).any(axis=1)  # [queries, tokens of the answer]
        if later.any():
            raise InputError(
                f"position {int(later.argmax())} of {self.loaded.name} sees later tokens of the "
                "answer",
                expected="a decoder whose positions see earlier tokens only",
                fix="Leave out generate and continuation.",
            )


def gradient_target(
    edges: str, loaded: Any, score_targets: Callable[[Any], Tensor]
) -> Callable[[Any], Tensor] | None:
    """The target of gradient edges; None for edges that need no gradient.

    loaded: a LoadedModel or LoadedImageModel.
    """
    if not EDGES[edges].needs_gradient:
        return None
    if loaded.task == "encoder":
        raise InputError(
            f"edges is {edges!r}, and {loaded.name} is an encoder that predicts nothing",
            expected="a classifier or a language model, whose prediction has a gradient",
            fix="Use edges='attention', or load the model with its head.",
        )
    return score_targets
