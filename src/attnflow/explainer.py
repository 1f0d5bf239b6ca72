"""From a text and a model to an Explanation.

torch and transformers are loaded when `explain` is called, and not before.

From a picture and a vision model to an Explanation.

Tokens are named "[CLS]" and "patch 2,3" (row, column), so that positions can be asked for by name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, Unpack, overload

import numpy as np
from array_api_compat import array_namespace

from attnflow.arrays import Array, import_torch
from attnflow.attentions import Attentions
from attnflow.errors import InputError
from attnflow.explanation import Explanation, KeepHeads
from attnflow.graph import AttentionGraph
from attnflow.layers import Heads, ResidualWeight
from attnflow.models.inputs import EncodedText, Truncate, collate, encode_text
from attnflow.models.loading import LoadedModel, load_model
from attnflow.models.prediction import Prediction, logits_of, predict, resolve_explained
from attnflow.selection import Position, resolve_position
from attnflow.words import Words

if TYPE_CHECKING:
    from attnflow.models.capture.build import KeptHeads
    from attnflow.models.vision import EncodedImage, LoadedImageModel

Edges: TypeAlias = Literal["attention", "effective", "gradient", "value"]

HEADS_LIMIT = 64_000_000  # bytes that the heads of all texts may take for keep_heads="auto"


class Options(TypedDict, total=False):
    """The options of `explain`, for type checkers."""

    tokenizer: Any
    position: Position | None
    target: int | str | None
    residual_weight: ResidualWeight
    heads: Heads
    edges: Edges
    truncate: Truncate
    device: Any
    keep_heads: KeepHeads


@overload
def explain(text: str, model: Any = None, **options: Unpack[Options]) -> Explanation: ...


@overload
def explain(
    text: list[str] | tuple[str, ...], model: Any = None, **options: Unpack[Options]
) -> list[Explanation]: ...


def explain(  # noqa: PLR0913 - one argument for each option
    text: str | list[str] | tuple[str, ...],
    model: Any = None,
    *,
    tokenizer: Any = None,
    position: Position | None = None,
    target: int | str | None = None,
    residual_weight: ResidualWeight = 0.5,
    heads: Heads = "mean",
    edges: Edges = "attention",
    truncate: Truncate = "error",
    device: Any = None,
    keep_heads: KeepHeads = "auto",
) -> Explanation | list[Explanation]:
    """Run a model on a text, and explain its prediction by raw attention, rollout and flow.

    text: one text, or several, which are run as one batch and give a list.
    model, tokenizer: as in `attnflow.load_model`; a LoadedModel serves many calls. If not given:
    the verb-number model that comes with attnflow.
    position: an index or the text of a token. If not given: the mask for masked language models,
    the last token for decoders, [CLS] or the first special token for the others.
    target: the class or token to explain, by number or name; the predicted one if not given. It
    matters to `prediction.target` and to gradient edges.
    residual_weight, heads, edges: how the graph is made, as in `capture_graphs`.
    truncate: "error" for a text longer than the model takes, or "cut", which warns.
    device: where to move the model and run it; where it is if not given.
    keep_heads: whether to keep the attention of each head as well, for the viewer; "auto" keeps it
    where that of all texts takes at most 64 MB as float16. There is none of encoder-decoders.
    Raises InputError for an empty or too long text, FileError for a model that cannot be loaded.
    """
    if edges not in ("attention", "effective", "gradient", "value"):
        raise InputError(
            f"edges is {edges!r}",
            expected="'attention', 'effective', 'gradient' or 'value'",
            fix="Choose one of these.",
        )
    if keep_heads not in ("auto", True, False):
        raise InputError(
            f"keep_heads is {keep_heads!r}",
            expected="'auto', True or False",
            fix="Choose one of these.",
        )
    texts = [text] if isinstance(text, str) else list(text)
    if not texts:
        raise InputError(
            "no text was given",
            expected="at least one",
            fix="Give a text, or several.",
        )
    loaded = load_model(model, tokenizer)
    if device is not None:
        loaded.model.to(device)
    encoded = [encode_text(loaded, one, truncate=truncate) for one in texts]
    weighting = {"residual_weight": residual_weight, "heads": heads, "edges": edges}
    batches = [[one] for one in encoded] if loaded.takes_one_at_a_time else [encoded]
    results = []
    limit = HEADS_LIMIT // len(batches) if keep_heads == "auto" else None
    for batch in batches:
        results += _explain_batch(
            loaded, batch, position, target, weighting, _keeper(keep_heads, limit)
        )
    return results[0] if isinstance(text, str) else results


def _explain_batch(
    loaded: LoadedModel,
    encoded: Sequence[EncodedText],
    position: Position | None,
    target: int | str | None,
    weighting: Mapping[str, Any],
    kept_heads: "KeptHeads | None",
) -> list[Explanation]:
    from attnflow.models.capture.api import capture_graphs

    places = [resolve_explained(loaded, one, position) for one in encoded]

    def scores(output: Any) -> list[Any]:
        """The scores [classes] of each text."""
        triples = zip(output.logits, encoded, places, strict=True)
        return [logits_of(loaded, logits, one, place) for logits, one, place in triples]

    def explained(output: Any) -> Any:
        """The score of each text's target, [texts], which gradients are taken of."""
        chosen = [row[predict(loaded, row, target).target.index] for row in scores(output)]
        return import_torch("gradients").stack(chosen)

    if weighting["edges"] == "gradient":
        _require_prediction(loaded)
        weighting = {**weighting, "target": explained}
    tokens = [one.tokens for one in encoded]
    graphs, output = capture_graphs(
        loaded.model,
        collate(loaded, encoded),
        tokens=tokens,
        kept_heads=kept_heads,
        **weighting,
    )
    kept = None if kept_heads is None else kept_heads.examples
    predictions: list[Prediction | None] = [None] * len(encoded)
    if loaded.task != "encoder":
        predictions = [predict(loaded, row, target) for row in scores(output)]
    return [
        Explanation(
            text=one.text,
            tokens=one.tokens,
            special=one.special,
            words=one.words,
            position=places[i],
            prediction=predictions[i],
            graph=graphs[i],
            heads=None if kept is None else kept[i],
            model=_shown_name(loaded.name),
        )
        for i, one in enumerate(encoded)
    ]


def _keeper(keep_heads: KeepHeads, limit: int | None) -> "KeptHeads | None":
    from attnflow.models.capture.build import KeptHeads

    return KeptHeads(limit) if keep_heads else None


def _shown_name(name: str) -> str:
    """A model's name as results show it: of a folder the last part, and not where it lies."""
    return Path(name).resolve().name if Path(name).exists() else name


def _require_prediction(loaded: LoadedModel) -> None:
    if loaded.task == "encoder":
        raise InputError(
            f"{loaded.name} predicts nothing, so that there is no gradient",
            expected="a classifier or a language model for edges='gradient'",
            fix="Use edges='attention'.",
        )


CLS = "[CLS]"
MEAN = "[MEAN]"


def explain_image(  # noqa: PLR0913 - one argument for each option
    image: Any,
    model: Any,
    *,
    processor: Any = None,
    position: Position | None = None,
    target: int | str | None = None,
    residual_weight: ResidualWeight = 0.5,
    heads: Heads = "mean",
    edges: Edges = "attention",
    device: Any = None,
    keep_heads: KeepHeads = "auto",
) -> Explanation:
    """Run a vision model on a picture, and explain its prediction by raw attention, rollout, flow.

    image: a Pillow image, the path of a file, or an array [height, width] or [height, width,
    channels], of bytes or of numbers from 0 to 1.
    model: a ViT-like model of transformers, a folder, a name on the hub, or a LoadedImageModel.
    processor: its image processor, if it is not with the model.
    position: an index, "[CLS]", "patch 2,3", or "[MEAN]", the mean over all patches, which is
    added to the graph as a position of its own: its attention, and so its rollout, is the mean of
    the patches'; its flow is that of a position which attends so. If not given: [CLS], or [MEAN]
    for models without one and for classifiers that pool patches.
    target, residual_weight, heads, edges, device, keep_heads: as in `explain`.
    Returns an Explanation whose `image` is the picture as the model saw it.
    Raises InputError for a model whose tokens are not the patches of the picture, FileError for a
    picture or model that cannot be read.
    """
    from attnflow.models.vision import encode_image, load_image_model, open_image

    name, picture = open_image(image)  # before the model, which may take long to load
    loaded = load_image_model(model, processor)
    if device is not None:
        loaded.model.to(device)
    encoded = encode_image(loaded, picture, name)
    options = {"residual_weight": residual_weight, "heads": heads, "edges": edges}
    keeper = _image_keeper(keep_heads)
    graph, prediction = _run(loaded, encoded, target, {**options, "kept_heads": keeper})
    first = _count_others(loaded, encoded, len(graph.tokens))
    tokens = (*_name_others(loaded.config, first), *_name_patches(encoded.rows, encoded.columns))
    graph = replace(graph, tokens=tokens)
    kept = keeper.examples[0].layers if keeper is not None and keeper.examples else ()
    if position == MEAN or (position is None and _pools(loaded.config, tokens)):
        patches = range(first, len(tokens))
        graph, kept = add_mean(graph, patches), tuple(with_mean(one, patches) for one in kept)
        position = MEAN
    tokens = graph.tokens
    special = tuple(not first <= i < first + encoded.n_patches for i in range(len(tokens)))
    return Explanation(
        text=encoded.name,
        tokens=tokens,
        special=special,
        words=Words(tokens, tuple((i,) for i in range(len(tokens))), special),
        position=resolve_position(tokens, len(tokens), CLS if position is None else position),
        prediction=prediction,
        graph=graph,
        image=encoded.grid(first),
        heads=Attentions(kept, tokens) if kept else None,
        model=Path(loaded.name).resolve().name if Path(loaded.name).exists() else loaded.name,
    )


def _image_keeper(keep_heads: KeepHeads) -> "KeptHeads | None":
    from attnflow.models.capture.build import KeptHeads

    return KeptHeads(HEADS_LIMIT if keep_heads == "auto" else None) if keep_heads else None


def _run(
    loaded: "LoadedImageModel",
    encoded: "EncodedImage",
    target: int | str | None,
    options: Mapping[str, Any],
) -> tuple[AttentionGraph, Prediction | None]:
    """The graph of the picture, and what the model predicts."""
    from attnflow.models.capture.api import capture_graphs

    device = next(loaded.model.parameters()).device
    dtype = next(loaded.model.parameters()).dtype
    inputs = {name: value.to(device, dtype) for name, value in encoded.inputs.items()}
    classifies = loaded.task == "classifier"
    if options["edges"] == "gradient":
        if not classifies:
            raise InputError(
                f"{loaded.name} predicts nothing, so that there is no gradient",
                expected="a classifier for edges='gradient'",
                fix="Use edges='attention'.",
            )

        def explained(output: Any) -> Any:
            chosen = predict(loaded.predicting, output.logits[0], target).target.index
            return output.logits[:, chosen]

        options = {**options, "target": explained}
    graphs, output = capture_graphs(loaded.model, inputs, **options)
    if len(graphs) != 1:
        raise InputError(
            f"{loaded.name} attends within {len(graphs)} parts of the picture, as Swin does",
            expected="attention among all patches",
            fix="Use a model such as ViT, DeiT or DINOv2.",
        )
    prediction = predict(loaded.predicting, output.logits[0], target) if classifies else None
    return graphs[0], prediction


def _count_others(loaded: "LoadedImageModel", encoded: "EncodedImage", n: int) -> int:
    """The number of tokens before the patches."""
    others = n - encoded.n_patches
    known = 1 + _registers(loaded.config) + 1  # [CLS], registers, a distillation token
    if not encoded.n_patches or not 0 <= others <= known:
        raise InputError(
            f"{loaded.name} has {n} positions for {encoded.rows} x {encoded.columns} patches",
            expected="one for each patch, after [CLS] and the like",
            fix="Models that leave out, merge or add patches cannot be explained.",
        )
    return others


def _registers(config: Any) -> int:
    return int(getattr(config, "num_register_tokens", 0) or 0)


def _name_others(config: Any, n: int) -> tuple[str, ...]:
    """Names of the n tokens before the patches: [CLS], then a distillation token or registers."""
    registers = _registers(config)
    names = [CLS] if n > registers else []
    names += [f"[REG {i + 1}]" for i in range(registers)]
    return (*names, "[DIST]")[:n]


def _name_patches(rows: int, columns: int) -> tuple[str, ...]:
    return tuple(f"patch {row},{column}" for row in range(rows) for column in range(columns))


def _pools(config: Any, tokens: tuple[str, ...]) -> bool:
    """Whether the mean over patches is what is predicted from, rather than [CLS]."""
    return CLS not in tokens or bool(getattr(config, "use_mean_pooling", False))


def add_mean(graph: AttentionGraph, positions: range) -> AttentionGraph:
    """The graph with one more position, "[MEAN]", whose rows are the means of these positions'.

    Nothing attends to it. Its raw attention and its rollout are then the means of theirs.
    """
    n, n_layers = len(graph.tokens), len(graph.residual_weights)
    field = np.ones((n_layers, n + 1, n + 1), dtype=np.bool_)
    field[:, :, n] = False
    return replace(
        graph,
        weights=with_mean(graph.weights, positions),
        attention=with_mean(graph.attention, positions),
        tokens=(*graph.tokens, MEAN),
        causal=False,
        widths=tuple(width + 1 for width in graph.widths),
        receptive_field=field,
    )


def with_mean(matrices: Array, positions: range) -> Array:
    """Matrices [..., n + 1, n + 1] from [..., n, n]: one more row, the mean of those of positions.

    The new column is 0.

    >>> with_mean(np.asarray([[1.0, 0.0], [0.5, 0.5]]), range(2))
    array([[1.  , 0.  , 0.  ],
           [0.5 , 0.5 , 0.  ],
           [0.75, 0.25, 0.  ]])
    """
    xp = array_namespace(matrices)
    mean = xp.mean(matrices[..., positions.start : positions.stop, :], axis=-2, keepdims=True)
    taller = xp.concat([matrices, xp.astype(mean, matrices.dtype)], axis=-2)
    return xp.concat([taller, xp.zeros_like(taller[..., :1])], axis=-1)
