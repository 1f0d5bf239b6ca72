"""MaskedModel: asks a model about a text without some of its tokens.

Every set of removed tokens is run once, however many metrics and explanations ask about it. Sets
are run in batches of equal length, so nothing is padded.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnflow.errors import InputError
from attnflow.importance.replacement import (
    Replacement,
    find_changes,
    mean_embedding,
    resolve_replacement,
    start_token,
)
from attnflow.importance.target import Target, replace_embeddings
from attnflow.models.inputs import collate
from attnflow.models.model_state import evaluation_mode
from attnflow.models.prediction import logits_of_batch
from attnflow.models.wrappers import unwrap
from attnflow.optional import import_optional
from attnflow.study.case import Case, log_chance
from attnflow.study.prediction_row import at_position, find_layers

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

BATCH_TOKENS = 2048  # of a batch, on a processor
MIN_POSITIONS = 4  # of a text, to find the layers that need only one of them
DRAWS = 8  # of kept dimensions, for the soft metrics


class MaskedModel:
    """A model that can be asked about a case without some of its units.

    replacement: what takes the place of removed tokens, as in `blank_out`. With "remove", later
    tokens move up, and if none is left, the start token of the model stands for the empty text.
    batch_tokens: the maximum number of tokens in a batch. draws, seed: for the soft metrics and
    replacement="sample". other: a model of the same case with another replacement, draws and seed
    being equal; the soft metrics do not depend on the replacement, and share their answers.
    runs: the number of changed texts that were run.
    Raises InputError for a replacement that the model does not support.
    """

    def __init__(
        self,
        case: Case,
        replacement: Replacement | None = None,
        *,
        batch_tokens: int = BATCH_TOKENS,
        draws: int = DRAWS,
        seed: int = 0,
        other: "MaskedModel | None" = None,
    ) -> None:
        self.case, self.batch_tokens, self.draws, self.seed = case, batch_tokens, draws, seed
        self.replacement = resolve_replacement(case.loaded, replacement)
        if self.replacement == "neighbor":
            raise InputError(
                "replacement is 'neighbor', and several tokens are removed at once",
                expected="a replacement that does not repeat another token of the text",
                fix="Use replacement='sample' or 'mean'.",
            )
        self.inputs = collate(case.loaded, [case.encoded])
        self.device = self.inputs["input_ids"].device
        self.chooses_logits = (
            case.loaded.task == "causal_lm"
            and "logits_to_keep" in signature(case.loaded.model.forward).parameters
        )
        self.substitutes = self._find_substitutes()
        self.mean = mean_embedding(case.loaded) if self.replacement == "mean" else None
        self.last_layers = self._find_last_layers()
        self.runs = 0
        self._known: dict[bytes, float] = {}
        self._soft: dict[bytes, float] = {} if other is None else other._soft

    @property
    def n(self) -> int:
        """The number of ranked units."""
        return len(self.case.units)

    def log_probability(self, removed: Bools) -> Floats:
        """Return log p [sets] of the prediction without some units. removed: [sets, units]."""
        sets = np.ascontiguousarray(removed, dtype=bool)
        keys = [row.tobytes() for row in sets]
        new = {key: i for i, key in enumerate(keys) if key not in self._known}
        if new:
            values = self._run_all(self.case.tokens_of(sets[list(new.values())]))
            self._known.update(zip(new, values.tolist(), strict=True))
        return np.asarray([self._known[key] for key in keys])

    def soft_probability(self, kept: Floats) -> Floats:
        """Return p [rows], if each dimension of a unit's embeddings is kept by chance.

        kept: [rows, units], the chances. The mean over draws, which are the same for all rows.
        """
        keys = [np.ascontiguousarray(row).tobytes() for row in kept]
        for key, row in zip(keys, kept, strict=True):
            if key not in self._soft:
                self._soft[key] = self._run_soft(row)
        return np.asarray([self._soft[key] for key in keys])

    def _find_substitutes(self) -> list[int] | None:
        """Return the token id that takes the place of each token; None if it is no token."""
        if self.replacement in ("remove", "mean"):
            return None
        case, step = self.case, self.case.steps[0]
        ids: list[int] = self.inputs["input_ids"][0].tolist()
        target = Target(case.encoded, step.position, step.contrast, None)
        torch = import_optional("torch", "running a model")
        with torch.no_grad():
            changes = find_changes(case.loaded, target, self.replacement, samples=1, seed=self.seed)
        for change in changes:
            assert change.token is not None
            ids[change.column] = change.token
        changed = {change.column for change in changes}
        if not all(token in changed for unit in case.units for token in unit):
            raise InputError(
                f"replacement is {self.replacement!r}, and nothing can replace the first token",
                expected="a tokenizer with a token for the start of a text",
                fix="Use replacement='mean'.",
            )
        return ids

    def _run_all(self, removed: Bools) -> Floats:
        """Return log p of sets of removed tokens [sets, tokens], in batches of equal shape."""
        groups: dict[tuple[Any, ...], list[int]] = {}
        for i, row in enumerate(removed):
            groups.setdefault(self._shape(row), []).append(i)
        values = np.empty(len(removed))
        for shape, members in groups.items():
            size = max(1, self.batch_tokens // max(shape[0], 1))
            if not self.case.loaded.supports_batches:
                size = 1
            for start in range(0, len(members), size):
                part = members[start : start + size]
                values[part] = self._run(removed[part])
        self.runs += len(removed)
        return values

    def _shape(self, removed: Bools) -> tuple[Any, ...]:
        """Return the length of a changed text, and its positions: equal ones share a batch."""
        if self.replacement != "remove":
            return (len(removed),)
        return (int((~removed).sum()), *self._positions(removed))

    def _positions(self, removed: Bools) -> tuple[int, ...]:
        """Return where a text without some tokens is predicted.

        A decoder without the token at its position predicts from the token before. The prediction
        of a classifier or an encoder-decoder has no position in the text.
        """
        if self.case.loaded.task in ("classifier", "seq2seq"):
            return tuple(self.case.positions)
        kept = np.cumsum(~removed) - 1
        return tuple(int(kept[position]) for position in self.case.positions)

    def _run(self, removed: Bools) -> Floats:
        """Run the model on changed texts of equal shape; removed: [rows, tokens]."""
        torch = import_optional("torch", "running a model")
        place: AbstractContextManager[None] = nullcontext()
        positions: Sequence[int] = self.case.positions
        mask = torch.as_tensor(removed, device=self.device)
        if self.replacement == "remove":
            inputs, positions = self._cut(mask, removed[0])
        else:
            inputs = {name: values.repeat(len(removed), 1) for name, values in self.inputs.items()}
        if self.mean is not None:
            mean = self.mean

            def put_mean(embeddings: Any) -> Any:
                return torch.where(mask[..., None], mean.to(embeddings), embeddings)

            place = replace_embeddings(self.case.loaded, put_mean)
        elif self.substitutes is not None:
            others = torch.tensor(self.substitutes).to(inputs["input_ids"])
            inputs["input_ids"] = torch.where(mask, others, inputs["input_ids"])
        with place:
            return self._score(inputs, positions)

    def _cut(self, mask: Any, removed: Bools) -> tuple[dict[str, Any], Sequence[int]]:
        """Return the inputs without the removed tokens, and the positions of the predictions."""
        torch = import_optional("torch", "running a model")
        rows, positions = len(mask), list(self._positions(removed))
        kept = (~mask).nonzero()[:, 1].reshape(rows, -1)
        inputs = {}
        for name, values in self.inputs.items():
            repeated = values.repeat(rows, 1)
            own = name.startswith("decoder_")
            inputs[name] = repeated if own else repeated.gather(1, kept)
        if kept.shape[1] > 0 and positions[0] >= 0:
            return inputs, positions
        # Nothing is left before the first prediction: the text begins with the start token.
        first = start_token(self.case.loaded)
        if first is None:
            place = min(self.case.positions[0], self.case.encoded.n_inputs - 1)
            first = int(self.inputs["input_ids"][0, place])
        starts = {"input_ids": first, "attention_mask": 1, "token_type_ids": 0}
        for name in starts.keys() & inputs.keys():
            start = inputs[name].new_full((rows, 1), starts[name])
            inputs[name] = torch.cat([start, inputs[name]], dim=1)
        return inputs, [position + (positions[0] < 0) for position in positions]

    def _score(self, inputs: dict[str, Any], positions: Sequence[int]) -> Floats:
        """Run the model, and return log p [rows], summed over the steps."""
        torch = import_optional("torch", "running a model")
        place = at_position(self.last_layers, inputs["input_ids"].shape[1], positions[0])
        with place, torch.no_grad():
            logits = self._logits(inputs, positions)
            total = torch.zeros(logits.shape[1], dtype=torch.float64, device=logits.device)
            for step, row in zip(self.case.steps, logits, strict=True):
                total += log_chance(self.case.loaded, row, step.contrast)
        return np.asarray(total.cpu().numpy())

    def _find_last_layers(self) -> tuple[Any, ...]:
        """Return the layers that need only the position of the prediction; none for several.

        A classifier finds its position by itself, so it counts only if it is the first one, [CLS].
        """
        torch = import_optional("torch", "running a model")
        loaded, positions, ids = self.case.loaded, self.case.positions, self.inputs["input_ids"]
        is_known = loaded.task in ("causal_lm", "masked_lm") or positions == [0]
        n, is_single = ids.shape[1], len(positions) == 1 and loaded.task != "seq2seq"
        is_plain = loaded.supports_batches and unwrap(loaded.model) is loaded.model
        if not (is_known and is_single and is_plain and n >= MIN_POSITIONS):
            return ()
        inputs = {name: values.repeat(2, 1) for name, values in self.inputs.items()}
        inputs["input_ids"] = torch.cat([ids, ids.roll(1, dims=1)])  # two texts, to be sure
        with torch.no_grad(), evaluation_mode(loaded.model):
            run = partial(self._logits, inputs, positions)
            return find_layers(loaded.model, run, n, positions[0])

    def _logits(self, inputs: dict[str, Any], positions: Sequence[int]) -> Any:
        """Run the model, and return the logits [steps, rows, classes]."""
        torch = import_optional("torch", "running a model")
        loaded, rows = self.case.loaded, len(inputs["input_ids"])
        options = {}
        if self.chooses_logits:  # a large part of a small model's work is its vocabulary
            options["logits_to_keep"] = torch.tensor(list(positions), device=self.device)
            positions = range(len(positions))
        logits = loaded.model(**inputs, **options).logits
        if logits.dim() == 3 and logits.shape[1] == 1:  # of a single position, as `at_position` has
            positions = [0] * len(positions)
        encoded = [self.case.encoded] * rows
        return torch.stack(
            [logits_of_batch(loaded, logits, encoded, [place] * rows) for place in positions]
        )

    def _run_soft(self, kept: Floats) -> float:
        """Return the mean of p over draws of kept dimensions. kept: [units]."""
        torch = import_optional("torch", "running a model")
        chances = np.ones(self.case.encoded.n_inputs)
        for chance, unit in zip(kept, self.case.units, strict=True):
            chances[list(unit)] = chance
        generator = torch.Generator().manual_seed(self.seed)

        def drop(embeddings: Any) -> Any:
            draws = torch.rand(embeddings.shape, generator=generator).to(embeddings.device)
            limits = torch.as_tensor(chances, device=draws.device, dtype=draws.dtype)
            return embeddings * (draws < limits[None, :, None])

        rows = 1 if not self.case.loaded.supports_batches else self.draws
        values = []
        for _ in range(self.draws // rows):
            inputs = {name: values_.repeat(rows, 1) for name, values_ in self.inputs.items()}
            with replace_embeddings(self.case.loaded, drop):
                values.append(np.exp(self._score(inputs, self.case.positions)))
        self.runs += self.draws
        return float(np.mean(values))
