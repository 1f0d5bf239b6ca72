"""`explain` and `explain_image`: from a text, a chat or an image and a model to an Explanation.

torch and transformers are imported when a function is called.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload
from warnings import warn

from attnflow.edges.registry import EDGES, default_edges, fit_residual
from attnflow.errors import AttentionError, InputError, check_choice
from attnflow.explanation import Explanation, KeepHeads, Origin
from attnflow.head_merge import Heads, check_heads
from attnflow.layers import ModelResidual
from attnflow.selection import Position
from attnflow.unkept import BYTES_PER_WEIGHT

if TYPE_CHECKING:
    from attnflow.models.capture.merge import KeptHeads
    from attnflow.models.generation import AnsweredText, AnswerRequest, Generate
    from attnflow.models.inputs import EncodedText
    from attnflow.models.loading import LoadedModel
    from attnflow.models.text_run import Explained, GraphOptions

HEADS_LIMIT = 64_000_000  # bytes that the heads of all inputs may take for keep_heads="auto"


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
    from attnflow.models.input_kinds import check_argument_order
    from attnflow.models.loading import load_model
    from attnflow.models.model_state import on_device

    check_argument_order(text, model)
    request = AnswerRequest(generate, continuation, seed)
    loaded = load_model(model, tokenizer)
    given = _one_input(text, messages)
    prompts, is_single = _encode(loaded, given, text_pair, images, truncate)
    encoded: Sequence[EncodedText] = prompts
    answers: Sequence[AnsweredText] = ()
    request = _read_request(request, prompts)
    if request:
        _check_alone(position=position, target=target, against=against)
        with on_device(loaded.model, device):
            answers = answer_prompts(loaded, prompts, request)
        encoded = [answer.encoded for answer in answers]
    is_default = edges is None and residual_weight is None and heads == "mean"
    chosen = edges or default_edges(has_decoder=is_default and loaded.generates)
    options: GraphOptions = {"residual_weight": residual_weight, "heads": heads, "edges": chosen}
    with on_device(loaded.model, device):
        from attnflow.models.text_run import Explained

        is_kept = _keeps_graph(keep_graph, loaded, encoded, options)
        explained = Explained(position, target, against, answers, is_kept)
        explanations = _run_batches(loaded, encoded, explained, options, keep_heads, edges)
    origin = Origin(None, model, tokenizer, against)
    explanations = [
        replace(explanation, origin=replace(origin, data=prompt))
        for explanation, prompt in zip(explanations, prompts, strict=True)
    ]
    return explanations[0] if is_single else explanations


def _encode(
    loaded: "LoadedModel",
    given: Any,
    text_pair: Any,
    images: Any,
    truncate: Literal["error", "cut"],
) -> "tuple[list[EncodedText], bool]":
    """The inputs as tokens, and whether there is a single one."""
    if images is None:
        from attnflow.models.input_kinds import encode_inputs

        return encode_inputs(loaded, given, text_pair=text_pair, truncate=truncate)
    from attnflow.models.multimodal import encode_with_images

    return [encode_with_images(loaded, given, images)], True


def _run_batches(
    loaded: "LoadedModel",
    encoded: "Sequence[EncodedText]",
    explained: "Explained",
    options: "GraphOptions",
    keep_heads: KeepHeads,
    edges: str | None,
) -> list[Explanation]:
    """Explain all texts: as one batch, if the model can.

    edges: those that were asked for. By default, a model that cannot be followed has others.
    """
    from attnflow.models.text_run import TextRun

    is_batch = loaded.supports_batches and explained.keep_graph
    batches = [encoded] if is_batch else [[text] for text in encoded]
    limit = HEADS_LIMIT // len(batches) if keep_heads == "auto" else None
    explanations: list[Explanation] = []
    for batch in batches:
        try:
            run = TextRun(loaded, batch, explained)
            explanations += run.explanations(options, _kept_heads(keep_heads, limit))
        except AttentionError as error:
            fallback = default_edges(has_decoder=False)
            if edges is not None or options["edges"] == fallback:
                raise
            warn(f"{error.given}. The edges are {fallback!r} instead.", stacklevel=3)
            options["edges"] = fallback
            explanations += run.explanations(options, _kept_heads(keep_heads, limit))
    return explanations


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


def _keeps_graph(
    keep_graph: KeepHeads,
    loaded: "LoadedModel",
    encoded: "Sequence[EncodedText]",
    options: "GraphOptions",
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


def _kept_heads(keep_heads: KeepHeads, limit: int | None) -> "KeptHeads | None":
    from attnflow.models.capture.merge import KeptHeads

    return KeptHeads(limit) if keep_heads else None


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
    from attnflow.models.image_run import run_image
    from attnflow.models.text_run import Explained

    chosen = edges or default_edges(has_decoder=False)
    options: GraphOptions = {"residual_weight": residual_weight, "heads": heads, "edges": chosen}
    kept_heads = _kept_heads(keep_heads, HEADS_LIMIT if keep_heads == "auto" else None)
    with on_device(loaded.model, device):
        explained = Explained(position, target, against)
        explanation = run_image(loaded, encoded, explained, options, kept_heads)
    return replace(explanation, origin=Origin(picture, model, processor, against))
