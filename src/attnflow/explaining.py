"""From a text and a model to an Explanation.

torch and transformers are loaded when `explain` is called, and not before.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict, Unpack, overload

from attnflow.arrays import import_torch
from attnflow.errors import InputError
from attnflow.explanation import Explanation
from attnflow.merging import Heads, ResidualWeight
from attnflow.models.encoding import EncodedText, Truncate, collate, encode_text
from attnflow.models.loading import LoadedModel, load_model
from attnflow.models.predicting import Prediction, logits_of, predict, resolve_explained
from attnflow.selection import Position

Edges: TypeAlias = Literal["attention", "effective", "gradient", "value"]


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
    Raises InputError for an empty or too long text, FileError for a model that cannot be loaded.
    """
    if edges not in ("attention", "effective", "gradient", "value"):
        raise InputError(
            f"edges is {edges!r}; expected 'attention', 'effective', 'gradient' or 'value'. "
            "Choose one of these."
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
    for batch in batches:
        results += _explain_batch(loaded, batch, position, target, weighting)
    return results[0] if isinstance(text, str) else results


def _explain_batch(
    loaded: LoadedModel,
    encoded: Sequence[EncodedText],
    position: Position | None,
    target: int | str | None,
    weighting: Mapping[str, Any],
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
        loaded.model, collate(loaded, encoded), tokens=tokens, **weighting
    )
    predictions: list[Prediction | None] = [None] * len(encoded)
    if loaded.task != "encoder":
        predictions = [predict(loaded, row, target) for row in scores(output)]
    return [
        Explanation(one.text, one.tokens, one.special, one.words, place, prediction, graph)
        for one, place, prediction, graph in zip(encoded, places, predictions, graphs, strict=True)
    ]


def _require_prediction(loaded: LoadedModel) -> None:
    if loaded.task == "encoder":
        raise InputError(
            f"{loaded.name} predicts nothing, so that there is no gradient; expected a classifier "
            "or a language model for edges='gradient'. Use edges='attention'."
        )
