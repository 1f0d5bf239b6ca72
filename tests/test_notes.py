"""Notes on rows of scores that tell little."""

import numpy as np
import pytest
from scipy.stats import spearmanr

import attnflow
from attnflow import AttentionGraph, Attribution, Explanation
from attnflow.notes import explanation_notes, find_notes
from tests.study.small_models import make_llama
from tests.weights import random_attention

EDGES = {"edges": "attention", "residual_weight": 0.5}


def notes(scores, method="rollout", *, tokens=None, special=None, causal=False, **settings):
    """The notes on one row, that of the last token if causal and of the first one otherwise."""
    n = len(scores)
    tokens = tuple(tokens or (f"word{i}" for i in range(n)))
    position = n - 1 if causal else 0
    row = np.asarray(scores, dtype=float)[None, None]
    attribution = Attribution(row, tokens, method, (3,), (position,), settings=EDGES | settings)
    return find_notes(attribution, special=special or [False] * n, causal=causal)


# Rows that were computed: SmolLM2-135M-Instruct on "The Eiffel Tower is located in the city of",
# the bundled verb-number model and MiniLM, at their last layers.
SMOLLM_ROLLOUT = [0.9995, 4e-5, 3e-5, 2e-5, 1e-4, 1e-5, 9e-5, 2e-4, 3e-6, 1e-6]
SMOLLM_FLOW = [1.0, 0.68, 0.676, 0.665, 0.65, 0.644, 0.629, 0.569, 0.544, 0.503]
SMOLLM_ALTI_ROLLOUT = [0.222, 0.045, 0.318, 0.095, 0.026, 0.043, 0.035, 0.03, 0.124, 0.062]
SMOLLM_ALTI_FLOW = [1.0, 0.637, 1.0, 0.784, 0.695, 0.693, 0.688, 0.445, 0.593, 0.568]
VERB_ROLLOUT = [0.107, 0.072, 0.162, 0.065, 0.054, 0.058, 0.084, 0.054, 0.054, 0.082, 0.068, 0.083]
VERB_FLOW = [1.0, 0.714, 1.0, 0.915, 0.844, 0.922, 1.0, 0.911, 0.914, 1.0, 1.0, 0.859, 1.0]
MINILM_FLOW = [0.74, 0.745, 0.739, 0.741, 0.74, 0.732, 0.773, 1.0, 0.847]


@pytest.mark.parametrize(
    ("scores", "method", "causal"),
    [
        (SMOLLM_ALTI_ROLLOUT, "rollout", True),
        (SMOLLM_ALTI_FLOW, "flow", True),
        (VERB_ROLLOUT, "rollout", False),
        ([0.1, 0.6, 0.1, 0.2], "rollout", False),  # most of it on a token with content
        ([0.4, 0.9, 0.1, 0.2, 0.3, 0.5], "flow", True),
    ],
)
def test_a_good_row_has_no_note(scores, method, causal):
    assert notes(scores, method, causal=causal) == []


def test_the_first_token_of_a_causal_model_can_be_a_sink():
    first, advice = notes(SMOLLM_ROLLOUT, tokens=["The", *"abcdefghi"], causal=True)
    assert "'The'" in first
    assert "1.00" in first
    assert "edges='alti'" in advice
    assert "special" not in advice  # which would not hide it
    assert "sink" not in " ".join(notes(SMOLLM_ROLLOUT))  # an encoder: any token can be important


def test_a_first_token_with_the_highest_score_is_told():
    [note] = notes([0.35, 0.18, 0.08, 0.09, 0.3], tokens=["The", *"abcd"], causal=True)
    assert "'The'" in note
    assert "0.35" in note
    assert notes([0.18, 0.35, 0.08, 0.09, 0.3], causal=True) == []
    assert notes([0.35, 0.18, 0.08, 0.09, 0.3], causal=False) == []


def test_a_special_position_and_other_special_tokens_can_keep_a_row():
    """MiniLM on "a charming but overlong film", explained at [CLS]."""
    tokens = ["[CLS]", "a", "charming", "but", "overlong", "film", "[SEP]"]
    special = [True, *[False] * 5, True]
    row = [0.71, 0.02, 0.04, 0.03, 0.04, 0.02, 0.14]
    first, advice = notes(row, tokens=tokens, special=special)
    assert "'[CLS]' and '[SEP]'" in first
    assert "0.85" in first
    assert "special='hide'" in advice
    assert notes([0.3, 0.11, 0.3, 0.1, 0.09, 0.04, 0.06], tokens=tokens, special=special) == []


def test_special_tokens_can_be_sinks_together():
    special = [False] * 4 + [True, True]
    tokens = ["mask", "a", "b", ".", "[CLS]", "[SEP]"]
    text, advice = notes([0.06, 0.06, 0.08, 0.1, 0.5, 0.2], tokens=tokens, special=special)
    assert "'[CLS]' and '[SEP]'" in text
    assert "0.70" in text
    assert "'.'" not in text
    assert "special='hide'" in advice
    assert notes([0.3, 0.3, 0.1, 0.12, 0.08, 0.1], tokens=tokens, special=special) == []


@pytest.mark.parametrize("token", ["\n", "\u010a", ".", "\u2581,", "  "])
def test_newlines_and_punctuation_can_be_sinks(token):
    [text, _] = notes([0.1, 0.8, 0.1], tokens=["a", token, "b"])
    assert "0.80" in text
    assert notes([0.1, 0.8, 0.1], tokens=["a", "key", "b"]) == []


def test_flows_do_not_add_up_so_a_sink_is_compared_with_the_next():
    special = [False, True, False, False]
    [text, _] = notes([0.9, 0.9, 0.2, 0.1], "flow", special=special)
    assert "0.90" in text
    assert "at most 0.2" in text
    assert notes([0.9, 0.9, 0.5, 0.1], "flow", special=special) == []


def test_a_row_of_hardly_more_than_the_position_itself():
    text, advice = notes([1.0, 0.03, 0.01, 0.01], edges="gradient")
    assert "'word0'" in text
    assert "0.95" in text
    assert "gradient_rescaled" in advice
    _, advice = notes(
        [0.98, 0.01, 0.01, 0], "raw", edges="alti", residual_weight="inside the edges"
    )
    assert "rollout" in advice


def test_ties_are_counted():
    text, *_ = notes(VERB_FLOW, "flow")
    assert "6 of 13 tokens" in text
    text, *_ = notes([0.5, 0.5, 0.5, 1.0, 0.0, 0.0], "flow")
    assert "3 of 6 tokens" in text
    assert "highest" not in text
    assert notes([0.5, 0.5, 0.25, 1.0, 0.0, 0.0], "flow") == []  # two are no tie to speak of


def test_scores_that_nearly_tie_for_the_highest():
    scores = [0.3, 0.997, 0.995, 0.992, 0.99, *np.linspace(0.3, 0.9, 8)]
    text, *_ = notes(scores, "flow")
    assert "4 of 12 other tokens" in text
    assert "1% of 0.997" in text
    assert notes([*scores[:3], *np.linspace(0.3, 0.9, 10)], "flow") == []


def test_zeros_are_no_ties():
    assert notes([0.0, 0.0, 0.0, 0.7, 0.3], "raw") == []


def test_flat_scores_are_told_without_sinks_and_the_position_itself():
    special = [False] * 7 + [True, True]
    text, _ = notes(MINILM_FLOW, "flow", special=special)
    assert "6 other tokens" in text
    assert "0.73 and 0.77" in text


def test_a_few_low_scores_do_not_hide_a_flat_row():
    rng = np.random.default_rng(0)
    scores = np.concatenate([[0.9, 0.01, 0.02], rng.uniform(0.7, 0.8, 37)])
    text, *_ = notes(scores, "flow")
    assert "36 other tokens" in text


def test_scores_in_the_order_of_the_tokens():
    flat, ramp, advice = notes(SMOLLM_FLOW, "flow", causal=True)
    assert "8 other tokens" in flat
    assert "earlier" in ramp
    assert "-1.00" in ramp
    assert "normalize='receptive_field'" in advice
    later, _ = notes([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.4], causal=True)
    assert "later" in later
    assert notes([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.4]) == []  # no causal mask


def test_a_long_row_needs_a_lower_rank_correlation_to_follow_the_order():
    rng = np.random.default_rng(0)
    for n, found in ((40, True), (12, False)):
        scores = np.linspace(0.9, 0.2, n) + rng.normal(scale=0.12, size=n)
        correlation = abs(float(spearmanr(scores[:-1], np.arange(n - 1)).statistic))
        assert 0.8 < correlation < 0.95
        assert (
            any("rank correlation" in text for text in notes(scores, "flow", causal=True)) == found
        )


def test_what_is_already_set_is_not_advised():
    *_, advice = notes(SMOLLM_FLOW, "flow", causal=True, edges="alti", normalize="receptive_field")
    assert "alti" not in advice
    assert "receptive_field" not in advice
    [text] = notes(SMOLLM_ROLLOUT, causal=True, edges="alti", normalize="receptive_field")
    assert "sink" in text


def test_edges_are_not_advised_without_a_model():
    graph = AttentionGraph.from_weights([[[1.0, 0, 0], [0.9, 0.1, 0], [0.9, 0.05, 0.05]]] * 8)
    explanation = Explanation.from_graph(graph)
    text = " ".join(explanation_notes(explanation, explanation.rollout()))
    assert "sink" in text
    assert "edges" not in text


def test_the_first_position_of_a_causal_model_has_nothing_to_tell():
    row = np.asarray([[[1.0, 0.0]]])
    attribution = Attribution(row, ("a", "b"), "rollout", (1,), (0,))
    [text] = find_notes(attribution, special=[False] * 2, causal=True)
    assert "itself" in text


@pytest.mark.parametrize("scores", [[0.0, 0.0, 0.0], [0.5, -0.25, 0.1], [1.0]])
def test_odd_rows_raise_nothing(scores):
    assert all(isinstance(note, str) for note in notes(scores, "input_gradients"))


def test_later_tokens_of_a_causal_model_do_not_count():
    row = np.asarray([[[1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]]])
    tokens = tuple("abcdefghij")
    attribution = Attribution(row, tokens, "flow", (2,), (2,))
    text, *_ = find_notes(attribution, special=[False] * 10, causal=True)
    assert "3 of 3 tokens" in text


def test_words_use_the_flags_of_words():
    graph = AttentionGraph.from_weights(
        random_attention(2, 4, 4), tokens=["[CLS]", "cabinet", "##s", "[SEP]"]
    )
    explanation = Explanation.from_graph(graph, position=1)
    scores = np.asarray([[[0.6, 0.1, 0.3]]])
    merged = Attribution(scores, explanation.words.texts, "rollout", (2,), (1,))
    text, *_ = explanation_notes(explanation, merged)
    assert "'[CLS]' and '[SEP]'" in text
    assert "0.90" in text


def test_tokens_of_byte_level_vocabularies_are_named_as_text():
    tokens = ["\u00c3\u012bt\u00c3\u00a9", *(f"\u0120word{i}" for i in range(3))]
    [note, *_] = notes([0.96, 0.02, 0.01, 0.01], tokens=tokens, causal=True)
    assert "'\u00c9t\u00e9'" in note


def test_rows_of_gradient_edges_say_that_they_belong_to_the_whole_answer():
    model = make_llama()
    for edges, n_tokens, says_so in [
        ("gradient", 2, True),
        ("gradient", 1, False),
        ("alti", 2, False),
    ]:
        explanation = attnflow.explain(
            "the key", model, continuation=[5, 6][:n_tokens], edges=edges
        )
        texts = explanation_notes(explanation, explanation.rollout(answer="tokens"), position=0)
        assert any("whole answer" in text for text in texts) == says_so
