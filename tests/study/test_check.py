"""The check of one explanation, against all changed texts run by hand."""

import json
import pickle
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from attnflow import Explanation
from attnflow.cli.render import to_json
from attnflow.errors import InputError, SelectionError
from attnflow.explainer import explain, explain_image
from attnflow.models.vision import load_image_model
from attnflow.study.case import Question
from attnflow.study.check import MEAN_ORDERS, ORDERS, check_methods
from attnflow.study.image_case import MaskedImage, make_image_case
from attnflow.viewer.payload import make_payload
from tests.models.checkpoints import make_loaded, make_model
from tests.refusal import refusal
from tests.study.small_images import GRID, make_picture, save_vit

TEXT = "the key to cabinets are"
N = 5  # words, all of them ranked
UNKNOWN = 1
BINS = (1, 1, 1, 1, 3)  # 1, 5, 10, 20 and 50 % of 5 tokens, at least one


@pytest.fixture(scope="module")
def loaded():
    return make_loaded()


@pytest.fixture(scope="module")
def explanation(loaded):
    return explain(TEXT, loaded)


@pytest.fixture(scope="module")
def chances(loaded):
    """The probability of the prediction for all sets of removed words."""
    ids = loaded.tokenizer(TEXT)["input_ids"]
    sets = list(product((False, True), repeat=N))
    rows = [
        [UNKNOWN if 0 < i <= N and removed[i - 1] else token for i, token in enumerate(ids)]
        for removed in sets
    ]
    with torch.no_grad():
        p = loaded.model(input_ids=torch.tensor(rows)).logits.double().softmax(-1)
    return dict(zip(sets, p[:, int(p[0].argmax())].tolist(), strict=True))


def drop(chances, scores, *, keep=False):
    """How much p drops without the words with the highest scores, or with only these."""
    order = np.argsort(-np.asarray(scores), kind="stable")
    drops = []
    for count in BINS:
        top = np.isin(range(N), order[:count])
        drops.append(chances[(False,) * N] - chances[tuple((~top if keep else top).tolist())])
    return np.mean(drops)


def test_values_by_hand(explanation, chances):
    check = explanation.faithfulness()
    scores = explanation.rollout().row(layer=-1)[1:-1]
    assert check.explainer == "rollout/attention"
    assert check.label == explanation.prediction.target.label
    assert check.replacement == "unknown"
    assert check.comprehensiveness == pytest.approx(drop(chances, scores), abs=1e-6)
    assert check.sufficiency == pytest.approx(drop(chances, scores, keep=True), abs=1e-6)
    assert explanation.checks["rollout"] is check
    raw = explanation.raw().row(layer=-1)[1:-1]
    assert check.compared["raw/attention"] == pytest.approx(drop(chances, raw), abs=1e-6)
    others = {"raw/attention", "flow/attention", "rollout/alti"}
    assert others | {"input_gradients", "gradient_times_input"} < set(check.compared)
    assert check.compared[check.best] == max(check.compared.values())


def test_the_share_of_random_orders_that_is_beaten(explanation, chances):
    checks = check_methods(explanation, ["rollout", "raw"])
    orders = np.random.default_rng(0).permuted(np.tile(np.arange(N), (ORDERS, 1)), axis=1)
    drops = np.asarray([drop(chances, order) for order in orders])
    kept = np.mean([drop(chances, order, keep=True) for order in orders[:MEAN_ORDERS]])
    assert np.ptp(drops) > 0.01
    for method, check in checks.items():
        own = drop(chances, explanation.attribute(method).row(layer=-1)[1:-1])
        tied = np.abs(drops - own) < 1e-9
        beaten = sum(1.0 if d < own else 0.0 for d in drops[~tied]) + tied.sum() / 2
        assert check.beaten == pytest.approx(beaten / ORDERS)
        assert check.random == pytest.approx(drops.mean(), abs=1e-6)
        assert check.random_sufficiency == pytest.approx(kept, abs=1e-6)


def test_the_sentence(explanation):
    check = explanation.faithfulness("raw")
    text = str(check)
    assert f"p({check.label})" in text
    assert f"{abs(check.comprehensiveness):.2g}" in text
    assert f"{check.beaten:.0%} of {ORDERS}" in text
    assert f"of {len(check.compared)} here" in text
    assert ("the best of" in text) == (check.best == check.explainer)


def test_a_probability_that_rises_is_not_a_negative_drop(explanation):
    check = replace(explanation.faithfulness(), comprehensiveness=-0.17, random=0.34)
    assert "rises by 0.17" in str(check)
    assert "drops by 0.34" in str(check)
    small = replace(check, comprehensiveness=0.00784, random=0.00693)
    assert "drops by 0.0078" in str(small)
    assert "drops by 0.0069" in str(small)


def test_checks_are_part_of_json_and_of_pages(loaded):
    explanation = explain(TEXT, loaded)
    results = [explanation.rollout(), explanation.raw()]
    assert make_payload([explanation]).header()["checks"] == {}
    assert not any(
        "check" in one for one in json.loads(to_json(explanation, results, 3))["attributions"]
    )
    check = explanation.faithfulness()
    rollout, raw = json.loads(to_json(explanation, results, 3))["attributions"]
    assert rollout["check"]["comprehensiveness"] == check.comprehensiveness
    assert rollout["check"]["compared"] == dict(check.compared)
    assert "check" not in raw
    assert make_payload([explanation]).header()["checks"] == {"rollout": str(check)}


def test_a_loaded_explanation_needs_the_model(explanation, loaded, tmp_path):
    explanation.save(tmp_path / "a.safetensors")
    stored = Explanation.load(tmp_path / "a.safetensors")
    assert stored.origin is None
    with refusal(InputError, "model"):
        stored.faithfulness()
    check, expected = stored.faithfulness(model=loaded), explanation.faithfulness()
    assert check.comprehensiveness == pytest.approx(expected.comprehensiveness, abs=1e-6)
    assert check.beaten == pytest.approx(expected.beaten)


def test_the_origin_stays_in_the_process(explanation):
    assert explanation.origin is not None
    assert explanation.on_host().origin is None
    copy = pickle.loads(pickle.dumps(explanation))
    assert copy.origin is None
    assert copy.tokens == explanation.tokens
    assert explanation.origin is not None


def test_the_target_of_the_explanation_is_kept(loaded, chances):
    predicted = explain(TEXT, loaded).prediction
    assert predicted is not None
    other = explain(TEXT, loaded, target=1 - predicted.target.index)
    check = other.faithfulness()
    assert other.prediction is not None
    assert check.label == other.prediction.target.label != predicted.target.label
    rest = {removed: 1 - p for removed, p in chances.items()}  # of two classes
    scores = other.rollout().row(layer=-1)[1:-1]
    assert check.comprehensiveness == pytest.approx(drop(rest, scores), abs=1e-6)


def test_other_replacements_and_words(explanation):
    assert explanation.faithfulness(replacement="mask").replacement == "mask"
    removed = explanation.faithfulness(replacement="remove", words=True)
    assert removed.replacement == "remove"
    with refusal(InputError, "'blank'", "unknown"):
        explanation.faithfulness(replacement="blank")
    with refusal(SelectionError, "'rollouts'", "rollout"):
        explanation.faithfulness("rollouts")


def test_a_model_without_a_prediction_is_refused(loaded):
    plain = explain(TEXT, make_model("BertModel"), tokenizer=loaded.tokenizer)
    with pytest.raises(InputError):
        plain.faithfulness()


def test_the_bundled_model():
    check = explain("the keys to the old cabinet").faithfulness()
    assert check.label == "plural"
    assert check.comprehensiveness > check.random
    assert check.beaten > 0.8


def test_an_image(tmp_path):
    picture = make_picture()
    explanation = explain_image(picture, save_vit(tmp_path))
    check = explanation.faithfulness()
    assert check.replacement == "mean"
    assert "input_gradients" in check.compared
    assert 0 <= check.beaten <= 1
    case = make_image_case(load_image_model(str(tmp_path)), picture, Question())
    model = MaskedImage(case, "mean", batch_tokens=99, draws=1, seed=0)
    order = np.argsort(-explanation.rollout().row(layer=-1).numpy()[1:])
    sets = np.stack([np.isin(range(GRID**2), order[:n]) for n in (0, 1, 1, 2, 4, 8)])
    full, *left = np.exp(model.log_probability(sets))
    assert check.comprehensiveness == pytest.approx(full - np.mean(left), abs=1e-5)
    assert explanation.faithfulness(replacement="blur").replacement == "blur"
    explanation.save(tmp_path / "a.safetensors")
    with refusal(InputError, "image"):
        Explanation.load(tmp_path / "a.safetensors").faithfulness(model=str(tmp_path))
