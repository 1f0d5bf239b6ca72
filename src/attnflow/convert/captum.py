"""Captum: results that its functions plot, for answers, classifiers and images."""

from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnflow.attribution import Attribution, Normalize
from attnflow.convert.source import Scores, Source, compute_scores, one_layer, prompt_columns
from attnflow.errors import InputError
from attnflow.explanation import Explanation, ImageGrid
from attnflow.optional import import_optional
from attnflow.predictions import Prediction


class CaptumImage(NamedTuple):
    """The first two arguments of `captum.attr.visualization.visualize_image_attr`.

    attr: [height, width, 1], the score of the patch at each pixel. original_image: [height, width,
    3], the image as the model sees it.
    """

    attr: Scores
    original_image: NDArray[np.uint8]


def to_captum(
    source: Source,
    *,
    method: str | None = None,
    layer: int = -1,
    normalize: Normalize | None = None,
    true_class: Any = None,
) -> Any:
    """Convert scores to a result of Captum.

    An answer or a next token becomes an LLMAttributionResult: token_attr [generated, prompt], the
    row of each generated token, and seq_attr [prompt], that of the whole answer. So does an
    Attribution: its positions are the output tokens, and seq_attr their mean.
    A class or masked word becomes a VisualizationDataRecord for `visualize_text`. Its colors end at
    1 and -1, so word_attributions are divided by the highest score; attr_score is the sum of the
    scores before.
    An image becomes a CaptumImage for `visualize_image_attr`.
    method, layer, normalize: which scores; for an Explanation by default rollout at the last layer.
    true_class: the right class of a VisualizationDataRecord, if it is known.
    Results have a further attribute `offsets`: where each input token is in the text.
    Raises InputError for a model that predicts nothing, MissingDependencyError without Captum.
    """
    import_optional("captum.attr", "to_captum")
    options: dict[str, Any] = {"method": method, "layers": layer, "normalize": normalize}
    if not isinstance(source, Explanation):
        scores = compute_scores(source, **options)
        return _answer(scores, one_layer(scores).mean(axis=0), None)
    if source.answer is not None:
        scores = compute_scores(source, **options, answer="tokens")
        whole = one_layer(compute_scores(source, **options))[0]
        return _answer(scores, whole, [step.target.probability for step in source.answer.steps])
    scores = compute_scores(source, **options)
    if source.image is not None and source.image.first + _size(source.image) <= len(source.tokens):
        return _image(one_layer(scores)[0], source.image)
    prediction = source.prediction
    if prediction is None:
        raise InputError(
            "the model predicts nothing",
            expected="a classifier or a language model",
            fix="Pass an Attribution: to_captum(explanation.rollout()).",
        )
    if prediction.kind == "next token":
        result = _answer(scores, one_layer(scores)[0], [prediction.target.probability])
        result.output_tokens = [prediction.target.label]
        return result
    return _record(scores, prediction, true_class)


def _answer(scores: Attribution, whole: Scores, probabilities: list[float] | None) -> Any:
    """The result for generated tokens. whole: the scores of all of them together."""
    result_class = import_optional("captum.attr", "to_captum").LLMAttributionResult
    torch = import_optional("torch", "to_captum")
    kept = prompt_columns(scores)
    places = [scores.columns[i] for i in kept]
    result = result_class(
        input_tokens=[scores.labels[i] for i in places],
        output_tokens=[scores.row_labels[i] for i in scores.positions],
        seq_attr=torch.tensor(whole[kept]).float(),
        token_attr=torch.tensor(one_layer(scores)[:, kept]).float(),
    )
    if probabilities is not None:  # an attribute of newer versions
        result.output_probs = torch.tensor(probabilities)
    result.offsets = None if scores.offsets is None else [scores.offsets[i] for i in places]
    return result


def _record(scores: Attribution, prediction: Prediction, true_class: Any) -> Any:
    """The record for a class or a masked word."""
    visualization = import_optional("captum.attr", "to_captum").visualization
    torch = import_optional("torch", "to_captum")

    class Record(visualization.VisualizationDataRecord):  # type: ignore[misc, name-defined]
        """A record that also says where each token is in the text."""

        offsets: Any = None

    row = one_layer(scores)[0]
    highest = float(np.abs(row).max())
    target = prediction.target
    record = Record(
        word_attributions=torch.tensor(row / highest if highest else row).float(),
        pred_prob=prediction.probability,
        pred_class=prediction.label,
        true_class="unknown" if true_class is None else true_class,
        attr_class=target.label,
        attr_score=float(row.sum()),
        raw_input_ids=[scores.labels[i] for i in scores.columns],
        convergence_score=float("nan"),
    )
    known = scores.offsets
    record.offsets = None if known is None else [known[i] for i in scores.columns]
    return record


def _size(grid: ImageGrid) -> int:
    return grid.rows * grid.columns


def _image(row: Scores, grid: ImageGrid) -> CaptumImage:
    """The scores of patches, spread over the pixels of the image."""
    open_image = import_optional("PIL.Image", "to_captum of an image").open
    pixels = np.asarray(open_image(BytesIO(grid.png)).convert("RGB"), dtype=np.uint8)
    patches = row[grid.first : grid.first + _size(grid)].reshape(grid.rows, grid.columns)
    height, width = pixels.shape[:2]
    down = np.arange(height) * grid.rows // height
    across = np.arange(width) * grid.columns // width
    return CaptumImage(patches[np.ix_(down, across)][:, :, None], pixels)
