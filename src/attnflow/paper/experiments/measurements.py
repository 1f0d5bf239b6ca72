"""Measurements of texts: attention scores and token importance, cached on disk.

`LabeledTexts` measures texts in chunks. A chunk is one cache file, named by a hash of everything
that its numbers depend on: the weights of the model, the tokens, the labels, the settings and the
version of the format. Files are written atomically, so an interrupted run resumes after the last
finished chunk. They contain numbers only, no text.
"""

import io
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attnflow.attribution import Normalize
from attnflow.errors import InputError
from attnflow.graph import AttentionGraph
from attnflow.methods.registry import METHODS
from attnflow.models.inputs import EncodedText, collate, encode_text
from attnflow.models.loading import LoadedModel, load_model
from attnflow.models.prediction import resolve_explained
from attnflow.optional import import_optional
from attnflow.paper.experiments.experiment import PAPER_METHODS, Options
from attnflow.progress import Progress
from attnflow.storage import write_atomic

# The arrays measured for one text, by name; the last axis is that of the tokens.
Measurement: TypeAlias = dict[str, NDArray[np.float64]]
# Measures some texts, given their true classes.
Measure: TypeAlias = Callable[[Sequence[EncodedText], Sequence[int]], Sequence[Measurement]]

CHUNK_SIZE = 50  # texts
FORMAT = 3  # increase it when the same settings give other numbers
LENGTHS = "lengths of "  # prefix of the arrays in a chunk that hold the lengths of texts
SMALL_MODEL = 10_000_000  # weights; a smaller model runs on one thread by default
STEPS = 1000  # steps of progress in each stage


@dataclass(frozen=True)
class ScoreSettings:
    """How attention is turned into token scores.

    edges, residual_weight, normalize: as in `explain` and the methods.
    rows: "explained" uses the scores of the explained position; "max" uses the maximum over all
    positions, with the scores of each position normalized to sum to 1, as in one of the authors'
    scripts.
    """

    edges: str = "attention"
    residual_weight: float | None = None
    normalize: Normalize = "none"
    rows: Literal["explained", "max"] = "explained"


@dataclass(frozen=True, eq=False)
class LabeledTexts:
    """Encoded texts, their true classes, and the model to measure them with."""

    loaded: LoadedModel
    encoded: tuple[EncodedText, ...]
    labels: tuple[int, ...]
    options: Options

    @classmethod
    def encode(
        cls, loaded: LoadedModel, texts: Sequence[str], labels: Sequence[int], options: Options
    ) -> "LabeledTexts":
        """Tokenize texts."""
        encoded = tuple(encode_text(loaded, text) for text in texts)
        return cls(loaded, encoded, tuple(labels), options)

    def __len__(self) -> int:
        return len(self.encoded)

    @cached_property
    def special(self) -> list[NDArray[np.bool_]]:
        """Whether each token of each text is a special token."""
        return [np.asarray(text.special, dtype=bool) for text in self.encoded]

    @cached_property
    def n_tokens(self) -> list[int]:
        """The number of tokens of each text."""
        return [text.n_inputs for text in self.encoded]

    def unique(self) -> list[int]:
        """Return the index of the first occurrence of each text."""
        first: dict[str, int] = {}
        for i, text in enumerate(self.encoded):
            first.setdefault(text.text, i)
        return list(first.values())

    def attention(
        self, settings: ScoreSettings | None = None, progress: Progress | None = None
    ) -> list[Measurement]:
        """Measure raw attention, rollout and flow of each text: [layers, tokens] each."""
        settings = settings or ScoreSettings()
        return self.measure(
            lambda chunk, _: attention_scores(
                self.loaded, chunk, settings, threads=self.options.threads
            ),
            {"attention": asdict(settings)},
            progress,
        )

    def importance(
        self, progress: Progress | None = None, *, after_embeddings: bool = False
    ) -> list[Measurement]:
        """Measure blank-out, gradients and the prediction of each text; see `token_importance`."""
        return self.measure(
            lambda chunk, labels: token_importance(
                self.loaded, chunk, labels, after_embeddings=after_embeddings
            ),
            {"importance": {"after_embeddings": after_embeddings}},
            progress,
        )

    def measure(
        self, measure: Measure, key: Mapping[str, Any], progress: Progress | None
    ) -> list[Measurement]:
        """Measure all texts chunk by chunk; see `measure_in_chunks`."""
        with model_threads(self.loaded, self.options.threads):
            return measure_in_chunks(
                self.encoded,
                self.labels,
                measure,
                key={"model": hash_model(self.loaded), **key},
                cache=self.options.cache,
                progress=progress,
            )


def list_models(options: Options, default: str) -> dict[str, str]:
    """Return the models of the options, separated by commas, by the last part of their names.

    Raises InputError if there is none, or if two have the same last part.
    """
    models = [part.strip() for part in (options.model or default).split(",") if part.strip()]
    named = {Path(model).name: model for model in models}
    if not models or len(named) < len(models):
        raise InputError(
            f"the models are {options.model!r}",
            expected="names or folders, separated by commas, whose last parts differ",
            fix="Use for example --model runs/plain-0,runs/plain-1.",
        )
    return named


def open_model(options: Options, default: str) -> LoadedModel:
    """Load the model of the options, or the default, on the device of the options."""
    loaded = load_model(options.model or default)
    if options.device is not None:
        loaded.model.to(options.device)
    return loaded


def accuracy(importance: Sequence[Measurement]) -> float:
    """Return the share of correct predictions, rounded."""
    return round(float(np.mean([text["correct"][0] for text in importance])), 4)


def split_progress(progress: Progress | None, n: int) -> Iterator[Progress | None]:
    """Yield a progress callback for each of n stages of equal weight."""

    def callback_of(stage: int) -> Progress | None:
        if progress is None:
            return None
        return lambda done, total: progress(
            stage * STEPS + done * STEPS // max(total, 1), n * STEPS
        )

    return map(callback_of, range(n))


@contextmanager
def model_threads(loaded: LoadedModel, threads: int | None) -> Iterator[None]:
    """Set the number of torch threads, and restore it afterwards.

    threads: by default 1 for a small model, and torch's own choice for others. More threads do not
    make a small model faster, and on a busy machine they wait for each other, which can take ten
    times as long.
    """
    torch = import_optional("torch", "running a model")
    before = torch.get_num_threads()
    if threads is None:
        n_weights = sum(weights.numel() for weights in loaded.model.parameters())
        threads = 1 if n_weights < SMALL_MODEL else before
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# What is measured.


def attention_scores(
    loaded: LoadedModel,
    encoded: Sequence[EncodedText],
    settings: ScoreSettings,
    *,
    threads: int | None = None,
) -> list[Measurement]:
    """Return raw attention, rollout and flow of each text: [layers, tokens] each."""
    measured = []
    for graph, text in zip(attention_graphs(loaded, encoded, settings), encoded, strict=True):
        options: dict[str, Any] = {"normalize": "rows"}
        if settings.rows == "explained":
            position = resolve_explained(loaded, text, None)
            options = {"normalize": settings.normalize, "positions": position}
        attributions = {
            method: METHODS[method].attribute(graph, threads=threads, **options)
            for method in PAPER_METHODS
        }
        measured.append(
            {
                method: attribution.to_numpy().astype(np.float64).max(axis=1)
                for method, attribution in attributions.items()
            }
        )
    return measured


def attention_graphs(
    loaded: LoadedModel, encoded: Sequence[EncodedText], settings: ScoreSettings
) -> list[AttentionGraph]:
    """Return the attention graph of each text."""
    from attnflow.models.capture.api import capture_graphs

    graphs: list[AttentionGraph] = []
    size = len(encoded) if loaded.supports_batches else 1
    for start in range(0, len(encoded), size):
        batch = encoded[start : start + size]
        graphs += capture_graphs(
            loaded.model,
            collate(loaded, batch),
            tokens=[text.tokens for text in batch],
            residual_weight=settings.residual_weight,
            edges=settings.edges,
        )[0]
    return graphs


def token_importance(
    loaded: LoadedModel,
    encoded: Sequence[EncodedText],
    labels: Sequence[int],
    *,
    after_embeddings: bool = False,
) -> list[Measurement]:
    """Return the importance of the tokens of each text, [tokens] by name, and the prediction.

    blank_out: the probability of the predicted class minus that without the token.
    l2, times_input, sum: from the gradient of the logit of the predicted class. With the suffix
    " of probability" from the gradient of its probability, with " of true class" of the logit of
    the true class, and, if `after_embeddings` is set, with " after embeddings" from the gradient
    with respect to the output of the embedding module.
    correct: [1], whether the prediction is correct. probability: [1], of the predicted class.
    """
    from attnflow.importance.blank_out import blank_out_batch
    from attnflow.importance.gradients import input_gradients_batch
    from attnflow.importance.target import predict_classes

    probabilities = predict_classes(loaded, encoded)
    predicted = probabilities.argmax(-1).tolist()
    # As in the paper, whatever the default for the model is.
    rows = {
        "blank_out": blank_out_batch(
            loaded, encoded, predicted, replacement="unknown", score="probability"
        )
    }
    gradients: dict[str, tuple[Sequence[int], dict[str, Any]]] = {
        "": (predicted, {}),
        " of probability": (predicted, {"score": "probability"}),
        " of true class": (labels, {}),
    }
    if after_embeddings:
        gradients[" after embeddings"] = (predicted, {"place": "embeddings"})
    for suffix, (targets, options) in gradients.items():
        variants = input_gradients_batch(loaded, encoded, targets, **options)
        rows.update({name + suffix: values for name, values in variants.items()})
    rows["correct"] = [
        np.asarray([float(p == label)]) for p, label in zip(predicted, labels, strict=True)
    ]
    rows["probability"] = [row.max(keepdims=True) for row in probabilities]
    return [{name: rows[name][i] for name in rows} for i in range(len(encoded))]


# The cache.


def measure_in_chunks(
    encoded: Sequence[EncodedText],
    labels: Sequence[int],
    measure: Measure,
    *,
    key: Mapping[str, Any],
    cache: Path | None,
    progress: Progress | None = None,
) -> list[Measurement]:
    """Measure texts in chunks, and read the chunks that are in the cache.

    labels: the true class of each text.
    key: everything that the numbers depend on besides the texts, as JSON values.
    progress: called with the number of texts done and the number of all texts.
    """
    measured: list[Measurement] = []
    for start in range(0, len(encoded), CHUNK_SIZE):
        chunk = encoded[start : start + CHUNK_SIZE]
        chunk_labels = labels[start : start + CHUNK_SIZE]
        path = None if cache is None else cache / f"{hash_chunk(chunk, chunk_labels, key)}.npz"
        rows = None if path is None else read_chunk(path, len(chunk))
        if rows is None:
            rows = list(measure(chunk, chunk_labels))
            if path is not None:
                write_chunk(path, rows)
        measured += rows
        if progress is not None:
            progress(len(measured), len(encoded))
    return measured


@lru_cache(maxsize=1)  # experiments measure one model after the other
def hash_model(loaded: LoadedModel) -> str:
    """Return a hash of the weights of a model, their names, and the configuration."""
    digest = sha256(str(getattr(loaded.model, "config", "")).encode())
    for name, weights in sorted(loaded.model.state_dict().items()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(weights.detach().float().cpu().numpy()).tobytes())
    return digest.hexdigest()


def hash_chunk(chunk: Sequence[EncodedText], labels: Sequence[int], key: Mapping[str, Any]) -> str:
    """Return a hash of the tokens and labels of a chunk, and of the key."""
    texts = [text.inputs["input_ids"][0].tolist() for text in chunk]
    content = {"format": FORMAT, "texts": texts, "labels": list(labels), "key": dict(key)}
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def write_chunk(path: Path, measured: Sequence[Measurement]) -> None:
    """Write a chunk to an npz file, atomically: for each name, the rows of all texts joined."""
    arrays = {}
    for name in measured[0]:
        rows = [text[name] for text in measured]
        arrays[name] = np.concatenate(rows, axis=-1)
        arrays[LENGTHS + name] = np.asarray([row.shape[-1] for row in rows])
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)  # type: ignore[arg-type]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, lambda file: file.write(content.getvalue()))


def read_chunk(path: Path, n: int) -> list[Measurement] | None:
    """Read a chunk of n texts; None if it is missing or damaged and must be measured again."""
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        names = [name for name in arrays if not name.startswith(LENGTHS)]
        rows = {
            name: np.split(arrays[name], np.cumsum(arrays[LENGTHS + name])[:-1], axis=-1)
            for name in names
        }
    except (EOFError, KeyError, OSError, ValueError, zipfile.BadZipFile):
        return None
    if not rows or any(len(texts) != n for texts in rows.values()):
        return None
    return [{name: rows[name][i] for name in names} for i in range(n)]
