"""interpreto: explanations as its AttributionOutput, for its metrics and `plot_attributions`."""

from typing import Any

import numpy as np

from attnflow.attribution import Normalize
from attnflow.convert.source import Scores, check_method, compute_scores, one_layer, read_ids
from attnflow.errors import InputError, check_type
from attnflow.explanation import Explanation
from attnflow.optional import import_optional
from attnflow.predictions import Prediction
from attnflow.token_text import readable_tokens


def to_interpreto(
    source: Explanation,
    *,
    method: str | None = None,
    layer: int = -1,
    normalize: Normalize | None = None,
) -> Any:
    """Convert an Explanation to an AttributionOutput of interpreto.

    source: of a class, or of an answer or next token of a decoder, as returned by `explain`. An
    Attribution is not enough, since the metrics run the model on the tokens again.
    method, layer, normalize: which scores; by default rollout at the last layer.
    attributions: [1, tokens] for a class; [generated, prompt + generated] for a decoder, NaN for a
    token itself and those after it, as interpreto writes them. Character offsets are in
    `model_inputs_to_explain["offset_mapping"]`, (0, 0) for special tokens.
    `Insertion(model, tokenizer)([output])` and `plot_attributions(output)` take it.
    Raises InputError for other models, MissingDependencyError without interpreto.
    """
    base = import_optional("interpreto.attributions.base", "to_interpreto")
    torch = import_optional("torch", "to_interpreto")
    encoding = import_optional("transformers", "to_interpreto").BatchEncoding
    check_type(source, Explanation, "Pass what explain returned.")
    check_method(method)
    prediction = _check_kind(source)
    ids, labels = _read_tokens(source)
    selection: dict[str, Any] = {} if source.answer is None else {"answer": "tokens"}
    scores = compute_scores(source, method=method, layers=layer, normalize=normalize, **selection)
    rows = one_layer(scores)
    inputs: dict[str, Any] = {}
    if prediction.kind == "class":
        targets = [prediction.target.index]
        inputs |= {name: x for name, x in _tensors(source).items() if x.shape == (1, len(ids))}
    else:
        first = len(source.tokens) if source.answer is None else source.answer.first
        rows, targets = _with_future(rows, first, len(ids)), ids[first:]
    inputs["input_ids"] = torch.tensor([ids])
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    spans = (*(source.offsets or ()), *[None] * len(ids))[: len(ids)]
    inputs["offset_mapping"] = torch.tensor([[span or (0, 0) for span in spans]])
    is_class = prediction.kind == "class"
    return base.AttributionOutput(
        attributions=torch.tensor(rows).float(),
        elements=labels,
        model_inputs_to_explain=encoding(inputs),
        targets=torch.tensor(targets),
        model_task=base.ModelTask.CLASSIFICATION if is_class else base.ModelTask.GENERATION,
        classes=torch.tensor(targets) if is_class else None,
    )


def _tensors(source: Explanation) -> dict[str, Any]:
    """The inputs of the model; none if the explanation was not made from a text."""
    encoded = None if source.origin is None else source.origin.data
    return dict(getattr(encoded, "inputs", {}))


def _check_kind(source: Explanation) -> Prediction:
    """The prediction, if interpreto supports such models.

    Raises InputError otherwise.
    """
    prediction = source.prediction
    kind = "a model that predicts nothing" if prediction is None else f"a {prediction.kind}"
    if source.graph.carried is not None:
        kind = "an encoder-decoder"
    elif prediction is not None and prediction.kind in ("class", "next token"):
        if prediction.kind == "class" or source.answer or source.position == len(source.tokens) - 1:
            return prediction
        kind = f"position {source.position} of {len(source.tokens)}"
    raise InputError(
        f"the explanation is of {kind}",
        expected="a class, or an answer or the next token of a decoder",
        fix="interpreto evaluates classifiers and decoders. For encoder-decoders use to_inseq.",
    )


def _read_tokens(source: Explanation) -> tuple[list[int], list[str]]:
    """The ids and labels of the tokens, and of the next token if it is explained.

    Raises InputError if the ids are unknown.
    """
    ids, prediction = read_ids(source), source.prediction
    if ids is None:
        raise InputError(
            "the explanation has no token ids",
            expected="an explanation of a text by a model, as explain returns it",
            fix="Files, images and attention weights do not contain them: call explain again.",
        )
    labels = list(readable_tokens(source.tokens, text=source.text))
    if prediction is None or prediction.kind == "class" or source.answer is not None:
        return ids, labels
    return [*ids, prediction.target.index], [*labels, prediction.target.label]


def _with_future(rows: Scores, first: int, n: int) -> Scores:
    """Scores [generated, tokens] for n tokens, NaN from each generated token on."""
    matrix = np.full((n - first, n), np.nan)
    matrix[:, : rows.shape[1]] = rows
    matrix[np.arange(n)[None, :] >= first + np.arange(n - first)[:, None]] = np.nan
    return matrix
