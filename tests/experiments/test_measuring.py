"""What is measured of each text is what the public functions give for it."""

import numpy as np
import pytest

from attnflow import explain, load_model
from attnflow.importance import blank_out, input_gradients
from attnflow.paper.experiments.agreement import encode, stages
from attnflow.paper.experiments.correlating import compare, correlate, listed, select, sum_up
from attnflow.paper.experiments.measuring import Attending, open_model
from attnflow.paper.experiments.options import Options
from attnflow.paper.experiments.sentences import read_agreement

NAN = float("nan")


@pytest.fixture(scope="module", params=["verb-number", "verb-number-causal"])
def texts(request):
    options = Options(data="grammar", examples=4)
    return encode(load_model(request.param), read_agreement(options).natural, options)


@pytest.mark.parametrize(
    "how",
    [
        Attending(),
        Attending(residual_weight=0.8, normalize="receptive_field"),
        Attending(edges="gradient"),
        Attending(edges="value"),
    ],
)
def test_attention_is_that_of_explain(texts, how):
    measured = texts.attention(how)
    for one, found in zip(texts.encoded, measured, strict=True):
        explanation = explain(
            one.text, texts.loaded, residual_weight=how.residual_weight, edges=how.edges
        )
        for method in ("raw", "rollout", "flow"):
            expected = getattr(explanation, method)(normalize=how.normalize).to_numpy()[:, 0]
            assert found[method] == pytest.approx(expected, abs=1e-5)


def test_the_highest_row_is_the_best_of_all_positions(texts):
    measured = texts.attention(Attending(rows="highest"))
    for one, found in zip(texts.encoded, measured, strict=True):
        explanation = explain(one.text, texts.loaded)
        everywhere = range(len(one.tokens))
        scores = explanation.flow(positions=everywhere, normalize="rows").to_numpy()
        assert found["flow"] == pytest.approx(scores.max(axis=1), abs=1e-5)


def test_importance_is_that_of_the_public_functions(texts):
    for one, found in zip(texts.encoded, texts.importance(), strict=True):
        expected = blank_out(texts.loaded, one.text)
        assert found["blank_out"] == pytest.approx(expected.to_numpy()[0, 0], abs=1e-6)
        for variant in ("l2", "times_input"):
            row = input_gradients(texts.loaded, one.text, variant=variant).to_numpy()[0, 0]
            assert found[variant] == pytest.approx(row, rel=1e-3, abs=1e-5)
        assert found["probability"] == pytest.approx([expected.settings["probability"]])


def test_correlations_by_hand():
    attention = [{"raw": np.asarray([[1.0, 2, 3, 4], [4, 3, 2, 1]])}]
    importance = [np.asarray([9.0, 1, 2, 3])]
    # Ranks 1 2 3 4 against 4 1 2 3: squares 9 1 1 1, so 1 - 6 * 12 / 60 = -0.2.
    every = correlate(attention, importance, methods=("raw",))["raw"]
    assert every == pytest.approx(np.asarray([[-0.2, 0.2]]))
    first = [np.asarray([True, False, False, False])]
    without = correlate(attention, importance, leave_out=first, methods=("raw",))["raw"]
    assert without == pytest.approx(np.asarray([[1.0, -1.0]]))


def test_importance_is_absolute_unless_told():
    measured = [{"blank_out": np.asarray([-0.5, 0.25])}]
    assert select(measured, "blank_out")[0].tolist() == [0.5, 0.25]
    assert select(measured, "blank_out", lambda v: v)[0].tolist() == [-0.5, 0.25]


def test_what_has_no_value_is_none_in_json():
    assert listed(np.asarray([0.123456789, NAN])) == [0.12346, None]
    summed = sum_up({"raw": np.asarray([[NAN, 1.0], [NAN, 0.0]])})["raw"]
    assert summed == {"mean": [None, 0.5], "sd": [None, 0.5], "n": [0, 2], "left_out": [2, 0]}


def test_p_values_are_corrected_for_all_pairs_and_layers():
    zero = np.zeros((5, 1))
    rhos = {"a": zero, "b": zero + np.arange(1, 6)[:, None], "c": zero - np.arange(1, 6)[:, None]}
    found = compare(rhos, [("b", "a"), ("c", "a")], seed=0, resamples=100)
    assert [one["p"] for one in found] == [[0.125], [0.125]]  # 2/32, of two tests
    assert [one["difference"] for one in found] == [[3.0], [-3.0]]


def test_stages_share_one_bar():
    steps = []
    begin = stages(lambda *step: steps.append(step), 2)
    for done in (1, 2):
        stage = begin()
        assert stage is not None
        stage(done, 2)
    assert steps == [(500, 2000), (2000, 2000)]
    assert stages(None, 1)() is None


def test_a_model_is_opened_where_it_is_asked_for():
    loaded = open_model(Options(device="cpu", threads=1), "verb-number-causal")
    assert loaded.name == "verb-number-causal"


def test_texts_that_came_before_are_left_out():
    options = Options(data="grammar", examples=3)
    first, second, third = read_agreement(options).natural
    texts = encode(load_model(), [first, second, first, third, second], options)
    assert texts.first_of_each() == [0, 1, 3]
