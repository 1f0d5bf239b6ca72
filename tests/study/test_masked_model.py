"""Models without some tokens, against runs of each changed text by itself."""

from math import ceil, log

import numpy as np
import pytest
import torch

from attnflow.errors import InputError
from attnflow.evaluation.metrics import METRICS, Trial
from attnflow.study.case import Question, make_case
from attnflow.study.masked_model import MaskedModel
from tests.models.checkpoints import VOCABULARY, make_loaded
from tests.refusal import refusal
from tests.study.known_evidence import make_known_evidence
from tests.study.small_models import make_encoder_decoder, make_llama, make_pieces

TEXT = "the key to cabinets"
MASKED = "the key [MASK] here"
SETS = np.asarray(list(np.ndindex(2, 2, 2, 2)), dtype=bool)  # of four units
TOKENS = {"unknown": "[UNK]", "mask": "[MASK]", "pad": "[PAD]"}

MODELS = {
    "classifier": lambda: make_case(make_loaded(), TEXT),
    "masked_lm": lambda: make_case(make_loaded("BertForMaskedLM"), f"is {MASKED}"),
    "llama": lambda: make_case(make_llama(), TEXT),
    "llama with a start token": lambda: make_case(make_llama(start=True), TEXT),
    "llama, continuation": lambda: make_case(
        make_llama(start=True), TEXT, Question(continuation="is here the")
    ),
    "T5": lambda: make_case(make_encoder_decoder("T5"), TEXT),
    "Bart": lambda: make_case(make_encoder_decoder("Bart"), TEXT),
}
ENCODERS = ["classifier", "masked_lm", "T5", "Bart"]


@pytest.fixture(scope="module")
def cases():
    return {name: make() for name, make in MODELS.items()}


def run_one(case, ids, positions, vectors=None):
    """Log p of all steps, for one text. vectors: by position, in place of embeddings."""
    model, task = case.loaded.model, case.loaded.task
    inputs = {"input_ids": torch.tensor([ids])}
    if vectors:
        layer = (model.get_encoder() if task == "seq2seq" else model).get_input_embeddings()
        embeddings = layer(inputs.pop("input_ids"))
        for position, vector in vectors.items():
            embeddings[0, position] = vector
        inputs["inputs_embeds"] = embeddings
    if task == "seq2seq":
        inputs["decoder_input_ids"] = torch.tensor([[2]])
    logits = model(**inputs).logits[0].double()
    total = 0.0
    for step, position in zip(case.steps, positions, strict=True):
        row = logits if task == "classifier" else logits[0 if task == "seq2seq" else position]
        total += float(row.log_softmax(-1)[step.contrast.target])
    return total


def remove_one(case, removed):
    """Log p of a text without some tokens, which are cut out."""
    ids = case.encoded.inputs["input_ids"][0].tolist()
    kept = [i for i in range(len(ids)) if i not in removed]
    positions = [sum(i <= position for i in kept) - 1 for position in case.positions]
    return run_one(case, [ids[i] for i in kept], positions)


def tokens_in(case, row):
    """The tokens of the chosen units."""
    return [i for unit, chosen in zip(case.units, row, strict=True) if chosen for i in unit]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("replacement", TOKENS)
@torch.no_grad()
def test_a_token_in_place_of_others(cases, name, replacement):
    case = cases[name]
    if "llama" in name and replacement != "unknown":
        with refusal(InputError, replacement, "'unknown'"):
            MaskedModel(case, replacement)
        return
    expected = []
    for row in SETS:
        ids = case.encoded.inputs["input_ids"][0].tolist()
        for token in tokens_in(case, row):
            ids[token] = VOCABULARY[TOKENS[replacement]]
        expected.append(run_one(case, ids, case.positions))
    values = MaskedModel(case, replacement).log_probability(SETS)
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-4)
    assert np.ptp(expected) > 1e-3


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_the_mean_embedding_in_place_of_tokens(cases, name):
    case = cases[name]
    model = case.loaded.model
    mean = model.get_input_embeddings()(torch.arange(len(VOCABULARY))).mean(0)
    ids = case.encoded.inputs["input_ids"][0].tolist()
    expected = [
        run_one(case, ids, case.positions, dict.fromkeys(tokens_in(case, row), mean))
        for row in SETS
    ]
    values = MaskedModel(case, "mean").log_probability(SETS)
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-4)
    assert np.ptp(expected) > 1e-3


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_nothing_in_place_of_tokens(cases, name):
    case = cases[name]
    sets = SETS if name != "llama" else SETS[:-1]  # it has nothing left without all
    expected = [remove_one(case, tokens_in(case, row)) for row in sets]
    values = MaskedModel(case, "remove").log_probability(sets)
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-4)
    assert np.ptp(expected) > 1e-3


def test_units_of_several_tokens_are_removed_together():
    case = make_case(make_pieces(), "the cabinets is key", words=True)
    assert case.units == ((1,), (2, 3), (4,), (5,))
    with torch.no_grad():
        expected = [remove_one(case, tokens_in(case, row)) for row in SETS]
    values = MaskedModel(case, "remove").log_probability(SETS)
    np.testing.assert_allclose(values, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("continuation", [None, "is here the"])
def test_a_decoder_without_its_text_starts_with_the_start_token(continuation):
    loaded = make_llama()
    loaded.tokenizer.bos_token = "[CLS]"  # which the tokenizer does not add to texts
    case = make_case(loaded, TEXT, Question(continuation=continuation))
    ids = [VOCABULARY[word] for word in (continuation or "is").split()][:-1]
    with torch.no_grad():
        expected = run_one(case, [2, *ids], range(len(case.steps)))
    everything = np.ones((1, 4), dtype=bool)
    assert MaskedModel(case, "remove").log_probability(everything) == pytest.approx([expected])


def test_a_decoder_without_a_start_token_keeps_the_last_one():
    case = make_case(make_llama(), TEXT)
    with torch.no_grad():
        expected = run_one(case, [VOCABULARY["cabinets"]], [0])
    everything = np.ones((1, 4), dtype=bool)
    assert MaskedModel(case, "remove").log_probability(everything) == pytest.approx([expected])


def test_a_classifier_can_lose_its_first_token():
    # Without [CLS], the first token stands for the text in explanations, not for the model.
    loaded = make_known_evidence()
    loaded.tokenizer.backend_tokenizer.post_processor = None
    case = make_case(loaded, "key to here")
    assert case.positions == [0]
    sets = np.asarray([[True, False, False], [True, True, False]])
    # Of the weights 2.0, -0.3 and 0.6, 0.3 and 0.6 are left.
    values = MaskedModel(case, "remove").log_probability(sets)
    assert values == pytest.approx([-log(1 + np.exp(-left)) for left in (0.3, 0.6)])


@pytest.mark.parametrize("kind", ["T5", "Bart"])
def test_an_encoder_without_any_token_starts_with_the_start_token(kind):
    loaded = make_encoder_decoder(kind)
    loaded.tokenizer.backend_tokenizer.post_processor = None
    loaded.tokenizer.eos_token = "[SEP]"  # which the tokenizer does not add to texts
    case = make_case(loaded, TEXT)
    assert len(case.units) == case.encoded.n_inputs == 4
    with torch.no_grad():
        expected = run_one(case, [VOCABULARY["[SEP]"]], case.positions)
    everything = np.ones((1, 4), dtype=bool)
    assert MaskedModel(case, "remove").log_probability(everything) == pytest.approx([expected])


def test_a_neighbor_is_refused_because_it_would_repeat_removed_words(cases):
    with refusal(InputError, "neighbor", "sample"):
        MaskedModel(cases["classifier"], "neighbor")


@pytest.mark.parametrize("name", ["masked_lm", "llama with a start token"])
@torch.no_grad()
def test_a_sampled_token_in_place_of_a_token(cases, name):
    case = cases[name]
    masked = MaskedModel(case, "sample", seed=3)
    assert masked.substitutes == MaskedModel(case, "sample", seed=3).substitutes
    drawn = [MaskedModel(case, "sample", seed=seed).substitutes for seed in range(5)]
    assert any(other != masked.substitutes for other in drawn)
    ids = case.encoded.inputs["input_ids"][0].tolist()
    expected = []
    for row in SETS:
        changed = list(ids)
        for token in tokens_in(case, row):
            assert masked.substitutes is not None
            changed[token] = masked.substitutes[token]
            assert changed[token] != ids[token]
        expected.append(run_one(case, changed, case.positions))
    np.testing.assert_allclose(masked.log_probability(SETS), expected, rtol=0, atol=1e-4)


def test_a_classifier_cannot_sample(cases):
    with refusal(InputError, "'sample'"):
        MaskedModel(cases["classifier"], "sample")


@pytest.fixture
def runs(cases):
    """The number of texts in each run of the model."""
    MaskedModel(cases["classifier"])  # the last layers of a model are found once, by runs of it
    sizes: list[int] = []
    hooks = [
        case.loaded.model.register_forward_pre_hook(
            lambda _module, _args, inputs: sizes.append(len(inputs["input_ids"])),
            with_kwargs=True,
        )
        for case in cases.values()
    ]
    yield sizes
    for hook in hooks:
        hook.remove()


def test_each_set_is_run_once(cases, runs):
    masked = MaskedModel(cases["classifier"], "unknown")
    values = masked.log_probability(SETS[[3, 5, 3]])
    assert values[0] == values[2] != values[1]
    assert runs == [2]
    again = masked.log_probability(SETS[[5, 6, 3]])
    assert again[0] == values[1]
    assert runs == [2, 1]
    assert masked.runs == 3
    masked.log_probability(SETS)
    assert sum(runs) == masked.runs == 16


def test_batches_have_texts_of_one_length(cases, runs):
    masked = MaskedModel(cases["classifier"], "remove")
    masked.log_probability(SETS)
    # 1, 4, 6, 4 and 1 sets of 0 to 4 words.
    assert sorted(runs) == [1, 1, 4, 4, 6]
    runs.clear()
    small = MaskedModel(cases["classifier"], "unknown", batch_tokens=12)  # two texts of 6 tokens
    values = small.log_probability(SETS)
    assert runs == [2] * 8
    whole = MaskedModel(cases["classifier"], "unknown").log_probability(SETS)
    np.testing.assert_allclose(values, whole, rtol=0, atol=1e-6)


def test_a_decoder_that_needs_padding_is_run_on_one_text_at_a_time():
    case = make_case(make_loaded("GPT2ForSequenceClassification"), TEXT)
    masked = MaskedModel(case, "unknown")
    sizes = []
    case.loaded.model.register_forward_pre_hook(
        lambda _module, _args, inputs: sizes.append(len(inputs["input_ids"])), with_kwargs=True
    )
    masked.log_probability(SETS[:3])
    masked.soft_probability(np.full((1, 4), 0.5))
    assert set(sizes) == {1}


@pytest.mark.parametrize("name", ["llama with a start token", "llama, continuation"])
@pytest.mark.parametrize("replacement", ["unknown", "remove", "mean"])
def test_only_the_needed_logits_give_the_same(cases, name, replacement):
    masked, full = (MaskedModel(cases[name], replacement) for _ in range(2))
    assert masked.chooses_logits
    full.chooses_logits = False
    np.testing.assert_allclose(
        masked.log_probability(SETS), full.log_probability(SETS), rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("name", MODELS)
def test_the_whole_text_has_the_probability_of_the_case(cases, name):
    case = cases[name]
    masked = MaskedModel(case)
    nothing = np.zeros((1, 4), dtype=bool)
    assert np.exp(masked.log_probability(nothing)) == pytest.approx([case.probability], rel=1e-4)
    kept = masked.soft_probability(np.ones((1, 4)))
    assert kept == pytest.approx([case.probability], rel=1e-4)


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_dimensions_that_are_all_dropped_are_zeros(cases, name):
    case = cases[name]
    ids = case.encoded.inputs["input_ids"][0].tolist()
    row = np.asarray([True, False, True, False])
    zeros = dict.fromkeys(tokens_in(case, row), torch.zeros(8))
    expected = np.exp(run_one(case, ids, case.positions, zeros))
    assert MaskedModel(case).soft_probability(1.0 - row[None]) == pytest.approx([expected], 1e-4)


def test_soft_probabilities_are_drawn_once(cases, runs):
    masked = MaskedModel(cases["classifier"], draws=4)
    kept = np.asarray([[0.5] * 4, [0.2] * 4, [0.5] * 4])
    values = masked.soft_probability(kept)
    assert values[0] == values[2] != values[1]
    assert runs == [4, 4]
    assert masked.runs == 8
    assert (masked.soft_probability(kept) == values).all()
    assert runs == [4, 4]
    again = MaskedModel(cases["classifier"], draws=4).soft_probability(kept)
    np.testing.assert_allclose(again, values, rtol=0, atol=1e-6)
    other = MaskedModel(cases["classifier"], draws=4, seed=1).soft_probability(kept)
    assert abs(other[0] - values[0]) > 1e-6


def test_replacements_share_soft_probabilities(cases, runs):
    case = cases["classifier"]
    first = MaskedModel(case, "unknown", draws=4)
    second = MaskedModel(case, "remove", draws=4, other=first)
    kept = np.asarray([[0.5] * 4])
    assert first.soft_probability(kept) == second.soft_probability(kept)
    assert runs == [4]
    assert (first.runs, second.runs) == (4, 0)
    apart = MaskedModel(case, "remove", draws=4).soft_probability(kept)
    np.testing.assert_allclose(apart, first.soft_probability(kept), rtol=0, atol=1e-6)


def test_soft_probabilities_are_means_over_dimensions():
    # A linear model in one dimension: each word's weight is kept by chance. 4 p(1 - p) is no
    # mean of p, so many draws are needed to see it: key is kept in half of them.
    case = make_case(make_known_evidence(), "key here")
    masked = MaskedModel(case, draws=4000)
    [value] = masked.soft_probability(np.asarray([[0.5, 1.0]]))
    expected = (1 / (1 + np.exp(-2.6)) + 1 / (1 + np.exp(-0.6))) / 2
    assert value == pytest.approx(expected, abs=0.01)


def test_a_contrast_compares_two_classes(cases):
    loaded = cases["classifier"].loaded
    case = make_case(loaded, TEXT, Question(target=0, against=1))
    plain = make_case(loaded, TEXT, Question(target=0))
    # With two classes, the probability among the two is the probability.
    np.testing.assert_allclose(
        MaskedModel(case, "unknown").log_probability(SETS),
        MaskedModel(plain, "unknown").log_probability(SETS),
        atol=1e-6,
    )
    llama = cases["llama"].loaded
    case = make_case(llama, TEXT, Question(target="is", against="are"))
    [value] = MaskedModel(case).log_probability(SETS[:1])
    ids = torch.tensor([[VOCABULARY[word] for word in TEXT.split()]])
    with torch.no_grad():
        logits = llama.model(input_ids=ids).logits[0, -1]
    pair = logits[[VOCABULARY["is"], VOCABULARY["are"]]].double().log_softmax(-1)
    assert value == pytest.approx(float(pair[0]), abs=1e-6)


def naive(loaded, words, scores, target, kind):
    """Comprehensiveness or sufficiency: mask words of the text itself, one text at a time."""

    def probability(words):
        inputs = loaded.tokenizer(" ".join(words), return_tensors="pt")
        with torch.no_grad():
            return float(loaded.model(**inputs).logits[0].double().softmax(-1)[target])

    order = sorted(range(len(words)), key=lambda i: -scores[i])
    drops = []
    for percent in (1, 5, 10, 20, 50):
        top = order[: max(1, ceil(len(words) * percent / 100))]
        masked = [
            "[UNK]" if (i in top) == (kind == "comprehensiveness") else word
            for i, word in enumerate(words)
        ]
        drops.append(probability(words) - probability(masked))
    return sum(drops) / len(drops)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["comprehensiveness", "sufficiency"])
def test_a_naive_implementation_gives_the_same(kind, seed):
    random = np.random.default_rng(seed)
    loaded = make_loaded()
    words = random.choice(["the", "key", "to", "cabinets", "is", "are", "here"], 12).tolist()
    case = make_case(loaded, " ".join(words))
    scores = random.permutation(12).astype(float)
    value = METRICS[kind].measure(Trial(scores, MaskedModel(case, "unknown")))
    [step] = case.steps
    expected = naive(loaded, words, scores, step.contrast.target, kind)
    assert value == pytest.approx(expected, abs=1e-6)
    assert abs(expected) > 1e-4
