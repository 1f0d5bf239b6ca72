"""inseq: explanations as its FeatureAttributionOutput, and our methods under names that it finds.

inseq finds methods among the subclasses of its registry, so importing this module makes
"attention_rollout", "attention_flow" and the others known to `inseq.load_model`. attnflow computes
the scores from one pass over prompt and answer; inseq generates, batches, shows and saves.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np

from attnflow.attribution import Attribution, Normalize
from attnflow.convert.source import (
    Scores,
    Source,
    check_method,
    compute_scores,
    describe,
    one_layer,
    read_ids,
)
from attnflow.errors import InputError
from attnflow.explainer import explain
from attnflow.explanation import Explanation
from attnflow.methods.registry import METHODS
from attnflow.models.loading import load_model
from attnflow.optional import import_optional

PREFIX = "attention_"  # of the names of our methods in inseq
UNKNOWN = -1  # inseq does not decode tokens with a negative id
# What `model.attribute(...)` of inseq passes on: how the graph is built, and what is read from it.
GRAPH_OPTIONS = ("edges", "residual_weight", "heads")
OPTIONS = (*GRAPH_OPTIONS, "layer", "normalize")


@dataclass(frozen=True)
class Generated:
    """The scores of generated tokens as inseq lays them out.

    source: the first tokens, and target: those that the answer is part of. For a decoder, source is
    the prompt, and target is prompt and answer.
    start: the index of the first generated token in target.
    from_source: [source, generated], of encoder-decoders. from_target: [target, generated], NaN for
    a token itself and those after it.
    """

    source: tuple[int, ...]
    target: tuple[int, ...]
    start: int
    from_source: Scores | None
    from_target: Scores


def to_inseq(
    source: Source,
    *,
    method: str | None = None,
    layer: int = -1,
    normalize: Normalize | None = None,
) -> Any:
    """Convert an explanation of generated text to a FeatureAttributionOutput of inseq.

    source: an Explanation of a decoder or encoder-decoder: of an answer, each of whose tokens
    becomes a column, or of the next token. Or an Attribution of positions of a decoder that follow
    each other; each predicts the token after it.
    method, layer, normalize: which scores; for an Explanation by default rollout at the last layer.
    The output has target_attributions [prompt + generated, generated], NaN for tokens to come, or
    for encoder-decoders source_attributions [source, generated] and target_attributions. Settings
    and character offsets are in info["attnflow"].
    Raises InputError if the source has no generated tokens, MissingDependencyError without inseq.
    """
    data = import_optional("inseq.data.attribution", "to_inseq")
    with_ids = import_optional("inseq.utils.typing", "to_inseq").TokenWithId
    torch = import_optional("torch", "to_inseq")
    if isinstance(source, Explanation):
        scores, tokens, ids = _read_explanation(source, method, layer, normalize)
        first_target = 0 if source.answer is None else _first_target(source)
    else:
        scores = compute_scores(source, method=method, layers=layer, normalize=normalize)
        tokens, ids, first_target = scores.tokens, [UNKNOWN] * len(scores.tokens), 0
    positions = _positions_of(scores, len(tokens))
    laid_out = lay_out(one_layer(scores), scores.columns, positions, first_target)
    named = [with_ids(token, i) for token, i in zip(tokens, ids, strict=True)]
    parts = (laid_out.from_source, laid_out.from_target)
    tensors = [None if part is None else torch.tensor(part).float() for part in parts]
    steps = source.answer.steps if isinstance(source, Explanation) and source.answer else ()
    chances = [step.target.probability for step in steps]
    sequence = data.CoarseFeatureAttributionSequenceOutput(
        source=[named[i] for i in laid_out.source],
        target=[named[i] for i in laid_out.target],
        source_attributions=tensors[0],
        target_attributions=tensors[1],
        step_scores={"probability": torch.tensor(chances)} if chances else {},
        sequence_scores={},
        attr_pos_start=laid_out.start,
        attr_pos_end=len(laid_out.target),
    )
    info = _describe(source, scores, laid_out, list(sequence.step_scores))
    return data.FeatureAttributionOutput(sequence_attributions=[sequence], info=info)


def _read_explanation(
    explanation: Explanation, method: str | None, layer: int, normalize: Normalize | None
) -> tuple[Attribution, tuple[str, ...], list[int]]:
    """The scores of each generated token; the tokens with the predicted one, and their ids."""
    check_method(method)
    tokens, ids = explanation.tokens, read_ids(explanation) or [UNKNOWN] * len(explanation.tokens)
    selection: dict[str, Any] = {"answer": "tokens"}
    if explanation.answer is None:
        prediction = explanation.prediction
        if prediction is None or prediction.kind != "next token":
            raise InputError(
                f"the explanation is of {prediction.kind if prediction else 'no prediction'!r}",
                expected="an answer, or the next token of a decoder",
                fix="inseq is for generated text: call explain with a decoder or encoder-decoder.",
            )
        if explanation.position != len(tokens) - 1:
            raise InputError(
                f"the explained position is {explanation.position} of {len(tokens)}",
                expected="the last one, after which the predicted token follows",
                fix="Explain the text up to that position.",
            )
        tokens, ids = (*tokens, prediction.target.label), [*ids, prediction.target.index]
        selection = {}
    scores = compute_scores(
        explanation, method=method, layers=layer, normalize=normalize, **selection
    )
    return scores, tokens, ids


def _first_target(explanation: Explanation) -> int:
    """The index of the first token of the decoder; 0 for a model without an encoder."""
    answer = explanation.answer
    is_encoder_decoder = explanation.graph.carried is not None
    return answer.first - 1 if answer is not None and is_encoder_decoder else 0


def _positions_of(scores: Attribution, n: int) -> tuple[int, ...]:
    """The positions of the rows, which follow each other, before the last of n tokens."""
    rows = [row.positions for row in scores.rows] or [(i,) for i in scores.positions]
    places = [row[0] for row in rows]
    wanted = list(range(places[0], places[0] + len(places)))
    if any(len(row) != 1 for row in rows) or places != wanted:
        raise InputError(
            f"the positions are {[list(row) for row in rows]}",
            expected="single positions that follow each other",
            fix="Use answer='tokens', or positions=range(...).",
        )
    if places[-1] + 1 >= n:
        raise InputError(
            f"position {places[-1]} is the last one, and the token that it predicts is unknown",
            expected="positions before the last token",
            fix="Pass the Explanation, which has the prediction.",
        )
    return tuple(places)


def lay_out(
    scores: Scores, columns: Sequence[int], positions: Sequence[int], first_target: int
) -> Generated:
    """Lay out scores [positions, columns] as inseq does.

    columns: the tokens that scores are given for; others, which were hidden, get NaN.
    positions: those that predict the generated tokens, each the one before its token.
    first_target: the index of the first token of the decoder; 0 for a model without an encoder.
    Raises InputError if a position has scores for later tokens.

    >>> lay_out(np.asarray([[1.0, 0, 0], [0.25, 0.75, 0]]), range(3), [0, 1], 0).from_target
    array([[1.  , 0.25],
           [ nan, 0.75],
           [ nan,  nan]])
    """
    end = positions[-1] + 2
    matrix = np.full((end, len(positions)), np.nan)
    for score, column in zip(scores.T, columns, strict=True):
        if column < end:
            matrix[column] = score
    later = np.arange(end)[:, None] > np.asarray(positions)[None, :]
    if np.any(np.abs(np.nan_to_num(matrix[later])) > 0):
        raise InputError(
            "a position has scores for tokens after it",
            expected="a decoder, or an encoder-decoder, which do not see tokens to come",
            fix="inseq is for generated text: call explain with such a model.",
        )
    matrix[later] = np.nan
    start = positions[0] + 1
    return Generated(
        source=tuple(range(first_target or start)),
        target=tuple(range(first_target, end)),
        start=start - first_target,
        from_source=matrix[:first_target] if first_target else None,
        from_target=matrix[first_target:],
    )


def _describe(
    source: Source, scores: Attribution, laid_out: Generated, step_scores: list[str]
) -> dict[str, Any]:
    """What inseq compares before it merges two outputs, the texts, and our settings."""
    model, text, prompt = "", "", ""
    if isinstance(source, Explanation):
        model, text, answer = source.model, source.text, source.answer
        prompt = text if answer is None else text[: answer.start]
        if answer is None and source.prediction is not None:
            text += source.prediction.target.label
        elif answer is not None and laid_out.from_source is not None:
            prompt, text = prompt.rstrip("\n"), answer.text
    return {
        "attribution_method": PREFIX + scores.method,
        "attr_pos_start": laid_out.start,
        "attr_pos_end": len(laid_out.target),
        "attribute_target": laid_out.from_source is not None,
        "constrained_decoding": True,
        "generated_texts": [text],
        "input_texts": [prompt],
        "model_name": model,
        "step_scores": step_scores,
        "attnflow": describe(scores, model),
    }


def explain_sequence(
    loaded: Any, ids: Sequence[int], start: int, *, source: Sequence[int], options: dict[str, Any]
) -> Generated:
    """Explain the generated tokens of one sequence.

    ids: of prompt and answer, of which the answer starts at an index; or of the decoder, if there
    are ids of the encoder in source. options: the method, and `OPTIONS`.
    """
    prompt, answer = (source, ids[1:]) if source else (ids[:start], ids[start:])
    graph = {name: options[name] for name in GRAPH_OPTIONS if name in options}
    explanation: Explanation = explain(
        list(prompt), loaded, continuation=list(answer), keep_heads=False, **graph
    )
    scores = compute_scores(
        explanation,
        method=options["method"],
        layers=options.get("layer", -1),
        normalize=options.get("normalize"),
        answer="tokens",
    )
    places = [row.positions[0] for row in scores.rows]
    return lay_out(one_layer(scores), scores.columns, places, _first_target(explanation))


@dataclass(frozen=True)
class Explained:
    """A sequence of a padded batch: its scores, and the places of its tokens in the batch.

    scores: None if nothing of the sequence is explained.
    """

    scores: Generated | None
    source_places: tuple[int, ...]
    target_places: tuple[int, ...]

    def source_row(self, step: int, width: int) -> Scores:
        """The scores [width] of the encoder for the token after `step` places of the batch."""
        assert self.scores is not None
        assert self.scores.from_source is not None
        row = np.full(width, np.nan)
        row[list(self.source_places)] = self.scores.from_source[:, self._column(step)]
        return row

    def target_row(self, step: int) -> Scores:
        """The scores [step] of the prefix for the token after it."""
        assert self.scores is not None
        row = np.full(step, np.nan)
        before = [place for place in self.target_places if place < step]
        row[before] = self.scores.from_target[: len(before), self._column(step)]
        return row

    def _column(self, step: int) -> int:
        assert self.scores is not None
        return sum(place < step for place in self.target_places) - self.scores.start


def explain_batch(model: Any, batch: Any, start: int, options: dict[str, Any]) -> list[Explained]:
    """Explain each sequence of a batch of inseq.

    model: an AttributionModel. start: the place of the first generated token, of a decoder.
    """
    loaded = load_model(model.model, model.tokenizer)
    explained = []
    for i in range(len(batch.target_ids)):
        source, source_places = _unpad(batch.source_ids, batch.source_mask, i)
        target, places = _unpad(batch.target_ids, batch.target_mask, i)
        first = 1 if source else sum(place < start for place in places)
        scores = None
        if first < len(target):
            scores = explain_sequence(loaded, target, first, source=source, options=options)
        explained.append(Explained(scores, source_places, places))
    return explained


def _unpad(ids: Any, mask: Any, i: int) -> tuple[list[int], tuple[int, ...]]:
    """The ids of a sequence without padding, and their places; none without ids."""
    if ids is None:
        return [], ()
    row = ids[i].tolist()
    marks = [1] * len(row) if mask is None else mask[i].tolist()
    places = tuple(place for place, mark in enumerate(marks) if mark)
    return [row[place] for place in places], places


class GraphAttribution:
    """What our methods in inseq share: one explanation for each sequence, read step by step.

    The model runs once on each sequence. inseq then asks for one generated token after another, so
    that its step scores, spans and batches work as for its own methods.
    """

    graph_method = ""
    attribution_model: Any
    explained: Sequence[Explained] = ()
    active: Sequence[int] = ()
    step = 0

    def __init__(self, attribution_model: Any, **kwargs: Any) -> None:
        super().__init__(attribution_model, **kwargs)  # type: ignore[call-arg]
        self.use_predicted_target = False  # inseq warns if another function is to be attributed

    def get_attribution_args(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The arguments of `attribute` that are ours, and the rest."""
        ours = {name: value for name, value in kwargs.items() if name in OPTIONS}
        return ours, {name: value for name, value in kwargs.items() if name not in OPTIONS}

    def attribute(self, batch: Any, *args: Any, **kwargs: Any) -> Any:
        """Explain the sequences, then let inseq put the steps together."""
        options = {**kwargs.pop("attribution_args", {}), "method": self.graph_method}
        start = kwargs.get("attr_pos_start") or 1
        self.explained = explain_batch(self.attribution_model, batch, start, options)
        try:
            return super().attribute(batch, *args, **kwargs)  # type: ignore[misc]
        finally:
            self.explained = ()

    def filtered_attribute_step(self, batch: Any, *args: Any, **kwargs: Any) -> Any:
        """Note which sequences go on, before inseq takes out the others."""
        mask = kwargs.get("target_attention_mask")
        marks = [1] * len(batch.target_ids) if mask is None else mask.flatten().tolist()
        self.active = [i for i, mark in enumerate(marks) if mark]
        self.step = int(batch.target_ids.shape[1])
        return super().filtered_attribute_step(batch, *args, **kwargs)  # type: ignore[misc]

    def attribute_step(self, attribute_fn_main_args: Any, attribution_args: Any = None) -> Any:  # noqa: ARG002
        """The scores of the token after the prefix, for the sequences that go on."""
        data = import_optional("inseq.data.attribution", "attributing a step")
        torch = import_optional("torch", "attributing a step")
        chosen = [self.explained[i] for i in self.active]
        inputs = attribute_fn_main_args["inputs"]
        source, target = None, [sequence.target_row(self.step) for sequence in chosen]
        if self.attribution_model.is_encoder_decoder:
            width = inputs[0].shape[1]
            source = [sequence.source_row(self.step, width) for sequence in chosen]
        wanted = source is None or len(inputs) > 1  # attribute_target=True
        return data.CoarseFeatureAttributionStepOutput(
            source_attributions=None if source is None else torch.tensor(np.stack(source)),
            target_attributions=torch.tensor(np.stack(target)) if wanted else None,
        )


def register() -> tuple[type, ...]:
    """Make every method of attnflow known to inseq, as "attention_" and its name.

    Importing this module calls it, if inseq is installed. Methods that inseq has already are left.
    """
    with catch_warnings():
        simplefilter("ignore", ResourceWarning)  # inseq leaves a file open when it is imported
        base = import_optional(
            "inseq.attr.feat.internals_attribution", "registering methods with inseq"
        ).InternalsAttributionRegistry
    known = base.available_classes()
    return tuple(
        known.get(PREFIX + method.name)
        or type(
            f"{''.join(part.title() for part in method.name.split('_'))}GraphAttribution",
            (GraphAttribution, base),
            {
                "__doc__": f"{method.title} of attnflow: {method.summary}",
                "__module__": __name__,
                "method_name": PREFIX + method.name,
                "graph_method": method.name,
            },
        )
        for method in METHODS
    )


# inseq finds subclasses only as long as they exist.
REGISTERED = register() if find_spec("inseq") else ()
