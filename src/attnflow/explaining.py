"""From a text and a model to an Explanation.

torch and transformers are loaded when `explain` is called, and not before.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, Unpack, overload

from attnflow.arrays import import_torch
from attnflow.errors import InputError
from attnflow.explanation import Explanation, KeepHeads
from attnflow.merging import Heads, ResidualWeight
from attnflow.models.encoding import EncodedText, Truncate, collate, encode_text
from attnflow.models.loading import LoadedModel, load_model
from attnflow.models.predicting import Prediction, logits_of, predict, resolve_explained
from attnflow.selection import Position

if TYPE_CHECKING:
    from attnflow.models.keeping import KeptHeads

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
            f"edges is {edges!r}; expected 'attention', 'effective', 'gradient' or 'value'. "
            "Choose one of these."
        )
    if keep_heads not in ("auto", True, False):
        raise InputError(
            f"keep_heads is {keep_heads!r}; expected 'auto', True or False. Choose one of these."
        )
    texts = [text] if isinstance(text, str) else list(text)
    if not texts:
        raise InputError("no text was given; expected at least one. Give a text, or several.")
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
    from attnflow.models.capture import capture_graphs

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
    from attnflow.models.keeping import KeptHeads

    return KeptHeads(limit) if keep_heads else None


def _shown_name(name: str) -> str:
    """A model's name as results show it: of a folder the last part, and not where it lies."""
    return Path(name).resolve().name if Path(name).exists() else name


def _require_prediction(loaded: LoadedModel) -> None:
    if loaded.task == "encoder":
        raise InputError(
            f"{loaded.name} predicts nothing, so that there is no gradient; expected a classifier "
            "or a language model for edges='gradient'. Use edges='attention'."
        )
