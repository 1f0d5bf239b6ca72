"""What is computed for every example of a corpus. Part of the manifest: it decides every number."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, TypeAlias

from attnflow.errors import InputError

Truncate: TypeAlias = Literal["error", "cut"]
WhichPositions: TypeAlias = Literal["explained", "all"] | tuple[int | str, ...]

GPU_BATCH_TOKENS = 16_384
METHODS = ("raw", "rollout", "flow")
IMPORTANCE = ("blank_out", "input_gradients")
CHOICES: dict[str, tuple[str, ...]] = {
    "normalize": ("none", "rows", "receptive_field"),
    "edges": ("attention", "effective", "gradient", "value"),
    "truncate": ("error", "cut"),
}


@dataclass(frozen=True)
class Settings:
    """What is computed, and how. JSON can write all of it.

    model, tokenizer: a folder or a name, as in `attnflow.load_model`.
    methods: of "raw", "rollout" and "flow". importance: of "blank_out" and "input_gradients".
    positions: "explained", the one that `attnflow.explain` explains; "all"; or several, each an
    index, negative ones from the end, or the text of a token such as "[SEP]". An example that has
    no such position, or the token more than once, is refused.
    layers: numbers from 1, negative ones from the last; None for all.
    normalize, residual_weight, heads, edges, target: as in `attnflow.explain`.
    truncate: "error" refuses an example that is too long, "cut" leaves out its end.
    words: whether to merge the tokens of each word.
    batch_tokens: the most tokens, padding included, that the model is run on at once. More are
    slower on a processor; `attnflow.corpus.run` takes 16,384 on a GPU. The last bits of a result
    depend on it.
    device: where the model runs.
    Raises InputError for an unknown choice.
    """

    model: str = "verb-number"
    tokenizer: str | None = None
    methods: tuple[str, ...] = ("rollout",)
    positions: WhichPositions = "explained"
    layers: tuple[int, ...] | None = None
    importance: tuple[str, ...] = ()
    normalize: str = "none"
    residual_weight: float = 0.5
    heads: str | int = "mean"
    edges: str = "attention"
    target: str | int | None = None
    truncate: Truncate = "error"
    words: bool = False
    batch_tokens: int = 1024
    device: str = "cpu"

    def __post_init__(self) -> None:
        for name, allowed in (("methods", METHODS), ("importance", IMPORTANCE)):
            _check_names(name, getattr(self, name), allowed)
        if not self.methods and not self.importance:
            raise InputError(
                "no method was given",
                expected="raw, rollout or flow, or an importance score",
                fix="Name at least one.",
            )
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise InputError(
                    f"{name} is {getattr(self, name)!r}",
                    expected=f"{_listed(choices)}",
                    fix="Choose one of these.",
                )
        if self.batch_tokens < 1:
            raise InputError(
                f"batch_tokens is {self.batch_tokens}",
                expected="1 or more",
                fix="Use 1024.",
            )
        _check_positions(self.positions)

    def to_json(self) -> dict[str, Any]:
        """As JSON can write it."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
        }

    @classmethod
    def from_json(cls, written: Mapping[str, Any]) -> "Settings":
        """What `to_json` wrote. Raises InputError if something is missing or unknown."""
        names = {field.name for field in fields(cls)}
        if set(written) != names:
            strange = ", ".join(sorted(names ^ set(written)))
            raise InputError(
                f"the settings differ in {strange}",
                expected="those of this version of attnflow",
                fix="Read them with the version that wrote them.",
            )
        given: dict[str, Any] = {k: tuple(v) if type(v) is list else v for k, v in written.items()}
        return cls(**given)


def _check_names(name: str, given: Sequence[str], allowed: Sequence[str]) -> None:
    for one in given:
        if one not in allowed:
            raise InputError(
                f"{name} has {one!r}",
                expected=f"{_listed(allowed)}",
                fix="Choose among these.",
            )
    if len(set(given)) < len(given):
        raise InputError(
            f"{name} is {', '.join(given)}",
            expected="each name once",
            fix="Remove what is there twice.",
        )


def _check_positions(given: Any) -> None:
    several = isinstance(given, tuple) and given and all(_is_position(one) for one in given)
    if given not in ("explained", "all") and not several:
        raise InputError(
            f"positions is {given!r}",
            expected="'explained', 'all', or indices and tokens such as (0, '[SEP]')",
            fix="Choose one of these.",
        )


def _is_position(given: Any) -> bool:
    return type(given) is int or (type(given) is str and given != "")


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(map(repr, names[:-1]))} or {names[-1]!r}"
