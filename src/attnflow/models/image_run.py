"""One run of a vision model on an image, and the explanation of its prediction.

Import this module after a model is loaded, because it imports torch.
"""

from dataclasses import replace
from typing import Any

from attnflow.attentions import Attentions
from attnflow.errors import InputError
from attnflow.explanation import Explanation
from attnflow.graph import MEAN, AttentionGraph, add_mean, with_mean
from attnflow.models.capture.api import capture_graphs
from attnflow.models.capture.merge import KeptHeads
from attnflow.models.loading import display_name
from attnflow.models.prediction import predict, resolve_contrast
from attnflow.models.text_run import Explained, GraphOptions, gradient_target
from attnflow.models.vision import EncodedImage, LoadedImageModel
from attnflow.predictions import Prediction
from attnflow.selection import resolve_position
from attnflow.units import Units

CLS = "[CLS]"


def run_image(
    loaded: LoadedImageModel,
    encoded: EncodedImage,
    explained: Explained,
    options: GraphOptions,
    kept_heads: KeptHeads | None,
) -> Explanation:
    """Run the model on an image, and return the explanation of its prediction."""
    graph, prediction = _capture(loaded, encoded, explained, options, kept_heads)
    position = explained.position
    first = _count_prefix(loaded, encoded, len(graph.tokens))
    tokens = (*_prefix_names(loaded.config, first), *_patch_names(encoded.rows, encoded.columns))
    graph = replace(graph, tokens=tokens)
    layers = kept_heads.examples[0].layers if kept_heads and kept_heads.examples else ()
    if position == MEAN or (position is None and _pools_patches(loaded.config, tokens)):
        patches = range(first, len(tokens))
        graph = add_mean(graph, patches)
        layers = tuple(with_mean(layer, patches) for layer in layers)
        position = MEAN
    tokens = graph.tokens
    special = tuple(not first <= i < first + encoded.n_patches for i in range(len(tokens)))
    return Explanation(
        text=encoded.name,
        tokens=tokens,
        special=special,
        words=Units(tokens, tuple((i,) for i in range(len(tokens))), special),
        position=resolve_position(tokens, len(tokens), CLS if position is None else position),
        prediction=prediction,
        graph=graph,
        image=encoded.grid(first),
        heads=Attentions(layers, tokens) if layers else None,
        model=display_name(loaded.name),
    )


def _capture(
    loaded: LoadedImageModel,
    encoded: EncodedImage,
    explained: Explained,
    options: GraphOptions,
    kept_heads: KeptHeads | None,
) -> tuple[AttentionGraph, Prediction | None]:
    """The graph of the image, and the prediction of the model."""
    weights = next(loaded.model.parameters())
    inputs = {
        name: value.to(weights.device, weights.dtype) for name, value in encoded.inputs.items()
    }

    def target_scores(output: Any) -> Any:
        contrast = resolve_contrast(
            loaded.predicting, output.logits[0], explained.target, explained.against
        )
        return contrast.score(output.logits)

    graphs, output = capture_graphs(
        loaded.model,
        inputs,
        target=gradient_target(options["edges"], loaded, target_scores),
        kept_heads=kept_heads,
        **options,
    )
    if len(graphs) != 1:
        raise InputError(
            f"{loaded.name} attends within {len(graphs)} windows of the image, as Swin does",
            expected="attention among all patches",
            fix="Use a model such as ViT, DeiT or DINOv2.",
        )
    if loaded.task != "classifier":
        return graphs[0], None
    return graphs[0], predict(loaded.predicting, output.logits[0], explained.target)


def _count_prefix(loaded: LoadedImageModel, encoded: EncodedImage, n: int) -> int:
    """The number of tokens before the patches."""
    prefix = n - encoded.n_patches
    longest = 1 + _registers(loaded.config) + 1  # [CLS], registers, a distillation token
    if not encoded.n_patches or not 0 <= prefix <= longest:
        raise InputError(
            f"{loaded.name} has {n} positions for {encoded.rows} x {encoded.columns} patches",
            expected="one position for each patch, after [CLS] and the like",
            fix="Use ViT, DeiT or DINOv2: models that drop, merge or add patches are unsupported.",
        )
    return prefix


def _registers(config: Any) -> int:
    return int(getattr(config, "num_register_tokens", 0) or 0)


def _prefix_names(config: Any, n: int) -> tuple[str, ...]:
    """The n tokens before the patches: [CLS], then a distillation token or registers."""
    registers = _registers(config)
    names = [CLS] if n > registers else []
    names += [f"[REG {i + 1}]" for i in range(registers)]
    return (*names, "[DIST]")[:n]


def _patch_names(rows: int, columns: int) -> tuple[str, ...]:
    return tuple(f"patch {row},{column}" for row in range(rows) for column in range(columns))


def _pools_patches(config: Any, tokens: tuple[str, ...]) -> bool:
    """Whether the model predicts from the mean over patches rather than from [CLS]."""
    return CLS not in tokens or bool(getattr(config, "use_mean_pooling", False))
