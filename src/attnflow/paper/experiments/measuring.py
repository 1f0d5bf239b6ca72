"""What is measured of every text: attention methods of one position, and importance of tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from attnflow.attribution import Normalize
from attnflow.explainer import Edges
from attnflow.graph import AttentionGraph
from attnflow.models.inputs import EncodedText, collate, encode_text
from attnflow.models.loading import LoadedModel, load_model
from attnflow.models.prediction import resolve_explained
from attnflow.paper.experiments.keeping import Compute, Measured, hash_model, measure_in_chunks
from attnflow.paper.experiments.options import Options, Progress
from attnflow.paper.experiments.running import model_threads

METHODS = ("raw", "rollout", "flow")
TITLES = {"raw": "Raw", "rollout": "Rollout", "flow": "Flow"}


@dataclass(frozen=True)
class Attending:
    """How attention is turned into scores of tokens.

    edges, residual_weight, normalize: as in `explain` and the methods.
    rows: "own" takes the scores of the explained position; "highest" the highest score that any
    position gives to a token, each position's scores summing to 1, as one of the authors' scripts.
    """

    edges: Edges = "attention"
    residual_weight: float = 0.5
    normalize: Normalize = "none"
    rows: Literal["own", "highest"] = "own"


@dataclass(frozen=True, eq=False)
class Texts:
    """Encoded texts, the model they are for, and the classes that are right.

    labels: the right class of each text.
    """

    loaded: LoadedModel
    encoded: tuple[EncodedText, ...]
    labels: tuple[int, ...]
    options: Options

    @classmethod
    def encode(
        cls, loaded: LoadedModel, texts: Sequence[str], labels: Sequence[int], options: Options
    ) -> "Texts":
        """Turn texts into tokens."""
        encoded = tuple(encode_text(loaded, text) for text in texts)
        return cls(loaded, encoded, tuple(labels), options)

    def __len__(self) -> int:
        return len(self.encoded)

    @cached_property
    def special(self) -> "list[np.ndarray[Any, np.dtype[np.bool_]]]":
        """Whether each token of each text is special."""
        return [np.asarray(one.special, dtype=bool) for one in self.encoded]

    def first_of_each(self) -> list[int]:
        """The indices of texts without those that came before."""
        first: dict[str, int] = {}
        for i, one in enumerate(self.encoded):
            first.setdefault(one.text, i)
        return list(first.values())

    def attention(
        self, how: Attending | None = None, progress: Progress | None = None
    ) -> list[Measured]:
        """Raw attention, rollout and flow, [layers, tokens] each, of every text."""
        how = how or Attending()
        return self.measure(
            lambda chunk, _: attend(self.loaded, chunk, how, self.options.threads),
            {"attention": asdict(how)},
            progress,
        )

    def importance(
        self, progress: Progress | None = None, *, embeddings: bool = False
    ) -> list[Measured]:
        """Blank-out, all gradients and the prediction of every text; see `weigh_tokens`.

        embeddings: whether to add gradients for what the embedding module returns.
        """
        return self.measure(
            lambda chunk, labels: weigh_tokens(self.loaded, chunk, labels, embeddings=embeddings),
            {"importance": {"embeddings": embeddings}},
            progress,
        )

    def measure(
        self, compute: Compute, key: Mapping[str, Any], progress: Progress | None
    ) -> list[Measured]:
        """Whatever `compute` measures, chunk by chunk; see `measure_in_chunks`."""
        with model_threads(self.loaded, self.options.threads):
            return measure_in_chunks(
                self.encoded,
                self.labels,
                compute,
                key={"model": _hash(self.loaded), **key},
                cache=self.options.cache,
                progress=progress,
            )


def open_model(options: Options, default: str) -> LoadedModel:
    """Load the model of an experiment, to run where the options say."""
    loaded = load_model(options.model or default)
    if options.device is not None:
        loaded.model.to(options.device)
    return loaded


_hashes: dict[int, tuple[LoadedModel, str]] = {}


def _hash(loaded: LoadedModel) -> str:
    """The hash of a model, computed once; the model is kept, so that its id stays its own."""
    if id(loaded) not in _hashes:
        _hashes[id(loaded)] = (loaded, hash_model(loaded))
    return _hashes[id(loaded)][1]


def attend(
    loaded: LoadedModel, encoded: Sequence[EncodedText], how: Attending, threads: int | None
) -> list[Measured]:
    """Raw attention, rollout and flow, [layers, tokens] each, of every text."""
    return [
        _attribute(graph, resolve_explained(loaded, one, None), how, threads)
        for graph, one in zip(capture(loaded, encoded, how), encoded, strict=True)
    ]


def capture(
    loaded: LoadedModel, encoded: Sequence[EncodedText], how: Attending
) -> list[AttentionGraph]:
    """The attention graph of every text."""
    from attnflow.models.capture.api import capture_graphs

    graphs: list[AttentionGraph] = []
    size = 1 if loaded.takes_one_at_a_time else len(encoded)
    for start in range(0, len(encoded), size):
        batch = encoded[start : start + size]
        graphs += capture_graphs(
            loaded.model,
            collate(loaded, batch),
            tokens=[one.tokens for one in batch],
            residual_weight=how.residual_weight,
            edges=how.edges,
        )[0]
    return graphs


def _attribute(
    graph: AttentionGraph, position: int, how: Attending, threads: int | None
) -> Measured:
    from attnflow.methods.flow import flow
    from attnflow.methods.raw import raw_attention
    from attnflow.methods.rollout import rollout

    chosen: dict[str, Any] = {"normalize": how.normalize, "positions": position}
    if how.rows == "highest":
        chosen = {"normalize": "rows"}
    made = {
        "raw": raw_attention(graph, **chosen),
        "rollout": rollout(graph, **chosen),
        "flow": flow(graph, threads=threads, **chosen),
    }
    return {
        name: attribution.to_numpy().astype(np.float64).max(axis=1)
        for name, attribution in made.items()
    }


def weigh_tokens(
    loaded: LoadedModel,
    encoded: Sequence[EncodedText],
    labels: Sequence[int],
    *,
    embeddings: bool = False,
) -> list[Measured]:
    """What the model itself says of each token, [tokens] by name, and what it predicts.

    blank_out: p(predicted class) less that without the token, signed.
    l2, times_input, sum: gradients of the logit of the predicted class, 0 or more; with
    " of probability" those of its probability, with " of right class" of that class's logit, and
    with " after embeddings" for what the embedding module returns, if asked for.
    right: [1], whether the prediction is right. probability: [1], of the predicted class.
    """
    from attnflow.importance.batch import blank_out_texts, gradients_of_texts, predict_classes

    chances = predict_classes(loaded, encoded)
    predicted = chances.argmax(-1).tolist()
    rows = {"blank_out": blank_out_texts(loaded, encoded, predicted)}
    kinds: dict[str, tuple[Sequence[int], dict[str, Any]]] = {
        "": (predicted, {}),
        " of probability": (predicted, {"score": "probability"}),
        " of right class": (labels, {}),
    }
    if embeddings:
        kinds[" after embeddings"] = (predicted, {"place": "embeddings"})
    for kind, (targets, options) in kinds.items():
        made = gradients_of_texts(loaded, encoded, targets, **options)
        rows.update({name + kind: values for name, values in made.items()})
    rows["right"] = [np.asarray([float(p == y)]) for p, y in zip(predicted, labels, strict=True)]
    rows["probability"] = [row.max(keepdims=True) for row in chances]
    return [{name: rows[name][i] for name in rows} for i in range(len(encoded))]
