"""to_inseq and the methods that inseq finds by name. Most tests need inseq itself."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from attnflow import AttentionGraph, Explanation, InputError
from attnflow.convert import to_inseq
from attnflow.convert.inseq import explain_batch, lay_out
from tests.convert.models import PROMPT, explain, make_speaker, make_translator
from tests.refusal import refusal

METHODS = ("raw", "rollout", "flow", "joint_flow")


@pytest.fixture(scope="module")
def inseq():
    return pytest.importorskip("inseq")


@pytest.fixture(scope="module")
def speaker():
    return make_speaker()


@pytest.fixture(scope="module")
def translator():
    return make_translator()


def wrap(inseq, loaded, method="attention_rollout"):
    """The model as inseq takes it; the rest of inseq needs no name of a model."""
    return inseq.load_model(loaded.model, method, tokenizer=loaded.tokenizer, device="cpu")


def test_cells_of_later_tokens_are_nan():
    scores = np.asarray([[0.2, 0.8, 0.0, 0.0], [0.1, 0.3, 0.6, 0.0]])
    generated = lay_out(scores, range(4), [1, 2], 0)
    expected = [[0.2, 0.1], [0.8, 0.3], [np.nan, 0.6], [np.nan, np.nan]]
    np.testing.assert_array_equal(generated.from_target, expected)
    assert generated.from_source is None
    assert (generated.source, generated.target, generated.start) == ((0, 1), (0, 1, 2, 3), 2)


def test_an_encoder_decoder_has_a_source_and_a_target():
    scores = np.asarray([[0.5, 0.2, 0.3, 0.0], [0.4, 0.1, 0.2, 0.3]])
    generated = lay_out(scores, range(4), [2, 3], 2)
    np.testing.assert_array_equal(generated.from_source, [[0.5, 0.4], [0.2, 0.1]])
    np.testing.assert_array_equal(
        generated.from_target, [[0.3, 0.2], [np.nan, 0.3], [np.nan, np.nan]]
    )
    assert (generated.source, generated.target, generated.start) == ((0, 1), (2, 3, 4), 1)


def test_hidden_tokens_have_no_scores():
    generated = lay_out(np.asarray([[0.7, 0.3]]), [1, 2], [2], 0)
    np.testing.assert_array_equal(generated.from_target[:, 0], [np.nan, 0.7, 0.3, np.nan])


def test_scores_of_later_tokens_are_refused():
    with refusal(InputError, "decoder"):
        lay_out(np.asarray([[0.5, 0.2, 0.3]]), range(3), [1], 0)


@pytest.mark.usefixtures("inseq")
def test_the_tokens_and_scores_of_a_decoder(speaker):
    explanation = explain(PROMPT, speaker, generate=3)
    for method in METHODS:
        [sequence] = to_inseq(explanation, method=method, layer=1)
        n, first = len(explanation.tokens), explanation.answer.first
        assert [token.token for token in sequence.target] == list(explanation.tokens)
        assert [token.id for token in sequence.target][first:] == list(explanation.answer.ids)
        assert sequence.source == sequence.target[:first]
        assert (sequence.attr_pos_start, sequence.attr_pos_end) == (first, n)
        assert sequence.source_attributions is None
        scores = explanation.attribute(method, answer="tokens", layers=1).to_numpy()[0]
        for i in range(3):
            column = sequence.target_attributions[:, i].numpy()
            np.testing.assert_allclose(column[: first + i], scores[i, : first + i], rtol=1e-6)
            assert np.isnan(column[first + i :]).all()


@pytest.mark.usefixtures("inseq")
def test_the_next_token_is_a_column(speaker):
    explanation = explain(PROMPT, speaker)
    [sequence] = to_inseq(explanation)
    target = explanation.prediction.target
    assert (sequence.target[-1].token, sequence.target[-1].id) == (target.label, target.index)
    row = explanation.rollout(layers=-1).to_numpy()[0, 0]
    np.testing.assert_allclose(sequence.target_attributions[:-1, 0].numpy(), row, rtol=1e-6)
    assert np.isnan(sequence.target_attributions[-1, 0].item())


@pytest.mark.usefixtures("inseq")
def test_the_tokens_and_scores_of_an_encoder_decoder(translator):
    explanation = explain(PROMPT, translator, generate=3)
    [sequence] = to_inseq(explanation, method="flow")
    n_source = explanation.answer.first - 1
    assert [token.token for token in sequence.source] == list(explanation.tokens[:n_source])
    assert [token.token for token in sequence.target] == list(explanation.tokens[n_source:])
    scores = explanation.flow(answer="tokens", layers=-1).to_numpy()[0]
    np.testing.assert_allclose(
        sequence.source_attributions.numpy().T, scores[:, :n_source], rtol=1e-6
    )
    np.testing.assert_allclose(
        sequence.target_attributions[:2, 1].numpy(), scores[1, n_source : n_source + 2], rtol=1e-6
    )
    assert sequence.target_attributions[2:, 1].isnan().all()


def test_outputs_are_saved_loaded_shown_and_merged(inseq, speaker, translator, tmp_path):
    for i, loaded in enumerate((speaker, translator)):
        explanation = explain(PROMPT, loaded, generate=3)
        output = to_inseq(explanation)
        path = tmp_path / f"{i}.json"
        output.save(path)
        again = inseq.FeatureAttributionOutput.load(path)
        np.testing.assert_array_equal(
            again[0].target_attributions.numpy(), output[0].target_attributions.numpy()
        )
        assert again[0].target == output[0].target
        notes = again.info["attnflow"]
        assert notes["offsets"] == [span and list(span) for span in explanation.offsets]
        assert notes["settings"]["edges"] == "alti"
        probability = output[0].step_scores["probability"].numpy()
        expected = [step.target.probability for step in explanation.answer.steps]
        np.testing.assert_allclose(probability, expected, rtol=1e-6)
        shown = output.show(display=False, return_html=True)
        assert output[0].target[-1].token in shown
        assert len(output + again) == 2
        assert output[0].get_scores_dicts()["target_attributions"]


@pytest.mark.usefixtures("inseq")
def test_an_attribution_of_consecutive_positions(speaker):
    explanation = explain(PROMPT, speaker, generate=3)
    first = explanation.answer.first
    attribution = explanation.rollout(positions=range(first - 1, first + 2))
    [sequence] = to_inseq(attribution)
    [expected] = to_inseq(explanation)
    np.testing.assert_allclose(
        sequence.target_attributions.numpy(), expected.target_attributions.numpy(), rtol=1e-6
    )
    assert [token.id for token in sequence.target] == [-1] * len(explanation.tokens)
    with refusal(InputError, len(explanation.tokens) - 1):
        to_inseq(explanation.rollout(positions=range(len(explanation.tokens))))
    with refusal(InputError, "answer='tokens'"):
        to_inseq(explanation.rollout(positions=[[2, 3]]))
    with refusal(InputError, "method"):
        to_inseq(attribution, method="flow")


@pytest.mark.usefixtures("inseq")
def test_what_is_not_generated_is_refused():
    with refusal(InputError, "class"):
        to_inseq(explain("the keys to the old cabinet"))
    graph = AttentionGraph.from_weights([[[1.0, 0.0], [0.5, 0.5]]], tokens=["a", "b"])
    with refusal(InputError, "no prediction"):
        to_inseq(Explanation.from_graph(graph))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["speaker", "translator"])
def test_the_registered_methods_give_our_scores(inseq, kind, method, request):
    loaded = request.getfixturevalue(kind)
    given = " is here are" if kind == "speaker" else "is here are"
    explanation = explain(PROMPT, loaded, continuation=given, edges="attention")
    [expected] = to_inseq(explanation, method=method, layer=1, normalize="rows")
    model = wrap(inseq, loaded, f"attention_{method}")
    output = model.attribute(
        PROMPT,
        PROMPT + given if kind == "speaker" else given,
        edges="attention",
        layer=1,
        normalize="rows",
        attribute_target=kind == "translator",
        step_scores=["probability"],
        show_progress=False,
    )
    [sequence] = output
    assert [token.id for token in sequence.target] == [token.id for token in expected.target]
    assert sequence.attr_pos_start == expected.attr_pos_start
    np.testing.assert_allclose(
        sequence.target_attributions.numpy(), expected.target_attributions.numpy(), atol=1e-5
    )
    if kind == "translator":
        np.testing.assert_allclose(
            sequence.source_attributions.numpy(), expected.source_attributions.numpy(), atol=1e-5
        )
    np.testing.assert_allclose(
        sequence.step_scores["probability"].numpy(),
        expected.step_scores["probability"].numpy(),
        atol=1e-5,
    )
    assert output.info["attribution_args"] == {
        "edges": "attention",
        "layer": 1,
        "normalize": "rows",
    }


def test_the_source_alone_is_attributed_by_default(inseq, translator):
    model = wrap(inseq, translator)
    [sequence] = model.attribute(PROMPT, "is here", show_progress=False)
    assert sequence.target_attributions is None
    assert sequence.source_attributions.shape == (len(sequence.source), len(sequence.target) - 1)


@pytest.mark.parametrize("kind", ["speaker", "translator"])
def test_padded_batches_give_the_scores_of_each_text_alone(inseq, kind, request):
    model = wrap(inseq, request.getfixturevalue(kind))
    texts = ["the key", "the key to cabinets is"]
    answers = ["the key is here are", "the key to cabinets is here"]
    if kind == "translator":
        answers = ["the key is here are", "is"]
    options = {"attribute_target": kind == "translator", "show_progress": False}
    together = model.attribute(texts, answers, **options)
    for text, answer, batched in zip(texts, answers, together, strict=True):
        [alone] = model.attribute(text, answer, **options)
        assert batched.target == alone.target
        np.testing.assert_allclose(
            batched.target_attributions.numpy(), alone.target_attributions.numpy(), atol=1e-5
        )
        if kind == "translator":
            assert batched.source == alone.source
            np.testing.assert_allclose(
                batched.source_attributions.numpy(), alone.source_attributions.numpy(), atol=1e-5
            )


def test_padding_inside_of_one_batch(speaker):
    """Some batches are run one by one by inseq, so its layout of padding is made here."""
    short, long = [5, 6], [5, 6, 7, 8, 9]
    padded = [[0, 0, 0, *short], long]
    mask = [[0, 0, 0, 1, 1], [1] * 5]
    model = SimpleNamespace(model=speaker.model, tokenizer=speaker.tokenizer)
    batch = SimpleNamespace(
        source_ids=None,
        source_mask=None,
        target_ids=torch.tensor(padded),
        target_mask=torch.tensor(mask),
    )
    options = {"method": "rollout", "edges": "attention"}
    first, second = explain_batch(model, batch, 4, options)
    row = explain(short[:1], speaker, edges="attention").rollout(layers=-1).to_numpy()[0, 0]
    np.testing.assert_allclose(first.target_row(4), [np.nan, np.nan, np.nan, *row], atol=1e-6)
    row = explain(long[:4], speaker, edges="attention").rollout(layers=-1).to_numpy()[0, 0]
    np.testing.assert_allclose(second.target_row(4), row, atol=1e-6)
