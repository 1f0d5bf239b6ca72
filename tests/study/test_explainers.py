"""The explainers of a study, against `explain` and against each other."""

from importlib.util import find_spec

import numpy as np
import pytest
import torch

from attnflow import explain
from attnflow.errors import InputError, SelectionError
from attnflow.methods.flow import group_flow
from attnflow.study.case import Question, make_case
from attnflow.study.explainers import (
    EXPLAINERS,
    Edges,
    attribute,
    capture,
    check_scores,
    default_opponents,
    explain_all,
    explainer_title,
    register_explainer,
    resolve_explainers,
)
from attnflow.study.masked_model import MaskedModel
from tests.models.checkpoints import make_loaded
from tests.refusal import refusal
from tests.study.small_models import make_encoder_decoder, make_llama, make_pieces

TEXT = "the key to the cabinets"
CASES = {
    "classifier": lambda: make_case(make_loaded(), TEXT),
    "words": lambda: make_case(make_pieces(), "the cabinets is key", words=True),
    "masked_lm": lambda: make_case(make_loaded("BertForMaskedLM"), "the key [MASK] here"),
    "decoder": lambda: make_case(make_llama(start=True), TEXT),
    "continuation": lambda: make_case(
        make_llama(start=True), TEXT, Question(continuation="is here the")
    ),
    "contrast": lambda: make_case(
        make_llama(start=True), TEXT, Question(target="is", against="are")
    ),
}
TEXTS = [
    entry.name
    for entry in EXPLAINERS
    if entry.inputs != "image" and (entry.name != "attn_lrp" or find_spec("lxt"))
]
EDGES = ["attention", "attention:measured", "alti", "norm", "gradient"]


@pytest.fixture(scope="module")
def cases():
    return {name: make() for name, make in CASES.items()}


@pytest.fixture(scope="module")
def encoder_decoder():
    return make_case(make_encoder_decoder("T5"), TEXT)


@pytest.mark.parametrize("edges", EDGES)
@pytest.mark.parametrize("method", ["raw", "rollout", "flow", "joint_flow"])
@pytest.mark.parametrize("name", ["classifier", "masked_lm", "decoder"])
def test_one_position_is_that_of_explain(cases, name, method, edges):
    case = cases[name]
    parsed = Edges.parse(edges)
    scores = attribute(case, capture(case, parsed), method)
    explanation = explain(
        case.encoded, case.loaded, edges=parsed.name, residual_weight=parsed.residual_weight
    )
    expected = explanation.attribute(method, layers=-1, positions=case.positions).to_numpy()[0, 0]
    np.testing.assert_allclose(scores, expected[[i for (i,) in case.units]], rtol=0, atol=1e-5)
    assert np.ptp(scores) > 1e-4


@pytest.mark.parametrize("method", ["raw", "rollout", "joint_flow"])
def test_several_positions_are_averaged(cases, method):
    case = cases["continuation"]
    graph = capture(case, Edges("attention"))
    explanation = explain(case.encoded, case.loaded, edges="attention")
    rows = explanation.attribute(method, layers=-1, positions=[5, 6, 7]).to_numpy()[0]
    assert case.positions == [5, 6, 7]
    np.testing.assert_allclose(attribute(case, graph, method), rows.mean(0)[1:6], rtol=0, atol=1e-5)


def test_the_flow_from_several_positions_is_one_flow(cases):
    case = cases["continuation"]
    graph = capture(case, Edges("attention"))
    one = group_flow(graph, layers=-1, positions=[[5, 6, 7]], tokens=list(range(1, 6)))
    np.testing.assert_allclose(attribute(case, graph, "flow"), one.values[0, 0] / 3, atol=1e-12)
    rows = explain(case.encoded, case.loaded, edges="attention").flow(layers=-1, positions=[5, 6])
    assert (attribute(case, graph, "flow") * 3 >= rows.to_numpy()[0, :, 1:6].max(0) - 1e-5).all()


@pytest.mark.parametrize("method", ["raw", "rollout", "flow", "joint_flow"])
def test_words_are_those_of_explain(cases, method):
    case = cases["words"]
    scores = attribute(case, capture(case, Edges("attention")), method)
    explanation = explain(case.encoded, case.loaded)
    words = explanation.attribute(method, layers=-1, positions=0, words=True)
    # [CLS] and [SEP] are words, too.
    np.testing.assert_allclose(scores, words.to_numpy()[0, 0, 1:-1], rtol=0, atol=1e-5)
    assert len(scores) == 4


def test_another_layer_can_be_chosen(cases):
    case = cases["classifier"]
    graph = capture(case, Edges("attention"))
    first = explain(case.encoded, case.loaded).rollout(layers=1, positions=0).to_numpy()[0, 0]
    np.testing.assert_allclose(
        attribute(case, graph, "rollout", layer=1), first[1:-1], rtol=0, atol=1e-5
    )


@pytest.mark.parametrize("heads", ["mean", "max"])
def test_heads_are_merged_as_in_explain(cases, heads):
    case = cases["classifier"]
    scores = attribute(case, capture(case, Edges("attention"), heads), "rollout")
    expected = explain(case.encoded, case.loaded, heads=heads).rollout(layers=-1, positions=0)
    np.testing.assert_allclose(scores, expected.to_numpy()[0, 0, 1:-1], rtol=0, atol=1e-5)


def test_gradient_edges_follow_the_target(cases):
    loaded = cases["classifier"].loaded
    scores = []
    for target in (0, 1):
        case = make_case(loaded, TEXT, Question(target=target))
        scores.append(attribute(case, capture(case, Edges("gradient")), "rollout"))
        expected = explain(TEXT, loaded, edges="gradient", target=target)
        row = expected.rollout(layers=-1, positions=0).to_numpy()[0, 0, 1:-1]
        np.testing.assert_allclose(scores[-1], row, rtol=0, atol=1e-5)
    assert np.abs(scores[0] - scores[1]).max() > 1e-4


def test_edges_are_parsed():
    assert Edges.parse("alti") == Edges("alti")
    assert Edges.parse("attention:measured") == Edges("attention", "measured")
    assert Edges.parse("attention:0.30") == Edges("attention", 0.3)
    for text in ("alti", "attention:measured", "attention:0.3"):
        assert Edges.parse(text).text == text


@pytest.mark.parametrize("text", ["alti:0.5", "attention:", "attention:half", "gradient:measured"])
def test_a_residual_weight_that_does_not_fit_is_refused(text):
    with refusal(InputError, "residual_weight", repr(text.partition(":")[2]).strip("'")):
        Edges.parse(text)


def test_unknown_edges_are_refused():
    with refusal(SelectionError, "'cosine'", "alti"):
        Edges.parse("cosine")


def test_titles():
    assert explainer_title("rollout/alti") == "rollout, ALTI"
    assert explainer_title("flow/value") == "flow, value norm"
    assert explainer_title("joint_flow/attention:0.3") == "joint flow, attention, residual 0.3"
    assert explainer_title("attn_lrp") == "AttnLRP"
    assert explainer_title("gradient_times_input") == "gradient x input"
    assert explainer_title("from_elsewhere") == "from elsewhere"


def test_all_explainers_of_a_study_have_a_name():
    names = resolve_explainers(["raw", "flow"], ["attention:0.50", "alti"], ["leave_one_out"])
    assert names[:5] == [
        "raw/attention:0.5",
        "flow/attention:0.5",
        "raw/alti",
        "flow/alti",
        "leave_one_out",
    ]
    # Baselines are part of every study, and named once if they are asked for.
    baselines = ["random", "position", "recency", "frequency", "embedding_norm"]
    assert names[5:] == baselines
    assert resolve_explainers([], [], ["random"]) == baselines


def test_names_that_are_not_registered_are_refused():
    with refusal(SelectionError, "'shapley'", "leave_one_out"):
        resolve_explainers([], [], ["shapley"])
    with refusal(SelectionError, "'walk'", "rollout"):
        resolve_explainers(["walk"], ["alti"], [])
    with refusal(SelectionError, "'cosine'", "alti"):
        resolve_explainers(["flow"], ["cosine"], [])


def test_default_opponents_are_no_baselines():
    names = default_opponents()
    assert {"leave_one_out", "integrated_gradients"} <= set(names)
    assert not {"random", "attn_lrp"} & set(names)


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("kind", CASES)
def test_every_explainer_has_finite_scores(cases, kind, name):
    case = cases[kind]
    scores = EXPLAINERS[name].explain(case)
    assert scores.shape == (len(case.units),)
    assert scores.dtype == np.float64
    assert check_scores(name, scores) is scores
    assert (np.ptp(scores) > 0) == (name != "random")


@pytest.mark.parametrize("name", [name for name in TEXTS if name not in ("alti_logit", "attn_lrp")])
def test_these_explainers_take_an_encoder_decoder(encoder_decoder, name):
    scores = EXPLAINERS[name].explain(encoder_decoder)
    assert scores.shape == (5,)
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("method", ["raw", "rollout", "flow"])
def test_methods_take_an_encoder_decoder(encoder_decoder, method):
    case = encoder_decoder
    scores = attribute(case, capture(case, Edges("attention")), method)
    expected = explain(TEXT, case.loaded, edges="attention").attribute(method, layers=-1)
    row = expected.row(position=case.positions[0], layer=expected.layers[-1])
    np.testing.assert_allclose(scores, np.asarray(row)[1:6], rtol=0, atol=1e-5)


def test_gradients_are_those_of_the_importance(cases):
    from attnflow.importance import input_gradients, integrated_gradients

    case = cases["classifier"]
    lengths = input_gradients(TEXT, case.loaded).to_numpy()[0, 0, 1:-1]
    np.testing.assert_allclose(EXPLAINERS["input_gradients"].explain(case), lengths, atol=1e-6)
    products = input_gradients(TEXT, case.loaded, variant="times_input").to_numpy()[0, 0, 1:-1]
    signed = EXPLAINERS["gradient_times_input"].explain(case)
    np.testing.assert_allclose(np.abs(signed), products, atol=1e-6)
    path = integrated_gradients(TEXT, case.loaded, baseline="mean", steps=32)
    np.testing.assert_allclose(
        EXPLAINERS["integrated_gradients"].explain(case), path.to_numpy()[0, 0, 1:-1], atol=1e-6
    )


def test_gradients_of_a_continuation_are_summed_over_its_steps(cases):
    case = cases["continuation"]
    model, ids = case.loaded.model, case.encoded.inputs["input_ids"]
    layer = model.get_input_embeddings()
    lengths, products = np.zeros(8), np.zeros(8)
    for step in case.steps:
        x = layer(ids).detach().requires_grad_()
        score = model(inputs_embeds=x).logits[0, step.position, step.contrast.target]
        [g] = torch.autograd.grad(score, x)
        lengths += g[0].norm(dim=-1).numpy() / 3
        products += (g * x)[0].sum(-1).detach().numpy()
    np.testing.assert_allclose(
        EXPLAINERS["input_gradients"].explain(case), lengths[1:6], rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(
        EXPLAINERS["gradient_times_input"].explain(case), products[1:6], rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("kind", ["classifier", "words", "continuation"])
def test_leave_one_out_is_the_drop_of_log_p(cases, kind):
    case = cases[kind]
    masked = MaskedModel(case)
    n = len(case.units)
    drops = [
        masked.log_probability(np.zeros((1, n), dtype=bool))[0]
        - masked.log_probability(np.arange(n)[None] == i)[0]
        for i in range(n)
    ]
    np.testing.assert_allclose(EXPLAINERS["leave_one_out"].explain(case), drops, atol=1e-5)


def test_baselines_by_hand(cases):
    case = cases["words"]  # the cabinet ##s is key: 5, 7 8, 9, 6
    values = {name: EXPLAINERS[name].explain(case) for name in ("random", "position", "recency")}
    assert np.ptp(values["random"]) == 0
    assert np.argsort(-values["position"]).tolist() == [0, 1, 2, 3]
    assert np.argsort(-values["recency"]).tolist() == [3, 2, 1, 0]
    assert EXPLAINERS["frequency"].explain(case).tolist() == [5, 7.5, 9, 6]
    weights = case.loaded.model.get_input_embeddings().weight.detach().double()
    lengths = weights.norm(dim=-1)[[5, 7, 8, 9, 6]].tolist()
    expected = [lengths[0], lengths[1] + lengths[2], lengths[3], lengths[4]]
    assert EXPLAINERS["embedding_norm"].explain(case) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["position", "recency"])
def test_the_sign_of_scores_does_not_change_the_order_of_positions(cases, name):
    from attnflow.evaluation.orders import rank_by, tie_ranks

    scores = EXPLAINERS[name].explain(cases["classifier"])
    for sign in ("positive", "absolute"):
        assert (tie_ranks(rank_by(scores, sign)) == tie_ranks(scores)).all()


def test_explainers_share_graphs(cases, monkeypatch):
    case = cases["classifier"]
    captured = []

    def count(case, edges, heads):
        captured.append((edges.text, heads))
        return capture(case, edges, heads)

    monkeypatch.setattr("attnflow.study.explainers.capture", count)
    names = ["raw/attention", "rollout/attention", "leave_one_out", "flow/attention", "raw/value"]
    scores = {name: compute() for name, compute in explain_all(case, names, heads="max")}
    assert list(scores) == names
    assert captured == [("attention", "max"), ("value", "max")]
    graph = capture(case, Edges("attention"), "max")
    np.testing.assert_allclose(scores["flow/attention"], attribute(case, graph, "flow"))
    np.testing.assert_allclose(
        scores["leave_one_out"], EXPLAINERS["leave_one_out"].explain(case), atol=1e-6
    )


def test_explainers_of_a_list_keep_their_names(cases):
    # Functions are called after the loop, too: each must remember its own name.
    computed = dict(explain_all(cases["classifier"], ["position", "recency", "raw/alti"]))
    assert np.argmax(computed["position"]()) == 0
    assert np.argmax(computed["recency"]()) == 4
    assert computed["raw/alti"]().shape == (5,)


def test_an_explainer_can_be_registered(cases):
    def lengths(case):
        return np.asarray([len(label) for label in case.labels])

    entry = register_explainer("longest_word", lengths, summary="its length.")
    try:
        assert (entry.title, entry.kind) == ("Longest word", "opponent")
        assert entry.explain(cases["classifier"]).tolist() == [3, 3, 2, 3, 8]
        assert "longest_word" in resolve_explainers([], [], ["longest_word"])
        assert "longest_word" in default_opponents()
        with refusal(InputError, "longest_word"):
            register_explainer("longest_word", lengths, summary="again.")
    finally:
        EXPLAINERS.unregister("longest_word")


def test_scores_that_are_not_finite_are_refused():
    for value in (np.nan, np.inf):
        with refusal(InputError, "mine"):
            check_scores("mine", np.asarray([1.0, value]))
