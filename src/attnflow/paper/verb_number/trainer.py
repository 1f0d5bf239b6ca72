"""Training the verb-number model: seeded, and resumed where it stopped.

Every epoch starts from a seed of its own, so that a resumed training does what an uninterrupted one
does. What is kept is the running average of the weights, which is better than the last weights.

The state of a training under way in a file, which is never left half written.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
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
from attnflow.paper.verb_number.objective import Learner, Mixture, Objective, accuracy
from attnflow.paper.verb_number.splits import Split
from attnflow.paper.verb_number.vocabulary import make_vocabulary


def write_checkpoint(path: str | Path, identity: dict[str, Any], state: dict[str, Any]) -> None:
    """Write a state; identity: what the run is, by which it is known again."""
    new = Path(path).with_name(f"{Path(path).name}.new")
    new.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"identity": json.dumps(identity, sort_keys=True), **state}, new)
    new.replace(path)


def read_checkpoint(path: str | Path, identity: dict[str, Any]) -> dict[str, Any]:
    """Read a state, without running anything that the file may hold.

    Raises FileError if the file is broken, or comes from another run.
    """
    try:
        state: Any = torch.load(path, map_location="cpu", weights_only=True)
        found = json.loads(state["identity"])
    except (EOFError, KeyError, OSError, RuntimeError, TypeError, UnpicklingError) as error:
        raise FileError(
            f"{path} cannot be read ({type(error).__name__})",
            expected="a checkpoint of a training",
            fix="Remove it to start anew.",
        ) from error
    wanted = json.loads(json.dumps(identity))
    differing = sorted(key for key in {*found, *wanted} if found.get(key) != wanted.get(key))
    if differing:
        pairs = [f"{key} {found.get(key)} and not {wanted.get(key)}" for key in differing]
        raise FileError(
            f"{path} comes from another training, with {', '.join(pairs)}",
            expected="the same options and data",
            fix="Give the same ones, or train in another folder.",
        )
    return dict(state)


log = getLogger(__name__)

Progress = Callable[[int, int], None]  # epochs done, and all


@dataclass(frozen=True)
class Recipe:
    """How to train.

    copies: how often an epoch has each example of the natural distribution.
    share: how much of an epoch has attractors. averaging: how slowly weights are averaged.
    sizes: sizes of the model other than the paper's, by their names in VerbNumberConfig.
    """

    epochs: int = 25
    batch_size: int = 256
    learning_rate: float = 1e-3
    weight_decay: float = 0.05
    warm_up: float = 0.05
    dropout: float = 0.2
    copies: int = 2
    share: float = 0.25
    averaging: float = 0.999
    objective: Objective = field(default_factory=Objective)
    sizes: dict[str, int] = field(default_factory=dict)
    seed: int = 0
    causal: bool = False


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained model, in evaluation mode; its vocabulary, and its accuracy on held-out sets."""

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

    checkpoint: a file to write after each epoch. resume: whether to go on from that file, if it is
    there; it must come from the same recipe and data.
    device: where to run; a GPU if there is one. progress: told of the epochs that are done.
    The caller's random numbers are left as they were.
    Raises InputError for a recipe that cannot be used, FileError for a checkpoint of another run.
    """
    recipe = recipe or Recipe()
    _check(recipe, split)
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    vocabulary = make_vocabulary(split.training)
    mixture = Mixture.from_split(split, vocabulary, copies=recipe.copies, share=recipe.share)
    with torch.random.fork_rng(devices=[place] if place.type == "cuda" else []):
        run = Run(recipe, mixture, len(vocabulary), place)
        if resume and checkpoint is not None and Path(checkpoint).exists():
            run.restore(read_checkpoint(checkpoint, run.identity()))
        while run.epoch < recipe.epochs:
            _train_epoch(run, split, vocabulary)
            if checkpoint is not None:
                write_checkpoint(checkpoint, run.identity(), run.state())
            if progress is not None:
                progress(run.epoch, recipe.epochs)
    model = run.average.cpu()
    sets = {"development": split.dev, **split.test}
    return Trained(
        model, vocabulary, {name: accuracy(model, part, vocabulary) for name, part in sets.items()}
    )


def _train_epoch(run: "Run", split: Split, vocabulary: dict[str, int]) -> None:
    started = monotonic()
    loss = run.train_epoch()
    found = accuracy(run.average, split.dev, vocabulary)
    log.info(
        "epoch %d of %d: loss %.4f, accuracy on the development set %.4f, %.1f s",
        *(run.epoch, run.recipe.epochs, loss, found, monotonic() - started),
    )


def _check(recipe: Recipe, split: Split) -> None:
    if recipe.epochs < 1 or recipe.batch_size < 1 or recipe.copies < 1:
        raise InputError(
            f"epochs is {recipe.epochs}, batch_size {recipe.batch_size} and copies {recipe.copies}",
            expected="1 or more",
            fix="Raise what is smaller.",
        )
    if not 0 <= recipe.share < 1:
        raise InputError(
            f"share is {recipe.share}",
            expected="0 or more, and less than 1",
            fix="It is the part of an epoch that has attractors.",
        )
    if not split.natural and not split.treebanks:
        raise InputError(
            "there is nothing to train on but sentences with attractors",
            expected="examples of the natural distribution, or treebanks",
            fix="Give some.",
        )


class Run:
    """A training under way: the model, its running average, and the optimizer."""

    def __init__(self, recipe: Recipe, mixture: Mixture, n_words: int, device: torch.device):
        self.recipe, self.mixture, self.device = recipe, mixture, device
        torch.manual_seed(recipe.seed)
        drops = dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), recipe.dropout)
        config = VerbNumberConfig(
            vocab_size=n_words, is_decoder=recipe.causal, **drops, **recipe.sizes
        )
        self.learner = Learner(VerbNumberModel(config)).to(device)
        average: Any = VerbNumberModel(config)
        self.average: VerbNumberModel = average.to(device).eval().requires_grad_(False)
        self.average.load_state_dict(self.learner.model.state_dict())
        self.optimizer = _optimizer(self.learner, recipe)
        self.epoch, self.step = 0, 0
        self.n_steps = recipe.epochs * mixture.n_batches(recipe.batch_size)

    def train_epoch(self) -> float:
        """Train for one epoch; return the mean loss of its batches."""
        seed = self.recipe.seed * 10_000 + self.epoch
        torch.manual_seed(seed)  # for dropout
        generator = torch.Generator().manual_seed(seed)  # for the order, and what is blanked
        self.learner.train()
        total = torch.zeros((), device=self.device)
        batches = list(self.mixture.epoch(self.recipe.batch_size, generator))
        for rows in batches:
            batch = self.mixture.texts.choose(rows).to(self.device)
            with torch.autocast(self.device.type, torch.bfloat16, self.device.type == "cuda"):
                loss = self.learner.loss(batch, self.recipe.objective, generator)
            self._update(loss)
            total += loss.detach()
        self.epoch += 1
        return float(total) / len(batches)

    def _update(self, loss: torch.Tensor) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.step, self.n_steps, self.recipe)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.learner.parameters(), 1.0)
        self.optimizer.step()
        self.step += 1
        # In the beginning the average follows closely, since the first weights are random.
        decay = min(self.recipe.averaging, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            pairs = zip(self.average.parameters(), self.learner.model.parameters(), strict=True)
            for mean, now in pairs:
                mean.lerp_(now, 1 - decay)

    def identity(self) -> dict[str, Any]:
        """What a checkpoint must have in common with this run to be resumed."""
        return {**asdict(self.recipe), "n_texts": len(self.mixture.texts), "steps": self.n_steps}

    def state(self) -> dict[str, Any]:
        """What is needed to go on."""
        return {
            "epoch": self.epoch,
            "step": self.step,
            "learner": self.learner.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        self.epoch, self.step = state["epoch"], state["step"]
        self.learner.load_state_dict(state["learner"])
        self.average.load_state_dict(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])
        log.info("resumed after epoch %d of %d", self.epoch, self.recipe.epochs)


def learning_rate(step: int, n_steps: int, recipe: Recipe) -> float:
    """Rising in a line while warming up, then falling to 0 as a cosine does."""
    warm_up = max(int(recipe.warm_up * n_steps), 1)
    if step < warm_up:
        return recipe.learning_rate * (step + 1) / warm_up
    return recipe.learning_rate * (1 + cos(pi * (step - warm_up) / max(n_steps - warm_up, 1))) / 2


def _optimizer(learner: Learner, recipe: Recipe) -> torch.optim.Optimizer:
    """AdamW, without decay for biases and the scales of norms."""
    matrices = [weights for weights in learner.parameters() if weights.dim() > 1]
    others = [weights for weights in learner.parameters() if weights.dim() < 2]
    return torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": recipe.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ],
        lr=recipe.learning_rate,
        betas=(0.9, 0.98),
    )
