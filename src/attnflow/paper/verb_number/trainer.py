"""The training loop of the verb-number model, and checkpoints to resume from.

Every epoch has its own seed, so that a resumed training gives the same weights as an uninterrupted
one. The result is an exponential moving average of the weights, which is more accurate than the
last weights.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from io import BytesIO
from logging import getLogger
from math import cos, pi
from pathlib import Path
from pickle import UnpicklingError
from time import monotonic
from typing import Any

import torch

from attnflow.errors import FileError, InputError
from attnflow.models.builtin.verb_number import VerbNumberConfig, VerbNumberModel
from attnflow.paper.verb_number.encoded_examples import (
    EVALUATION_BATCH,
    accuracy,
    draw_batches,
    encode_examples,
    replace_words,
)
from attnflow.paper.verb_number.ensemble import Dropout, Ensemble
from attnflow.paper.verb_number.splits import Split, make_vocabulary
from attnflow.progress import Progress
from attnflow.storage import write_atomic

log = getLogger(__name__)


@dataclass(frozen=True)
class Recipe:
    """Settings of a training.

    warm_up: the share of steps in which the learning rate rises.
    dropout: of embeddings and of the outputs of blocks. attention_dropout: of attention weights.
    unknown_rate: the share of words and tags that become [UNK] in each batch.
    label_smoothing: the share of each label that is spread over both numbers.
    attractor_copies: how often an epoch has each example that is known to have attractors.
    average_decay: the decay of the moving average of the weights, per step.
    initializer_range: the standard deviation of the initial weights; transformers has 0.02.
    sizes: model sizes that differ from the paper's, by their names in VerbNumberConfig.
    """

    epochs: int = 4
    batch_size: int = 512
    learning_rate: float = 2e-3
    weight_decay: float = 0.6
    warm_up: float = 0.05
    dropout: float = 0.0
    attention_dropout: float = 0.1
    unknown_rate: float = 0.05
    label_smoothing: float = 0.0
    attractor_copies: int = 1
    average_decay: float = 0.999
    initializer_range: float = 0.12
    sizes: dict[str, int] = field(default_factory=dict)
    seed: int = 0
    causal: bool = False


# Settings that models trained side by side can have of their own.
OWN_SETTINGS = (
    *("learning_rate", "weight_decay", "dropout", "attention_dropout", "unknown_rate"),
    *("label_smoothing", "initializer_range", "seed"),
)


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained model in evaluation mode, its vocabulary, and its accuracy on held-out sets."""

    model: VerbNumberModel
    vocabulary: dict[str, int]
    accuracy: dict[str, float]


def train(split: Split, recipe: Recipe | None = None, **options: Any) -> Trained:
    """Train one model on a split. options: those of `train_together`."""
    return train_together(split, [recipe or Recipe()], **options)[0]


def train_together(
    split: Split,
    recipes: Sequence[Recipe],
    *,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    device: Any = None,
    progress: Progress | None = None,
) -> list[Trained]:
    """Train models side by side, as one ensemble: on a GPU, several take little longer than one.

    recipes: one for each model. They may differ in OWN_SETTINGS.
    checkpoint: a file to write after each epoch. resume: continue from that file if it exists; it
    must come from a training with the same recipes and data.
    device: default, a GPU if there is one. progress: called with the epochs done and in total.
    The state of torch's random number generator is restored.
    Raises InputError for invalid settings, FileError for a checkpoint that does not match,
    DiskError if the checkpoint cannot be written.
    """
    _check_settings(recipes, split)
    torch_device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    is_cuda = torch_device.type == "cuda"
    vocabulary = make_vocabulary(split.training)
    epochs = recipes[0].epochs
    with torch.random.fork_rng(devices=[torch_device] if is_cuda else []), _tensor_cores(is_cuda):
        training = Training(recipes, split, vocabulary, torch_device)
        if resume and checkpoint is not None and Path(checkpoint).exists():
            training.restore(read_checkpoint(checkpoint, training.settings()))
        while training.epoch < epochs:
            _train_epoch(training)
            if checkpoint is not None:
                write_checkpoint(checkpoint, training.settings(), training.state())
            if progress is not None:
                progress(training.epoch, epochs)
        return training.finish()


@contextmanager
def _tensor_cores(enabled: bool) -> Iterator[None]:
    """Let a GPU multiply matrices with 10 bits of precision, and restore the setting."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if enabled else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _check_settings(recipes: Sequence[Recipe], split: Split) -> None:
    if not recipes:
        raise InputError("no recipe was given", expected="one for each model", fix="Add one.")
    for recipe in recipes:
        for name in ("epochs", "batch_size", "attractor_copies"):
            if (value := getattr(recipe, name)) < 1:
                raise InputError(
                    f"{name} is {value}", expected="1 or more", fix=f"Increase {name}."
                )
        for name in ("dropout", "attention_dropout", "unknown_rate", "label_smoothing"):
            if not 0 <= (value := getattr(recipe, name)) < 1:
                raise InputError(
                    f"{name} is {value}",
                    expected="0 or more, and less than 1",
                    fix="It is a share.",
                )
        for name in sorted({*asdict(recipe)} - {*OWN_SETTINGS}):
            first, value = getattr(recipes[0], name), getattr(recipe, name)
            if value != first:
                raise InputError(
                    f"{name} is {first} and {value}",
                    expected="the same for models that are trained side by side",
                    fix="Train them one after the other.",
                )
    if not split.training:
        raise InputError(
            "the split has no training examples", expected="at least one", fix="Add some."
        )


def _train_epoch(training: "Training") -> None:
    """Train an epoch, and log the losses and the accuracies on the development set."""
    start = monotonic()
    losses = ", ".join(f"{loss:.4f}" for loss in training.train_epoch())
    accuracies = ", ".join(f"{share:.4f}" for share in training.dev_accuracy())
    log.info(
        "epoch %d of %d: loss %s; development accuracy %s; %.1f s",
        *(training.epoch, training.recipes[0].epochs, losses, accuracies, monotonic() - start),
    )


class Training:
    """The state of a training: the ensemble, and how far it is."""

    def __init__(
        self,
        recipes: Sequence[Recipe],
        split: Split,
        vocabulary: dict[str, int],
        device: torch.device,
    ) -> None:
        self.recipes, self.split, self.vocabulary, self.device = recipes, split, vocabulary, device
        hard = tuple(example for example in split.training if example.attractors)
        chosen = split.training + hard * (recipes[0].attractor_copies - 1)
        self.examples = encode_examples(chosen, vocabulary).to(device)
        self.dev = encode_examples(split.dev, vocabulary).to(device)
        self.ensemble = Ensemble([new_model(r, len(vocabulary)) for r in recipes], device)
        self.is_compiled = device.type == "cuda"
        self.ensemble.compile(self.is_compiled)
        self.unknown_rates = self._setting("unknown_rate")
        self.smoothing = self._setting("label_smoothing")
        self.weight_decay = self._setting("weight_decay")[:, None]
        self.peaks = self._setting("learning_rate")[:, None]
        self.dropout: Dropout | None = None
        if any(recipe.dropout or recipe.attention_dropout for recipe in recipes):
            self.dropout = Dropout(self._setting("attention_dropout"), self._setting("dropout"))
        self.epoch, self.step = 0, 0
        self.n_steps = recipes[0].epochs * max(len(self.examples) // recipes[0].batch_size, 1)

    def _setting(self, name: str) -> torch.Tensor:
        """Return a setting of each model, [models]."""
        values = [float(getattr(recipe, name)) for recipe in self.recipes]
        return torch.tensor(values, device=self.device)

    def train_epoch(self) -> list[float]:
        """Train for an epoch; return the mean loss of the batches of each model."""
        # For dropout and replaced words.
        torch.manual_seed(self.recipes[0].seed * 10_000 + self.epoch)
        size = self.recipes[0].batch_size
        batches = torch.stack(
            [draw_batches(self.examples.lengths, size, r.seed, self.epoch) for r in self.recipes], 1
        )  # [batches, models, examples]
        longest = self.examples.lengths[batches].amax((1, 2)).tolist()
        total = torch.zeros(len(self.recipes), device=self.device)
        for rows, n in zip(batches.to(self.device), longest, strict=True):
            total += self._take_step(self.examples.ids[rows, :n], self.examples.labels[rows])
        self.epoch += 1
        return (total / len(batches)).tolist()

    def _take_step(self, ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Train on a batch of each model; return the losses [models].

        ids: [models, examples, tokens]. labels: [models, examples].
        """
        recipe = self.recipes[0]
        # A smaller decay in the first steps, because the initial weights are random.
        decay = min(recipe.average_decay, (2 + self.step) / (11 + self.step))
        rates = self.peaks * learning_rate(self.step, self.n_steps, recipe.warm_up)
        try:
            losses = self.ensemble.loss(
                replace_words(ids, self.unknown_rates), labels, self.dropout, self.smoothing
            )
            self.ensemble.step(losses, rates, self.weight_decay, self.step, decay)
        except RuntimeError:
            if not self.is_compiled:
                raise
            log.warning("the kernels cannot be compiled: training is slower", exc_info=True)
            self.is_compiled = False
            self.ensemble.compile(False)
            return self._take_step(ids, labels)
        self.step += 1
        return losses.detach()

    def dev_accuracy(self) -> list[float]:
        """Return the accuracy of each model's average on the development set."""
        correct = torch.zeros(len(self.recipes), device=self.device)
        for rows in torch.split(torch.arange(len(self.dev)), EVALUATION_BATCH):
            batch = self.dev.select(rows)
            correct += (self.ensemble.predict(batch.ids).argmax(-1) == batch.labels).sum(-1)
        return (correct / max(len(self.dev), 1)).tolist()

    def finish(self) -> list[Trained]:
        """Return the averages as models, with their accuracy on all held-out sets."""
        sets = {"development": self.split.dev, **self.split.test}
        trained = []
        for recipe, weights in zip(self.recipes, self.ensemble.to_weights(), strict=True):
            model = new_model(recipe, len(self.vocabulary))
            model.load_state_dict(weights)
            model.train(False)
            model.to(self.device)  # type: ignore[arg-type]
            scores = {
                name: accuracy(model, examples, self.vocabulary) for name, examples in sets.items()
            }
            trained.append(Trained(model.cpu(), self.vocabulary, scores))
        return trained

    def settings(self) -> dict[str, Any]:
        """Return the settings that a checkpoint must share to be resumed."""
        recipes = [asdict(recipe) for recipe in self.recipes]
        own = {name: [recipe[name] for recipe in recipes] for name in OWN_SETTINGS}
        return {**recipes[0], **own, "n_examples": len(self.examples), "n_steps": self.n_steps}

    def state(self) -> dict[str, Any]:
        """Return the state to resume from."""
        return {"epoch": self.epoch, "step": self.step, **self.ensemble.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from a state."""
        self.epoch, self.step = state["epoch"], state["step"]
        self.ensemble.restore(state)
        log.info("resumed after epoch %d of %d", self.epoch, self.recipes[0].epochs)


def new_model(recipe: Recipe, vocabulary_size: int) -> VerbNumberModel:
    """Return a model with random weights."""
    torch.manual_seed(recipe.seed)
    config = VerbNumberConfig(
        vocab_size=vocabulary_size,
        is_decoder=recipe.causal,
        activation_function="gelu_pytorch_tanh",  # GPT-2's, in one kernel
        attn_pdrop=recipe.attention_dropout,
        embd_pdrop=recipe.dropout,
        resid_pdrop=recipe.dropout,
        initializer_range=recipe.initializer_range,
        **recipe.sizes,
    )
    config._attn_implementation = "eager"
    return VerbNumberModel(config)


def learning_rate(step: int, n_steps: int, warm_up: float) -> float:
    """Return the learning rate of a step as a share of its maximum.

    It rises linearly in a share `warm_up` of the steps, then decays to 0 as a cosine.
    """
    n_warm_up = max(int(warm_up * n_steps), 1)
    if step < n_warm_up:
        return (step + 1) / n_warm_up
    return (1 + cos(pi * (step - n_warm_up) / max(n_steps - n_warm_up, 1))) / 2


def write_checkpoint(path: str | Path, settings: dict[str, Any], state: dict[str, Any]) -> None:
    """Write the state of a training atomically. settings: checked again by `read_checkpoint`.

    Raises DiskError if the file cannot be written.
    """
    checkpoint = Path(path)
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    buffer = BytesIO()
    torch.save({"settings": json.dumps(settings, sort_keys=True), **state}, buffer)
    write_atomic(checkpoint, lambda file: file.write(buffer.getbuffer()))


def read_checkpoint(path: str | Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Read the state of a training. Never runs code from the file.

    Raises FileError if the file is invalid, or comes from a training with other settings.
    """
    try:
        state: Any = torch.load(path, map_location="cpu", weights_only=True)
        stored = json.loads(state["settings"])
    except (EOFError, KeyError, OSError, RuntimeError, TypeError, UnpicklingError) as error:
        raise FileError(
            f"{path} cannot be read ({type(error).__name__})",
            expected="a checkpoint of a training",
            fix="Delete it to start again.",
        ) from error
    current = json.loads(json.dumps(settings))
    different = sorted(key for key in {*stored, *current} if stored.get(key) != current.get(key))
    if different:
        raise FileError(
            f"{path} has {', '.join(f'{key} {stored.get(key)}' for key in different)}",
            expected=", ".join(f"{key} {current.get(key)}" for key in different),
            fix="Use the same options and data, or train in another folder.",
        )
    return dict(state)
