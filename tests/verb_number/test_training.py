"""Training on the grammar: the loss falls, and a training that was interrupted goes on the same."""

from dataclasses import replace

import pytest
import torch

from attnflow.errors import FileError, InputError
from attnflow.paper.data.readers import AgreementExample
from attnflow.paper.verb_number.objective import Mixture, Objective, blank, encode_examples
from attnflow.paper.verb_number.splits import Split, split_grammar
from attnflow.paper.verb_number.trainer import Recipe, learning_rate, train
from attnflow.paper.verb_number.vocabulary import make_vocabulary
from tests.refusal import refusal

TINY = Recipe(epochs=2, batch_size=32, sizes={"n_layer": 2, "n_head": 2, "n_embd": 16}, dropout=0.1)


@pytest.fixture(autouse=True)
def one_thread():
    """The models are so small that threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def split():
    return split_grammar(600)


def same(one, other):
    pairs = zip(one.model.state_dict().values(), other.model.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_the_rule_of_the_grammar_is_learnt():
    objective = Objective(guessing=0.1, tagging=0.5)
    sizes = {"n_layer": 2, "n_head": 4, "n_embd": 32}
    recipe = replace(
        TINY, epochs=12, sizes=sizes, objective=objective, learning_rate=4e-3, share=0.6
    )
    trained = train(split_grammar(2400), recipe, device="cpu")
    assert trained.accuracy["grammar"] > 0.9, trained.accuracy
    assert trained.accuracy["grammar, attractors 0"] > 0.9
    assert not trained.model.training


def test_the_loss_falls_and_is_logged(split, caplog):
    told = []
    with caplog.at_level("INFO", logger="attnflow"):
        train(split, TINY, device="cpu", progress=lambda *done: told.append(done))
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0].startswith("epoch 1 of 2: loss ")
    losses = [float(line.split()[5].strip(",")) for line in lines]
    assert losses[1] < losses[0]
    assert told == [(1, 2), (2, 2)]


def test_seeds_decide_and_leave_the_callers_random_numbers_alone(split):
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    one = replace(TINY, epochs=1)
    first, second = train(split, one, device="cpu"), train(split, one, device="cpu")
    assert torch.equal(torch.rand(2), expected)
    assert same(first, second)
    assert not same(first, train(split, replace(one, seed=1), device="cpu"))


@pytest.mark.parametrize("causal", [False, True])
def test_a_resumed_training_is_that_which_was_not_interrupted(split, tmp_path, causal):
    recipe = replace(TINY, causal=causal)
    whole = train(split, recipe, device="cpu")
    path = tmp_path / "new" / "training.pt"

    def interrupt(done, _):
        raise KeyboardInterrupt(done)

    with pytest.raises(KeyboardInterrupt):
        train(split, recipe, checkpoint=path, device="cpu", progress=interrupt)
    resumed = train(split, recipe, checkpoint=path, resume=True, device="cpu")
    assert same(whole, resumed)
    assert whole.accuracy == resumed.accuracy


def test_checkpoints_of_other_trainings_are_refused(split, tmp_path):
    path = tmp_path / "training.pt"
    train(split, replace(TINY, epochs=1), checkpoint=path, device="cpu")
    with refusal(
        FileError, "comes from another training, with seed 0 and not 1", "train in another folder"
    ):
        train(split, replace(TINY, epochs=1, seed=1), checkpoint=path, resume=True, device="cpu")
    path.write_bytes(b"nothing")
    with refusal(FileError, "cannot be read", "Remove it to start anew"):
        train(split, TINY, checkpoint=path, resume=True, device="cpu")


def test_recipes_that_cannot_be_used(split):
    with refusal(InputError, "epochs is 0", "expected 1 or more"):
        train(split, replace(TINY, epochs=0))
    with refusal(InputError, "share is 1", "less than 1"):
        train(split, replace(TINY, share=1))
    with refusal(InputError, "there is nothing to train on but sentences with attractors"):
        train(Split((), (), split.hard, split.dev, {}), TINY)


def test_the_learning_rate_rises_and_falls():
    recipe = Recipe(learning_rate=1.0, warm_up=0.1)
    rates = [learning_rate(step, 100, recipe) for step in range(100)]
    assert rates[:10] == pytest.approx([0.1 * k for k in range(1, 11)])
    assert rates[10] == 1
    assert rates[55] == pytest.approx(0.5)
    assert rates[10:] == sorted(rates[10:], reverse=True)


def test_an_epoch_has_all_natural_examples_and_a_balanced_sample_of_hard_ones():
    def examples(word, number, n):
        return tuple(AgreementExample((word, str(i)), number) for i in range(n))

    hard = examples("c", "singular", 9) + examples("d", "plural", 30)
    split = Split(examples("a", "singular", 10), examples("b", "plural", 20), hard, (), {})
    vocabulary = make_vocabulary(split.training, rarest=1)
    mixture = Mixture.from_split(split, vocabulary, copies=2, share=0.2)
    generator = torch.Generator().manual_seed(0)
    batches = list(mixture.epoch(8, generator))
    assert len(batches) == mixture.n_batches(8) == 7
    rows = sorted(torch.cat(batches).tolist())
    assert rows[:40] == sorted([*range(10), *range(10), *range(10, 30)])
    assert len(rows) == 50  # a fifth of which has attractors
    assert sum(row < 39 for row in rows[40:]) == 5
    assert torch.cat(list(mixture.epoch(8, generator))).tolist() != torch.cat(batches).tolist()


def test_only_words_are_blanked():
    texts = encode_examples([AgreementExample(("the", "key"), "singular")] * 50, {**VOCABULARY})
    seen, blanked = blank(texts, 0.5, torch.Generator().manual_seed(0))
    assert (seen[:, 0] == 2).all()
    assert torch.equal(seen == 1, blanked)
    assert 0.3 < blanked[:, 1:].float().mean() < 0.7


VOCABULARY = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "the": 3, "key": 4}
