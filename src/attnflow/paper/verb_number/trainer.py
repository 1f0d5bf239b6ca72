"""The training loop of the verb-number model, and checkpoints to resume from.

Every epoch has its own seed, so that a resumed training gives the same weights as an uninterrupted
one. The result is an exponential moving average of the weights, which is more accurate than the
last weights.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from io import BytesIO
from logging import getLogger
from math import cos, pi
from pathlib import Path
from pickle import UnpicklingError
from time import monotonic
from typing import Any

import torch
from torch import nn

from attnflow.errors import FileError, InputError
from attnflow.models.builtin.verb_number import VerbNumberConfig, VerbNumberModel
from attnflow.paper.verb_number.encoded_examples import (
    EncodedExamples,
    accuracy,
    draw_batches,
    encode_examples,
    replace_words,
)
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
    attractor_copies: how often an epoch has each example that is known to have attractors.
    average_decay: the decay of the moving average of the weights, per step.
    sizes: model sizes that differ from the paper's, by their names in VerbNumberConfig.
    """

    epochs: int = 10
    batch_size: int = 512
    learning_rate: float = 1e-3
    weight_decay: float = 0.05
    warm_up: float = 0.05
    dropout: float = 0.1
    attention_dropout: float = 0.3
    unknown_rate: float = 0.1
    attractor_copies: int = 3
    average_decay: float = 0.999
    sizes: dict[str, int] = field(default_factory=dict)
    seed: int = 0
    causal: bool = False


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained model in evaluation mode, its vocabulary, and its accuracy on held-out sets."""

    model: VerbNumberModel
    vocabulary: dict[str, int]
    accuracy: dict[str, float]


def train(
    split: Split,
    recipe: Recipe | None = None,
    *,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    device: Any = None,
    progress: Progress | None = None,
) -> Trained:
    """Train the model on a split.

    checkpoint: a file to write after each epoch. resume: continue from that file if it exists; it
    must come from a training with the same recipe and data.
    device: default, a GPU if there is one. progress: called with the epochs done and in total.
    The state of torch's random number generator is restored.
    Raises InputError for invalid settings, FileError for a checkpoint that does not match,
    DiskError if the checkpoint cannot be written.
    """
    recipe = recipe or Recipe()
    _check_settings(recipe, split)
    torch_device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    vocabulary = make_vocabulary(split.training)
    hard = tuple(example for example in split.training if example.attractors)
    chosen = split.training + hard * (recipe.attractor_copies - 1)
    examples = encode_examples(chosen, vocabulary).to(torch_device)
    is_cuda = torch_device.type == "cuda"
    with torch.random.fork_rng(devices=[torch_device] if is_cuda else []), _tensor_cores(is_cuda):
        training = Training(recipe, examples, len(vocabulary))
        if resume and checkpoint is not None and Path(checkpoint).exists():
            training.restore(read_checkpoint(checkpoint, training.settings()))
        while training.epoch < recipe.epochs:
            _train_epoch(training, split, vocabulary)
            if checkpoint is not None:
                write_checkpoint(checkpoint, training.settings(), training.state())
            if progress is not None:
                progress(training.epoch, recipe.epochs)
    model = training.average.cpu()
    sets = {"development": split.dev, **split.test}
    scores = {name: accuracy(model, examples, vocabulary) for name, examples in sets.items()}
    return Trained(model, vocabulary, scores)


@contextmanager
def _tensor_cores(enabled: bool) -> Iterator[None]:
    """Let a GPU multiply matrices with 10 bits of precision, and restore the setting."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if enabled else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _check_settings(recipe: Recipe, split: Split) -> None:
    for name in ("epochs", "batch_size", "attractor_copies"):
        value = getattr(recipe, name)
        if value < 1:
            raise InputError(f"{name} is {value}", expected="1 or more", fix=f"Increase {name}.")
    for name in ("dropout", "attention_dropout", "unknown_rate"):
        value = getattr(recipe, name)
        if not 0 <= value < 1:
            raise InputError(
                f"{name} is {value}", expected="0 or more, and less than 1", fix="It is a share."
            )
    if not split.training:
        raise InputError(
            "the split has no training examples", expected="at least one", fix="Add some."
        )


def _train_epoch(training: "Training", split: Split, vocabulary: dict[str, int]) -> None:
    """Train an epoch, and log the loss and the accuracy on the development set."""
    start = monotonic()
    loss = training.train_epoch()
    dev_accuracy = accuracy(training.average, split.dev, vocabulary)
    log.info(
        "epoch %d of %d: loss %.4f, development accuracy %.4f, %.1f s",
        *(training.epoch, training.recipe.epochs, loss, dev_accuracy, monotonic() - start),
    )


class Training:
    """The state of a training: the model, the average of its weights, and the optimizer."""

    def __init__(self, recipe: Recipe, examples: EncodedExamples, vocabulary_size: int):
        self.recipe, self.examples, self.device = recipe, examples, examples.ids.device
        torch.manual_seed(recipe.seed)
        config = VerbNumberConfig(
            vocab_size=vocabulary_size,
            is_decoder=recipe.causal,
            activation_function="gelu_pytorch_tanh",  # GPT-2's, in one kernel
            attn_pdrop=recipe.attention_dropout,
            embd_pdrop=recipe.dropout,
            resid_pdrop=recipe.dropout,
            **recipe.sizes,
        )
        # Kernels of scaled dot-product attention are slow for short sequences with small heads.
        config._attn_implementation = "eager"
        model: Any = VerbNumberModel(config)
        self.model: VerbNumberModel = model.to(self.device)
        average: Any = deepcopy(self.model)
        self.average: VerbNumberModel = average.eval().requires_grad_(False)
        self.optimizer = _make_optimizer(self.model, recipe)
        self.epoch, self.step = 0, 0
        self.n_steps = recipe.epochs * -(-len(examples) // recipe.batch_size)

    def train_epoch(self) -> float:
        """Train for an epoch; return the mean loss of its batches."""
        seed = self.recipe.seed * 10_000 + self.epoch
        torch.manual_seed(seed)  # for dropout and replaced words
        generator = torch.Generator().manual_seed(seed)
        self.model.train()
        total = torch.zeros((), device=self.device)
        batches = list(draw_batches(self.examples.lengths, self.recipe.batch_size, generator))
        for rows in batches:
            loss = self._loss(self.examples.select(rows))
            self._update(loss)
            total += loss.detach()
        self.epoch += 1
        return float(total) / len(batches)

    def _loss(self, batch: EncodedExamples) -> torch.Tensor:
        """Return the loss of the number of the verb."""
        ids = replace_words(batch.ids, self.recipe.unknown_rate)
        loss: torch.Tensor = self.model(ids, labels=batch.labels).loss
        return loss

    def _update(self, loss: torch.Tensor) -> None:
        """Take a step of the optimizer, and update the average."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.step, self.n_steps, self.recipe)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.step += 1
        # A smaller decay in the first steps, because the initial weights are random.
        decay = min(self.recipe.average_decay, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            means: list[torch.Tensor] = [*self.average.parameters()]
            weights: list[torch.Tensor] = [*self.model.parameters()]
            torch._foreach_lerp_(means, weights, 1 - decay)

    def settings(self) -> dict[str, Any]:
        """Return the settings that a checkpoint must share to be resumed."""
        return {**asdict(self.recipe), "n_examples": len(self.examples), "n_steps": self.n_steps}

    def state(self) -> dict[str, Any]:
        """Return the state to resume from."""
        return {
            "epoch": self.epoch,
            "step": self.step,
            "model": self.model.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from a state."""
        self.epoch, self.step = state["epoch"], state["step"]
        self.model.load_state_dict(state["model"])
        self.average.load_state_dict(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])
        log.info("resumed after epoch %d of %d", self.epoch, self.recipe.epochs)


def learning_rate(step: int, n_steps: int, recipe: Recipe) -> float:
    """Return the learning rate of a step: a linear warm-up, then a cosine decay to 0."""
    warm_up = max(int(recipe.warm_up * n_steps), 1)
    if step < warm_up:
        return recipe.learning_rate * (step + 1) / warm_up
    return recipe.learning_rate * (1 + cos(pi * (step - warm_up) / max(n_steps - warm_up, 1))) / 2


def _make_optimizer(model: VerbNumberModel, recipe: Recipe) -> torch.optim.Optimizer:
    """AdamW; biases and the scales of layer norms have no weight decay."""
    matrices = [weights for weights in model.parameters() if weights.dim() > 1]
    vectors = [weights for weights in model.parameters() if weights.dim() < 2]
    return torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": recipe.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ],
        lr=recipe.learning_rate,
        betas=(0.9, 0.98),
        fused=next(model.parameters()).is_cuda,
    )


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
