"""From a picture and a vision model to an Explanation.

Tokens are named "[CLS]" and "patch 2,3" (row, column), so that positions can be asked for by name.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from array_api_compat import array_namespace

from attnflow.arrays import Array
from attnflow.attentions import Attentions
from attnflow.errors import InputError
from attnflow.explaining import HEADS_LIMIT, Edges
from attnflow.explanation import Explanation, KeepHeads
from attnflow.graph import AttentionGraph
from attnflow.merging import Heads, ResidualWeight
from attnflow.models.predicting import Prediction, predict
from attnflow.selection import Position, resolve_position
from attnflow.words import Words

if TYPE_CHECKING:
    from attnflow.models.image_encoding import EncodedImage
    from attnflow.models.image_loading import LoadedImageModel
    from attnflow.models.keeping import KeptHeads

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
    from attnflow.models.image_encoding import encode_image, open_image
    from attnflow.models.image_loading import load_image_model

    name, picture = open_image(image)  # before the model, which may take long to load
    loaded = load_image_model(model, processor)
    if device is not None:
        loaded.model.to(device)
    encoded = encode_image(loaded, picture, name)
    options = {"residual_weight": residual_weight, "heads": heads, "edges": edges}
    keeper = _keeper(keep_heads)
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


def _keeper(keep_heads: KeepHeads) -> "KeptHeads | None":
    from attnflow.models.keeping import KeptHeads

    return KeptHeads(HEADS_LIMIT if keep_heads == "auto" else None) if keep_heads else None


def _run(
    loaded: "LoadedImageModel",
    encoded: "EncodedImage",
    target: int | str | None,
    options: Mapping[str, Any],
) -> tuple[AttentionGraph, Prediction | None]:
    """The graph of the picture, and what the model predicts."""
    from attnflow.models.capture import capture_graphs

    device = next(loaded.model.parameters()).device
    dtype = next(loaded.model.parameters()).dtype
    inputs = {name: value.to(device, dtype) for name, value in encoded.inputs.items()}
    classifies = loaded.task == "classifier"
    if options["edges"] == "gradient":
        if not classifies:
            raise InputError(
                f"{loaded.name} predicts nothing, so that there is no gradient; expected a "
                "classifier for edges='gradient'. Use edges='attention'."
            )

        def explained(output: Any) -> Any:
            chosen = predict(loaded.predicting, output.logits[0], target).target.index
            return output.logits[:, chosen]

        options = {**options, "target": explained}
    graphs, output = capture_graphs(loaded.model, inputs, **options)
    if len(graphs) != 1:
        raise InputError(
            f"{loaded.name} attends within {len(graphs)} parts of the picture, as Swin does; "
            "expected attention among all patches. Use a model such as ViT, DeiT or DINOv2."
        )
    prediction = predict(loaded.predicting, output.logits[0], target) if classifies else None
    return graphs[0], prediction


def _count_others(loaded: "LoadedImageModel", encoded: "EncodedImage", n: int) -> int:
    """The number of tokens before the patches."""
    others = n - encoded.n_patches
    known = 1 + _registers(loaded.config) + 1  # [CLS], registers, a distillation token
    if not encoded.n_patches or not 0 <= others <= known:
        raise InputError(
            f"{loaded.name} has {n} positions for {encoded.rows} x {encoded.columns} patches; "
            "expected one for each patch, after [CLS] and the like. Models that leave out, merge "
            "or add patches cannot be explained."
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
