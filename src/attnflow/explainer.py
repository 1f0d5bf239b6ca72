"""`explain` and `explain_image`: from a text, a chat or an image and a model to an Explanation.

torch and transformers are imported when a function is called.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload
from warnings import warn

import numpy as np
from array_api_compat import array_namespace

from attnflow.arrays import to_numpy
from attnflow.attentions import Attentions
from attnflow.edges.registry import EDGES, default_edges, fit_residual
from attnflow.errors import AttentionError, InputError, check_choice
from attnflow.explanation import Explanation, KeepHeads, Origin
from attnflow.graph import MEAN, AttentionGraph, add_mean, with_mean
from attnflow.head_merge import Heads, check_heads
from attnflow.layers import ModelResidual
from attnflow.optional import import_optional
from attnflow.predictions import Answer, Prediction
from attnflow.selection import Position, resolve_position
from attnflow.units import Units
from attnflow.unkept import BYTES_PER_WEIGHT, UnkeptLayers

if TYPE_CHECKING:
    from attnflow.models.capture.merge import KeptHeads
    from attnflow.models.generation import AnsweredText, AnswerRequest, Generate
    from attnflow.models.inputs import EncodedText
    from attnflow.models.loading import LoadedModel
    from attnflow.models.vision import EncodedImage, LoadedImageModel

HEADS_LIMIT = 64_000_000  # bytes that the heads of all inputs may take for keep_heads="auto"
OF_ROLLOUT = ("to_layer", "normalize")  # settings of a rollout, not of its graph
CLS = "[CLS]"


class GraphOptions(TypedDict):
    """How the attention graph is built; see `capture_graphs`."""

    residual_weight: ModelResidual | None
    heads: Heads
    edges: str


class ExplainOptions(TypedDict, total=False):
    """The options of `explain`, for type checkers."""

    messages: Any
    text_pair: Any
    generate: "Generate | None"
    continuation: Any
    seed: int
    images: Any
    tokenizer: Any
    position: Position | None
    target: int | str | None
    against: int | str | None
    residual_weight: ModelResidual | None
    heads: Heads
    edges: str | None
    truncate: Literal["error", "cut"]
    device: Any
    keep_heads: KeepHeads
    keep_graph: KeepHeads


@overload
def explain(text: str, model: Any = None, **options: Unpack[ExplainOptions]) -> Explanation: ...


@overload
def explain(
    text: list[str] | tuple[str, ...], model: Any = None, **options: Unpack[ExplainOptions]
) -> list[Explanation]: ...


@overload
def explain(text: Any = None, model: Any = None, **options: Unpack[ExplainOptions]) -> Any: ...


def explain(  # noqa: PLR0913 - one argument for each option
    text: Any = None,
    model: Any = None,
    *,
    messages: Any = None,
    text_pair: Any = None,
    generate: "Generate | None" = None,
    continuation: Any = None,
    seed: int = 0,
    images: Any = None,
    tokenizer: Any = None,
    position: Position | None = None,
    target: int | str | None = None,
    against: int | str | None = None,
    residual_weight: ModelResidual | None = None,
    heads: Heads = "mean",
    edges: str | None = None,
    truncate: Literal["error", "cut"] = "error",
    device: Any = None,
    keep_heads: KeepHeads = "auto",
    keep_graph: KeepHeads = "auto",
) -> Any:
    """Run a model on a text, and explain its prediction or the answer that it generates.

    text: a string; token ids as a list, array or tensor; or a dict or BatchEncoding with
    input_ids, or a dict with inputs_embeds. A list of strings or a batch of ids runs as one batch
    and returns a list.
    messages: a chat instead of a text: a list of {"role": ..., "content": ...}, or several such
    lists. A chat that ends with a message of the assistant is explained as that answer.
    text_pair: the second text of a pair, as in natural language inference or question answering.
    images: an image or a list of them, for models of texts and images; see `encode_with_images`.
    The text is then a string or a chat, and tokenizer may be the processor of the model.
    generate: the number of tokens to generate after the text, or a dict with options of
    `model.generate`. Each generated token is explained: see `Explanation.answer`.
    continuation: an answer to explain that is given, as text or token ids, instead of generated.
    seed: of sampling, if the model samples.
    model, tokenizer: as in `attnflow.load_model`; a LoadedModel can be used for many calls. By
    default the bundled verb-number model.
    position: the position to explain, an index or the text of a token; or "[MEAN]", all positions
    together, for models that predict from their mean. By default the mask of a masked language
    model, the last token of a decoder, [MEAN] if the model pools so, and otherwise [CLS] or the
    first special token.
    target: the class or token to explain, by index or name; by default the predicted one. It
    affects `prediction.target` and gradient edges.
    against: a class or token to compare the target with. Gradient edges are then those of the
    difference of the two logits.
    edges: how edges are weighted, by a name in `attnflow.edges.registry.EDGES`. By default
    "attention", as in the paper; for decoders and encoder-decoders "alti", unless residual_weight
    or heads are given.
    residual_weight, heads: see `capture_graphs`.
    truncate: for inputs longer than the model's limit: "error", or "cut", which warns.
    device: where to run the model; afterwards it is moved back.
    keep_heads: whether to keep the attention of each head for the viewer. "auto" keeps it if all
    inputs together take at most 64 MB as float16. Encoder-decoders have none.
    keep_graph: whether to keep the attention graph, whose size grows with the square of the number
    of tokens. Without it, only the rollout of what is explained, from the last layer to the input,
    is computed, by `capture_rollout`. "auto" keeps it unless edges are "attention" and it would
    take more than half of the free memory.
    Returns an Explanation, or a list of them. The model's mode and device do not change.
    Raises InputError for an empty or too long text, FileError if the model cannot be loaded.
    """
    _check_options(edges, residual_weight, keep_heads, heads)
    check_choice("keep_graph", keep_graph, ("auto", True, False))
    from attnflow.models.generation import AnswerRequest, answer_prompts
    from attnflow.models.input_kinds import check_argument_order, encode_inputs
    from attnflow.models.loading import load_model
    from attnflow.models.model_state import on_device

    check_argument_order(text, model)
    request = AnswerRequest(generate, continuation, seed)
    loaded = load_model(model, tokenizer)
    given = _one_input(text, messages)
    if images is None:
        encoded, is_single = encode_inputs(loaded, given, text_pair=text_pair, truncate=truncate)
    else:
        from attnflow.models.multimodal import encode_with_images

        encoded, is_single = [encode_with_images(loaded, given, images)], True
    prompts = encoded
    answered: list[AnsweredText] = []
    request = _read_request(request, encoded)
    if request:
        _check_alone(position=position, target=target, against=against)
        with on_device(loaded.model, device):
            answered = answer_prompts(loaded, encoded, request)
        encoded = [text.encoded for text in answered]
    is_default = edges is None and residual_weight is None and heads == "mean"
    chosen = edges or default_edges(has_decoder=is_default and loaded.generates)
    options: GraphOptions = {"residual_weight": residual_weight, "heads": heads, "edges": chosen}
    origin = Origin(None, model, tokenizer, against)
    explanations: list[Explanation] = []
    with on_device(loaded.model, device):
        is_kept = _keeps_graph(keep_graph, loaded, encoded, options)
        is_batch = loaded.supports_batches and is_kept
        batches = [encoded] if is_batch else [[example] for example in encoded]
        limit = HEADS_LIMIT // len(batches) if keep_heads == "auto" else None
        explained = _Explained(position, target, against, tuple(answered), is_kept)
        for batch in batches:
            kept_heads = _kept_heads(keep_heads, limit)
            try:
                explanations += _explain_batch(loaded, batch, explained, options, kept_heads)
            except AttentionError as error:
                if edges is not None or chosen == default_edges(has_decoder=False):
                    raise
                chosen = default_edges(has_decoder=False)
                warn(f"{error.given}. The edges are {chosen!r} instead.", stacklevel=2)
                options["edges"] = chosen
                kept_heads = _kept_heads(keep_heads, limit)
                explanations += _explain_batch(loaded, batch, explained, options, kept_heads)
    for i, prompt in enumerate(prompts):
        explanations[i] = replace(explanations[i], origin=replace(origin, data=prompt))
    return explanations[0] if is_single else explanations


@dataclass(frozen=True)
class _Explained:
    """What is explained: a position and the score of a target there, or the answers."""

    position: Position | None
    target: int | str | None
    against: int | str | None
    answers: "tuple[AnsweredText, ...]" = ()
    keep_graph: bool = True


def _one_input(text: Any, messages: Any) -> Any:
    """The text or the messages, whichever was given."""
    if (text is None) == (messages is None):
        raise InputError(
            "no text was given" if text is None else "a text and messages were given",
            expected="a text, token ids, a mapping with input_ids, or messages",
            fix="Pass a text, or messages=[...] without a text.",
        )
    return messages if text is None else text


def _read_request(request: "AnswerRequest", encoded: "Sequence[EncodedText]") -> "AnswerRequest":
    """The request, with the answers of chats that have one."""
    given = [text.continuation for text in encoded if text.continuation is not None]
    if not given:
        return request
    if request or len(given) < len(encoded):
        raise InputError(
            "a chat ends with a message of the assistant"
            + (", and generate or continuation was given" if request else ", and another does not"),
            expected="chats that all end with an answer, or none",
            fix="Remove the last message to generate another answer.",
        )
    return replace(request, continuation=given)


def _check_alone(**options: Any) -> None:
    """Raise InputError for options that do not go with an answer."""
    for name, value in options.items():
        if value is not None:
            raise InputError(
                f"{name} is {value!r}, and an answer is explained",
                expected="one of the two",
                fix=f"Leave out {name}: an answer is explained at its own tokens. Parts of it are "
                "selected afterwards: explanation.rollout(answer='Paris').",
            )


def _check_options(
    edges: str | None, residual_weight: ModelResidual | None, keep_heads: KeepHeads, heads: Heads
) -> None:
    """Raise an error for invalid options, before anything is loaded."""
    check_heads(heads)
    if edges is not None:
        fit_residual(residual_weight, EDGES[edges])
    check_choice("keep_heads", keep_heads, ("auto", True, False))


def _explain_batch(
    loaded: "LoadedModel",
    encoded: "Sequence[EncodedText]",
    explained: _Explained,
    options: GraphOptions,
    kept_heads: "KeptHeads | None",
) -> list[Explanation]:
    from attnflow.models.capture.api import capture_graphs
    from attnflow.models.inputs import collate
    from attnflow.models.prediction import (
        answer_scores,
        find_pooled,
        logits_of_batch,
        predict_positions,
        resolve_contrast,
        resolve_explained,
    )

    answers = {id(answer.encoded): answer for answer in explained.answers}
    pooled = [find_pooled(loaded, example, explained.position) for example in encoded]
    positions = [
        answers[id(example)].first - 1
        if id(example) in answers
        else places[0]
        if places
        else resolve_explained(loaded, example, explained.position)
        for example, places in zip(encoded, pooled, strict=True)
    ]
    target = explained.target

    def target_scores(output: Any) -> Any:
        """The score of each example's target, [examples], for gradient edges."""
        if answers:
            return answer_scores(loaded, output.logits, [answers[id(text)] for text in encoded])
        logits = logits_of_batch(loaded, output.logits, encoded, positions)
        scores = [
            resolve_contrast(loaded, row, target, explained.against).score(row) for row in logits
        ]
        return import_optional("torch", "gradient edges").stack(scores)

    inputs = collate(loaded, encoded)
    if loaded.task == "seq2seq":  # FSMT applies the causal mask of its decoder without a cache only
        inputs["use_cache"] = False
    if explained.keep_graph:
        graphs, output = capture_graphs(
            loaded.model,
            inputs,
            tokens=[example.tokens for example in encoded],
            target=_gradient_target(options["edges"], loaded, target_scores),
            kept_heads=kept_heads,
            **options,
        )
    else:
        answer = answers.get(id(encoded[0]))
        rows = pooled[0] or (positions[0],)
        if answer is not None:
            rows = tuple(range(answer.first - 1, answer.first - 1 + len(answer.ids)))
        kept_heads = None
        graphs, output = _capture_rows(loaded, encoded[0], rows, options)
    read: list[Answer | None] = [None] * len(encoded)
    if answers:
        texts = [answers[id(example)] for example in encoded]
        for graph, answer in zip(graphs, texts, strict=True):
            _check_causal(loaded, graph, answer.first)
        read = [_read_answer(loaded, *pair) for pair in zip(output.logits, texts, strict=True)]
        predictions = [None if answer is None else answer.steps[0] for answer in read]
    else:
        predictions = _predict(loaded, output, encoded, positions, explained)
    heads = None if kept_heads is None else kept_heads.examples
    logits = getattr(output, "logits", None)
    return [
        Explanation(
            text=example.text,
            tokens=example.tokens,
            special=example.special,
            words=example.words,
            position=positions[i],
            prediction=predictions[i],
            predictions=()
            if logits is None
            else predict_positions(loaded, logits[i], len(example.tokens)),
            graph=graphs[i],
            heads=None if heads is None else heads[i],
            model=_display_name(loaded.name),
            offsets=example.offsets,
            answer=read[i],
            segments=example.segments,
            positions=pooled[i],
            image=getattr(example, "image", None),
        )
        for i, example in enumerate(encoded)
    ]


def _keeps_graph(
    keep_graph: KeepHeads,
    loaded: "LoadedModel",
    encoded: "Sequence[EncodedText]",
    options: GraphOptions,
) -> bool:
    """Whether to keep the attention graphs.

    Raises InputError for keep_graph=False with settings that need a graph.
    """
    residual = options["residual_weight"]
    is_measured = isinstance(residual, str) and residual == "measured"
    needs_graph = options["edges"] != "attention" or is_measured or loaded.task == "seq2seq"
    if keep_graph is False and needs_graph:
        raise InputError(
            f"keep_graph is False, and edges are {options['edges']!r}"
            + (", with a measured residual weight" if is_measured else "")
            + (f", of {loaded.name}, an encoder-decoder" if loaded.task == "seq2seq" else ""),
            expected="a decoder or an encoder, edges='attention' and a number as residual_weight",
            fix="Pass edges='attention', or leave out keep_graph.",
        )
    if keep_graph != "auto" or needs_graph:
        return bool(keep_graph)
    from attnflow.models.capture.row_rollout import SHARE, free_memory

    place = next(loaded.model.parameters()).device
    cells = loaded.n_layers * sum(len(example.tokens) ** 2 for example in encoded)
    return bool(cells * BYTES_PER_WEIGHT <= free_memory(place) * SHARE)


def _capture_rows(
    loaded: "LoadedModel",
    encoded: "EncodedText",
    positions: Sequence[int],
    options: GraphOptions,
) -> tuple[list[AttentionGraph], Any]:
    """The rollout of some positions of a text, as a graph without weights; and the output."""
    from attnflow.models.capture.rollout_capture import capture_rollout
    from attnflow.models.inputs import collate

    residual: Any = options["residual_weight"]
    [result], output = capture_rollout(
        loaded.model,
        collate(loaded, [encoded]),
        tokens=[encoded.tokens],
        heads=options["heads"],
        residual_weight=0.5 if residual is None else residual,
        positions=positions,
    )
    [n_layers] = result.layers
    settings = dict(result.settings)
    residual = settings["residual_weight"]
    layers = UnkeptLayers(n_layers, result.scores[0], result.positions)
    graph = AttentionGraph(
        weights=layers,
        attention=layers,
        tokens=encoded.tokens,
        residual_weights=tuple(residual) if isinstance(residual, list) else (residual,) * n_layers,
        causal=loaded.is_causal,
        widths=(len(encoded.tokens),) * (n_layers + 1),
        settings={name: settings[name] for name in settings if name not in OF_ROLLOUT},
    )
    return [graph], output


def _predict(
    loaded: "LoadedModel",
    output: Any,
    encoded: "Sequence[EncodedText]",
    positions: Sequence[int],
    explained: _Explained,
) -> list[Prediction | None]:
    """The prediction for each text at its position; none of a plain encoder."""
    from attnflow.models.prediction import logits_of_batch, predict, resolve_contrast

    if loaded.task == "encoder":
        return [None] * len(encoded)
    logits = logits_of_batch(loaded, output.logits, encoded, positions)
    for row in logits:
        resolve_contrast(loaded, row, explained.target, explained.against)  # checks the names
    return [predict(loaded, row, explained.target) for row in logits]


def _read_answer(loaded: "LoadedModel", logits: Any, answered: "AnsweredText") -> Answer:
    """The answer with the predictions of its tokens, from logits [tokens, vocabulary]."""
    from attnflow.models.prediction import predict_answer

    return answered.read(predict_answer(loaded, logits, answered))


def _check_causal(loaded: "LoadedModel", graph: AttentionGraph, first: int) -> None:
    """Raise InputError if a position sees a token of the answer after it; first: their start."""
    if graph.causal:
        return
    seen = array_namespace(graph.weights).any(graph.weights[:, :, first:] > 0, axis=0)
    later = np.triu(to_numpy(seen), k=1 - first).any(axis=1)  # [queries, tokens of the answer]
    if later.any():
        raise InputError(
            f"position {int(later.argmax())} of {loaded.name} sees later tokens of the answer",
            expected="a decoder whose positions see earlier tokens only",
            fix="Leave out generate and continuation.",
        )


def _kept_heads(keep_heads: KeepHeads, limit: int | None) -> "KeptHeads | None":
    from attnflow.models.capture.merge import KeptHeads

    return KeptHeads(limit) if keep_heads else None


def _display_name(name: str) -> str:
    """The name of a model in results: for a folder its last part, without its location."""
    return Path(name).resolve().name if Path(name).exists() else name


def _gradient_target(
    edges: str, loaded: "LoadedModel | LoadedImageModel", target_scores: Callable[[Any], Any]
) -> Callable[[Any], Any] | None:
    """The target of gradient edges; None for edges that need no gradient."""
    if not EDGES[edges].needs_gradient:
        return None
    if loaded.task == "encoder":
        raise InputError(
            f"edges is {edges!r}, and {loaded.name} is an encoder that predicts nothing",
            expected="a classifier or a language model, whose prediction has a gradient",
            fix="Use edges='attention', or load the model with its head.",
        )
    return target_scores


def explain_image(  # noqa: PLR0913 - one argument for each option
    image: Any,
    model: Any,
    *,
    processor: Any = None,
    position: Position | None = None,
    target: int | str | None = None,
    against: int | str | None = None,
    residual_weight: ModelResidual | None = None,
    heads: Heads = "mean",
    edges: str | None = None,
    device: Any = None,
    keep_heads: KeepHeads = "auto",
) -> Explanation:
    """Run a vision model on an image, and explain its prediction.

    image: a Pillow image, the path of a file, or an array [height, width] or [height, width,
    channels] with integers from 0 to 255 or floats from 0 to 1.
    model: a ViT-like model of transformers, a folder, a hub name, or a LoadedImageModel.
    processor: its image processor, if it is not stored with the model.
    position: an index, "[CLS]", "patch 2,3" (row, column, from 0), or "[MEAN]": the mean over all
    patches, added to the graph as a position of its own. By default [CLS], or [MEAN] for models
    without [CLS] and for classifiers that pool patches.
    target, against, residual_weight, heads, edges, device, keep_heads: as in `explain`.
    Returns an Explanation whose `image` is the image as the model sees it.
    Raises InputError for a model whose tokens are not image patches, FileError for an image or
    model that cannot be read.
    """
    _check_options(edges, residual_weight, keep_heads, heads)
    from attnflow.models.model_state import on_device
    from attnflow.models.vision import encode_image, load_image_model, open_image

    name, picture = open_image(image)  # first, because loading the model may take long
    loaded = load_image_model(model, processor)
    encoded = encode_image(loaded, picture, name)
    chosen = edges or default_edges(has_decoder=False)
    options: GraphOptions = {"residual_weight": residual_weight, "heads": heads, "edges": chosen}
    kept_heads = _kept_heads(keep_heads, HEADS_LIMIT if keep_heads == "auto" else None)
    with on_device(loaded.model, device):
        explained = _Explained(None, target, against)
        graph, prediction = _run_image(loaded, encoded, explained, options, kept_heads)
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
        model=_display_name(loaded.name),
        origin=Origin(picture, model, processor, against),
    )


def _run_image(
    loaded: "LoadedImageModel",
    encoded: "EncodedImage",
    explained: _Explained,
    options: GraphOptions,
    kept_heads: "KeptHeads | None",
) -> tuple[AttentionGraph, Prediction | None]:
    """The graph of the image, and the prediction of the model."""
    from attnflow.models.capture.api import capture_graphs
    from attnflow.models.prediction import predict, resolve_contrast

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
        target=_gradient_target(options["edges"], loaded, target_scores),
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


def _count_prefix(loaded: "LoadedImageModel", encoded: "EncodedImage", n: int) -> int:
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
