"""Models trained side by side: each as if it was alone, and as transformers and torch train it."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from attnflow.models.builtin.verb_number import VerbNumberConfig, VerbNumberModel
from attnflow.paper.verb_number.encoded_examples import draw_batches, encode_examples
from attnflow.paper.verb_number.ensemble import Dropout, Ensemble, _drop
from attnflow.paper.verb_number.splits import make_vocabulary, split_grammar
from attnflow.paper.verb_number.trainer import (
    Recipe,
    Training,
    learning_rate,
    train,
    train_together,
)

CPU = torch.device("cpu")
SIZES = {"n_layer": 2, "n_head": 2, "n_embd": 16}
# Without random numbers, which are drawn for all models at once.
PLAIN = Recipe(epochs=2, batch_size=32, sizes=SIZES, dropout=0, attention_dropout=0, unknown_rate=0)
OTHERS = [
    PLAIN,
    replace(PLAIN, seed=3, learning_rate=3e-3, weight_decay=0.5),
    replace(PLAIN, seed=4, learning_rate=1e-2, weight_decay=0.0),
]


@pytest.fixture(autouse=True)
def one_thread():
    """Small models are faster without threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def double_precision():
    """Rounding, which AdamW magnifies where gradients are near 0, stays below the tolerances."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="module")
def split():
    return split_grammar(400)


def small_model(seed, *, causal=False, **options):
    torch.manual_seed(seed)
    config = VerbNumberConfig(vocab_size=30, is_decoder=causal, **SIZES, **options)
    config._attn_implementation = "eager"
    model = VerbNumberModel(config).eval()
    with torch.no_grad():
        for weights in model.parameters():  # biases too
            weights.add_(torch.randn_like(weights) * 0.2)
    return model


@pytest.mark.parametrize("causal", [False, True])
def test_logits_and_losses_are_those_of_each_model(causal):
    models = [small_model(seed, causal=causal) for seed in range(3)]
    ids = torch.randint(3, 30, (3, 5, 7))
    ids[:, 1:3, 4:] = 0  # padding
    labels = torch.randint(0, 2, (3, 5))
    ensemble = Ensemble(models, CPU)
    losses = ensemble.loss(ids, labels, None)
    expected = torch.stack(
        [m(i, labels=right).loss for m, i, right in zip(models, ids, labels, strict=True)]
    )
    torch.testing.assert_close(losses, expected)
    shares = [0.0, 0.1, 0.5]
    smoothed = ensemble.loss(ids, labels, None, torch.tensor(shares))
    for i, share in enumerate(shares):
        loss = functional.cross_entropy(models[i](ids[i]).logits, labels[i], label_smoothing=share)
        torch.testing.assert_close(smoothed[i], loss)
    torch.testing.assert_close(
        ensemble.predict(ids[0]), torch.stack([model(ids[0]).logits for model in models])
    )


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.usefixtures("double_precision")
def test_each_model_is_trained_as_if_it_was_alone(split, causal):
    recipes = [replace(recipe, causal=causal) for recipe in OTHERS]
    together = train_together(split, recipes, device="cpu")
    for recipe, trained in zip(recipes, together, strict=True):
        alone = train(split, recipe, device="cpu")
        weights = alone.model.state_dict()
        for name, part in trained.model.state_dict().items():
            assert_same_weights(name, part, weights[name])
        assert trained.accuracy == pytest.approx(alone.accuracy, abs=0.03, nan_ok=True)


def assert_same_weights(name, weights, expected):
    ours, theirs = without_key_bias(name, weights), without_key_bias(name, expected)
    torch.testing.assert_close(
        ours, theirs, atol=1e-9, rtol=1e-7, msg=lambda message: f"{name}: {message}"
    )


def without_key_bias(name, weights):
    """Drop the biases of keys: attention does not depend on them, so that rounding moves them."""
    if not name.endswith("c_attn.bias"):
        return weights
    query, _, value = weights.chunk(3)
    return torch.cat([query, value])


def train_by_hand(split, recipe):
    """Train with the model itself, torch's AdamW and torch's clipping. Returns losses, weights."""
    vocabulary = make_vocabulary(split.training)
    hard = tuple(e for e in split.training if e.attractors) * (recipe.attractor_copies - 1)
    examples = encode_examples(split.training + hard, vocabulary)
    torch.manual_seed(recipe.seed)
    config = VerbNumberConfig(
        vocab_size=len(vocabulary),
        activation_function="gelu_pytorch_tanh",
        initializer_range=recipe.initializer_range,
        **recipe.sizes,
    )
    model = VerbNumberModel(config).eval()  # without dropout
    weights = list(model.parameters())
    groups = [
        {"params": [w for w in weights if w.dim() > 1], "weight_decay": recipe.weight_decay},
        {"params": [w for w in weights if w.dim() < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.98))
    n_steps = recipe.epochs * (len(examples) // recipe.batch_size)
    losses: list[float] = []
    for epoch in range(recipe.epochs):
        for rows in draw_batches(examples.lengths, recipe.batch_size, recipe.seed, epoch):
            share = learning_rate(len(losses), n_steps, recipe.warm_up)
            for group in optimizer.param_groups:
                group["lr"] = recipe.learning_rate * share
            batch = examples.select(rows)
            loss = model(batch.ids, labels=batch.labels).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
            optimizer.step()
            losses.append(loss.item())
    return torch.tensor(losses), dict(model.named_parameters())


@pytest.mark.usefixtures("double_precision")
def test_losses_are_those_of_a_training_by_hand(split, monkeypatch):
    training = Training(OTHERS, split, make_vocabulary(split.training), CPU)
    losses = []
    take_step = training._take_step

    def record_step(*batch):
        losses.append(take_step(*batch))
        return losses[-1]

    monkeypatch.setattr(training, "_take_step", record_step)
    for _ in range(PLAIN.epochs):
        training.train_epoch()
    parts = training.ensemble.split(training.ensemble.weights)
    for i, recipe in enumerate(OTHERS):
        expected, weights = train_by_hand(split, recipe)
        torch.testing.assert_close(torch.stack(losses)[:, i], expected, atol=1e-9, rtol=1e-7)
        for name, part in parts.items():
            assert_same_weights(name, part[i], weights[name])


def test_dropout_has_a_rate_of_its_own_for_each_model():
    torch.manual_seed(0)
    dropped = _drop(torch.ones(3, 100, 50), torch.tensor([0.0, 0.1, 0.5]))
    assert torch.equal(dropped[0], torch.ones(100, 50))
    shares = (dropped == 0).float().mean((1, 2)).tolist()
    assert shares == pytest.approx([0, 0.1, 0.5], abs=0.02)
    assert dropped.mean((1, 2)).tolist() == pytest.approx([1, 1, 1], abs=0.05)
    assert dropped[2].max() == 2


def test_dropout_changes_the_losses_of_the_models_that_have_it():
    models = [small_model(0), small_model(0), small_model(0)]
    ids, labels = torch.randint(3, 30, (1, 8, 6)).expand(3, -1, -1), torch.zeros(3, 8).long()
    rates = Dropout(torch.tensor([0.0, 0.5, 0.0]), torch.tensor([0.0, 0.0, 0.5]))
    ensemble = Ensemble(models, CPU)
    plain = ensemble.loss(ids, labels, None).tolist()
    dropped = ensemble.loss(ids, labels, rates).tolist()
    assert dropped[0] == pytest.approx(plain[0])
    assert dropped[1] != pytest.approx(plain[1], rel=1e-4)
    assert dropped[2] != pytest.approx(plain[2], rel=1e-4)
