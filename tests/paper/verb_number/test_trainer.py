"""Training on generated sentences: the loss decreases, and interrupted trainings resume."""

from dataclasses import replace

import pytest
import torch

from attnflow.errors import FileError, InputError
from attnflow.paper.verb_number import trainer
from attnflow.paper.verb_number.splits import Split, make_vocabulary, split_grammar
from attnflow.paper.verb_number.trainer import (
    Recipe,
    learning_rate,
    new_model,
    train,
    train_together,
)
from tests.refusal import refusal

TINY = Recipe(epochs=2, batch_size=32, sizes={"n_layer": 2, "n_head": 2, "n_embd": 16}, dropout=0.1)


@pytest.fixture(autouse=True)
def one_thread():
    """Small models are faster without threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def split():
    return split_grammar(600)


def same_weights(first, second):
    pairs = zip(first.model.state_dict().values(), second.model.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.slow
def test_the_agreement_rule_is_learned():
    sizes = {"n_layer": 2, "n_head": 4, "n_embd": 32}
    recipe = replace(
        TINY,
        epochs=12,
        sizes=sizes,
        learning_rate=4e-3,
        attention_dropout=0.1,
        unknown_rate=0.0,
        attractor_copies=1,
    )
    trained = train(split_grammar(2400), recipe, device="cpu")
    assert trained.accuracy["grammar"] > 0.9, trained.accuracy
    assert trained.accuracy["grammar, attractors 0"] > 0.9
    assert not trained.model.training


def test_the_loss_decreases_and_is_logged(split, caplog):
    steps = []
    with caplog.at_level("INFO", logger="attnflow"):
        train(split, TINY, device="cpu", progress=lambda *step: steps.append(step))
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0].startswith("epoch 1 of 2: loss ")
    losses = [float(line.split()[5].strip(";")) for line in lines]
    assert losses[1] < losses[0]
    assert steps == [(1, 2), (2, 2)]


def test_models_side_by_side_can_start_from_larger_weights(split):
    recipes = [replace(TINY, initializer_range=spread) for spread in (0.02, 0.06)]
    small, large = (dict(new_model(recipe, 50).named_parameters()) for recipe in recipes)
    for name, weights in small.items():
        factor = 3 if weights.dim() > 1 else 1  # biases are 0, scales of layer norms 1
        torch.testing.assert_close(large[name], factor * weights)
    assert not same_weights(*train_together(split, recipes, device="cpu"))


def test_the_seed_determines_the_weights_and_the_random_state_is_restored(split):
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    recipe = replace(TINY, epochs=1)
    first, second = train(split, recipe, device="cpu"), train(split, recipe, device="cpu")
    assert torch.equal(torch.rand(2), expected)
    assert same_weights(first, second)
    assert not same_weights(first, train(split, replace(recipe, seed=1), device="cpu"))


@pytest.mark.parametrize("causal", [False, True])
def test_a_resumed_training_gives_the_same_weights(split, tmp_path, causal):
    recipe = replace(TINY, causal=causal)
    uninterrupted = train(split, recipe, device="cpu")
    path = tmp_path / "new" / "training.pt"

    def interrupt(done, _):
        raise KeyboardInterrupt(done)

    with pytest.raises(KeyboardInterrupt):
        train(split, recipe, checkpoint=path, device="cpu", progress=interrupt)
    resumed = train(split, recipe, checkpoint=path, resume=True, device="cpu")
    assert same_weights(uninterrupted, resumed)
    assert uninterrupted.accuracy == resumed.accuracy


def test_checkpoints_of_other_trainings_are_rejected(split, tmp_path):
    path = tmp_path / "training.pt"
    train(split, replace(TINY, epochs=1), checkpoint=path, device="cpu")
    with refusal(FileError, path, "seed [0]", "seed [1]"):
        train(split, replace(TINY, epochs=1, seed=1), checkpoint=path, resume=True, device="cpu")
    path.write_bytes(b"nothing")
    with refusal(FileError, path, "Delete it"):
        train(split, TINY, checkpoint=path, resume=True, device="cpu")


def test_checkpoints_leave_no_temporary_files(split, tmp_path):
    path = tmp_path / "training.pt"
    train(split, TINY, checkpoint=path, device="cpu")
    assert [file.name for file in tmp_path.iterdir()] == ["training.pt"]


def test_invalid_settings(split):
    with refusal(InputError, "no recipe"):
        train_together(split, [])
    with refusal(InputError, "batch_size is 32 and 8", "the same"):
        train_together(split, [TINY, replace(TINY, batch_size=8)])
    with refusal(InputError, "epochs is 0", "1 or more"):
        train(split, replace(TINY, epochs=0))
    with refusal(InputError, "unknown_rate is 1", "less than 1"):
        train(split, replace(TINY, unknown_rate=1))
    with refusal(InputError, "attractor_copies is 0", "1 or more"):
        train(split, replace(TINY, attractor_copies=0))
    with refusal(InputError, "no training examples"):
        train(Split((), split.dev, {}), TINY)


def test_examples_with_attractors_are_repeated(split, monkeypatch):
    vocabulary = make_vocabulary(split.training)
    monkeypatch.setattr(trainer, "make_vocabulary", lambda _: vocabulary)
    hard = tuple(example for example in split.training if example.attractors)
    assert 0 < len(hard) < len(split.training)
    by_hand = replace(split, training=split.training + hard)
    once, twice = (replace(TINY, epochs=1, attractor_copies=n) for n in (1, 2))
    expected = train(by_hand, once, device="cpu")
    assert same_weights(train(split, twice, device="cpu"), expected)
    assert not same_weights(train(split, once, device="cpu"), expected)


def test_dropout_of_attention_is_a_setting_of_its_own(split):
    recipe = replace(TINY, epochs=1, dropout=0.0, attention_dropout=0.25)
    config = train(split, recipe, device="cpu").model.config
    assert (config.attn_pdrop, config.embd_pdrop, config.resid_pdrop) == (0.25, 0, 0)


def test_the_learning_rate_warms_up_and_decays():
    rates = [learning_rate(step, 100, 0.1) for step in range(100)]
    assert rates[:10] == pytest.approx([0.1 * k for k in range(1, 11)])
    assert rates[10] == 1
    assert rates[55] == pytest.approx(0.5)
    assert rates[10:] == sorted(rates[10:], reverse=True)
