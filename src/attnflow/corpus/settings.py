"""Settings of a corpus run: which model runs, and which scores are computed.

`Settings` is the only list of these options. The keyword arguments of `attnflow.corpus.run`, the
options of `attnflow corpus run` and the settings in the manifest all come from its fields. Options
that do not change a score, such as the number of threads, are arguments of `attnflow.corpus.run`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from types import NoneType
from typing import IO, Any, ClassVar, Literal, Self, TypeAlias, cast

from attnflow.errors import InputError, check_choice, check_count, join_choices, quote

# Options of a run that are no settings; here because the command line must not import more.
Format: TypeAlias = Literal["text", "csv", "tsv", "jsonl", "parquet"]
EngineName: TypeAlias = Literal["local", "ray"]
SHARD_SIZE = 1000  # rows, by default

CPU_BATCH_TOKENS = 1024  # larger batches are slower on a processor
GPU_BATCH_TOKENS = 16_384
IMPORTANCE = ("blank_out", "input_gradients")
NAMED_POSITIONS = ("explained", "all")


@dataclass(frozen=True)
class Option:
    """How a setting is documented, checked, and read from the command line.

    help: one or two sentences. kind: the type on the command line: str, int, float or bool.
    read: converts the text of the command line to the value.
    choices: the allowed names. registry: "package.module:NAME" of the registry that has them.
    several: whether the value is a tuple of names; "none" and, if the names are known here, "all"
    are allowed, too.
    empty: how the command line spells None.
    minimum: the lowest allowed number.
    """

    help: str
    kind: type = str
    read: Callable[[str], Any] = str
    choices: tuple[str, ...] = ()
    registry: str = ""
    several: bool = False
    empty: str | None = None
    minimum: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The allowed names; empty if any value is allowed."""
        return self.entries().names if self.registry else self.choices

    @property
    def defaults(self) -> tuple[str, ...]:
        """The names that "all" stands for: not those of methods that are computed by name only."""
        if not self.registry:
            return self.choices
        return tuple(entry.name for entry in self.entries() if getattr(entry, "default", True))

    def entries(self) -> Any:
        """Return the registry."""
        from attnflow.registry import resolve_function

        return resolve_function(self.registry)

    def full_help(self) -> str:
        """Return the help with the entries of the registry, which is imported for it."""
        return f"{self.help} {self.entries().help()}" if self.registry else self.help

    def parse(self, text: str) -> Any:
        """Convert the text of the command line to the value of the setting."""
        if self.several:
            every = {"none": (), **({"all": self.defaults} if self.names else {})}
            return every[text] if text in every else _split_names(text)
        return None if text == self.empty else self.read(text)

    def format(self, value: Any) -> str | None:
        """Return a value as the command line spells it; None if it has no spelling."""
        if value is None:
            return self.empty
        return (",".join(value) or "none") if self.several else str(value)

    def check(self, name: str, value: Any) -> None:
        """Raise InputError or SelectionError unless the value consists of allowed names."""
        if (not self.registry and not self.choices) or value is None:
            return
        if not self.several and not self.registry:
            check_choice(name, value, self.choices)
            return
        for entry in value if self.several else (value,):
            if self.registry:
                self.entries()[entry]  # raises SelectionError
            elif entry not in self.choices:
                raise InputError(
                    f"{name} has {entry!r}",
                    expected=join_choices(self.choices),
                    fix="Use one or more of these.",
                )
        if self.several and len(set(value)) < len(value):
            raise InputError(
                f"{name} is {', '.join(value)}",
                expected="each name once",
                fix="Remove the duplicate.",
            )


def setting(default: Any, help: str, **details: Any) -> Any:
    """Return a field of `RunSettings` with its `Option`."""
    return field(default=default, metadata={"option": Option(help, **details)})


def _split_names(text: str) -> tuple[str, ...]:
    return tuple(name.strip().replace("-", "_") for name in text.split(","))


def _number_or_text(text: str) -> int | str:
    try:
        return int(text)
    except ValueError:
        return text


def _number_or_word(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _read_positions(text: str) -> str | tuple[int | str, ...]:
    if text in NAMED_POSITIONS:
        return text
    for word in get_close_matches(text, NAMED_POSITIONS, n=1, cutoff=0.7):
        raise InputError(
            f"positions is {text!r}",
            expected="explained, all, or indices and tokens separated by commas",
            fix=f"Did you mean {word}?",
        )
    return tuple(_number_or_text(part) for part in text.split(","))


def _read_layers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(number) for number in text.split(","))
    except ValueError:
        raise InputError(
            f"layers is {text!r}",
            expected="all, or whole numbers separated by commas",
            fix="For the first and the last layer: --layers 1,-1.",
        ) from None


class RunSettings(ABC):
    """The settings of a run over a data set: what every kind of run has in common.

    A subclass is a dataclass that lists its options as fields. `kind` names the kind of run in the
    manifest. The methods at the end say how a shard is computed and written; the engines and the
    store call them, and know nothing else of the run.
    """

    kind: ClassVar[str] = ""
    # Fields of every subclass:
    model: str
    tokenizer: str | None
    device: str | None

    def __post_init__(self) -> None:
        for name, option in self.options().items():
            value = getattr(self, name)
            if isinstance(value, Path):
                value = str(value)
            if option.several and isinstance(value, str):
                value = option.parse(value)
            if isinstance(value, list):
                value = tuple(value)
            object.__setattr__(self, name, value)
            option.check(name, value)
            if option.minimum is not None:
                check_count(name, value, first=option.minimum)

    @classmethod
    def options(cls) -> dict[str, Option]:
        """The options, by name."""
        return {entry.name: entry.metadata["option"] for entry in fields(cast(Any, cls))}

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """Return the settings with these values, and defaults for the others.

        Raises InputError for an option that does not exist.

        >>> Settings.from_options({"methods": "rollout,flow"}).methods
        ('rollout', 'flow')
        """
        known = cls.options()
        for name in options:
            if name not in known:
                close = get_close_matches(name, known, n=1)
                raise InputError(
                    f"there is no option {name!r}",
                    expected=f"one of {', '.join(known)}",
                    fix=f"Did you mean {close[0]}?" if close else f"See {cls.__name__}.",
                )
        return cls(**options)

    def to_json(self) -> dict[str, Any]:
        """Return the settings with types that JSON has."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(cast(Any, self)).items()
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote. Raises InputError if an option is missing or unknown."""
        if set(values) != set(cls.options()):
            names = ", ".join(sorted(set(cls.options()) ^ set(values)))
            raise InputError(
                f"the settings differ in {names}",
                expected="the settings of this version of attnflow",
                fix="Read them with the version that wrote them.",
            )
        return cls(**values)

    @abstractmethod
    def resolve(self, device: str) -> Self:
        """Return a copy in which defaults that depend on the device are filled in."""

    @abstractmethod
    def resolve_edges(self) -> Self:
        """Return a copy in which defaults that depend on the model are filled in."""

    @abstractmethod
    def open_scorer(self, threads: int | None) -> Any:
        """Load the model. The engines call `plan`, `run_batch` and `score_batch` of a scorer."""

    @abstractmethod
    def score_captured(self, captured: Any, threads: int | None) -> Any:
        """Return the results of a shard that a scorer ran the model on, elsewhere."""

    @abstractmethod
    def write_results(self, file: IO[bytes], results: Sequence[Any]) -> None:
        """Write the results of a shard as Parquet."""

    @abstractmethod
    def count_pairs(self, results: Iterable[Any]) -> int:
        """Count the pairs of positions and tokens whose flow was computed, for the status."""


@dataclass(frozen=True)
class Settings(RunSettings):
    """Everything that decides which scores a run computes. All of it can be written as JSON.

    model, tokenizer: a folder or a name, as in `attnflow.load_model`.
    methods: names of registered methods. importance: "blank_out", "input_gradients".
    positions: "explained", the position that `attnflow.explain` explains; "all"; or a tuple of
    indices, negative ones from the end, and token texts such as "[SEP]". An example without such a
    position, or with the token more than once, is rejected.
    layers: numbers from 1, negative ones from the last; None for all.
    normalize, residual_weight, heads, edges, target: as in `attnflow.explain`.
    truncate: "error" rejects an example that is too long, "cut" drops its end.
    words: whether to merge the tokens of each word.
    generate: the number of tokens that a language model generates after each text, 0 for none;
    answer_column: or the column of the input with the answer to each text. Then every token of the
    answer is explained: positions "explained" are those that predict its tokens.
    image_column: the column with the path of an image, or a list of paths, for models of texts and
    images. A text without one is scored alone.
    batch_tokens: the maximum number of tokens in a batch, including padding; None for 1,024, and
    16,384 on a GPU. The last bits of a result depend on it.
    device: where the model runs, such as "cpu" or "cuda"; None for a GPU if there is one.
    Raises InputError or SelectionError for an invalid value.
    """

    model: str = setting(
        "verb-number", "Folder with a model in safetensors format, or name on the Hugging Face hub."
    )
    tokenizer: str | None = setting(
        None, "Folder or name of the tokenizer, if it is not stored with the model."
    )
    methods: tuple[str, ...] = setting(
        ("rollout",),
        "Methods, separated by commas, or all, or none.",
        registry="attnflow.methods.registry:METHODS",
        several=True,
    )
    positions: Literal["explained", "all"] | tuple[int | str, ...] = setting(
        "explained",
        "Positions to score. explained: the mask, the last token of a decoder, or [CLS]. all. "
        "Or indices and tokens, separated by commas, such as 0,-2,[SEP].",
        read=_read_positions,
    )
    layers: tuple[int, ...] | None = setting(
        None,
        "Layer numbers from 1, separated by commas, -1 for the last, or all.",
        read=_read_layers,
        empty="all",
    )
    importance: tuple[str, ...] = setting(
        (),
        f"Importance scores to compare with: {' or '.join(IMPORTANCE)}, separated by commas, or "
        "all, or none.",
        choices=IMPORTANCE,
        several=True,
    )
    normalize: str = setting(
        "none",
        "none; rows: the scores of a position sum to 1; receptive_field: scores are divided by "
        "those of uniform attention, for decoders.",
    )
    residual_weight: float | str | None = setting(
        None,
        "Weight of the residual connection, from 0 to 1, or measured. Default: 0.5, unless the "
        "edges contain it.",
        read=_number_or_word,
    )
    heads: str | int = setting(
        "mean", "How to merge heads: mean, max, min, or the number of one head.",
        read=_number_or_text,
    )  # fmt: skip
    edges: str | None = setting(
        None,
        "Edge weights. Default: attention, and alti for decoders and encoder-decoders.",
        registry="attnflow.edges.registry:EDGES",
    )
    target: str | int | None = setting(
        None,
        "Class or token to explain, by name or number. Default: the predicted one.",
        read=_number_or_text,
    )
    truncate: Literal["error", "cut"] = setting(
        "error",
        "error: reject texts that are too long for the model; cut: drop their end.",
        choices=("error", "cut"),
    )
    words: bool = setting(False, "Merge the tokens of each word.", kind=bool)
    generate: int = setting(
        0,
        "Tokens to generate after each text, which are explained. Default: 0, none.",
        kind=int,
        minimum=0,
    )
    answer_column: str | None = setting(
        None, "Column with an answer to each text, whose tokens are explained."
    )
    image_column: str | None = setting(
        None,
        "Column with the image file of each text, or a list of them, for models of texts and "
        "images. Paths are relative to the folder of the input file.",
    )
    batch_tokens: int | None = setting(
        None,
        f"Maximum number of tokens in a batch. Default: {CPU_BATCH_TOKENS}, on a GPU "
        f"{GPU_BATCH_TOKENS}.",
        kind=int,
        minimum=1,
    )
    device: str | None = setting(
        None, "Device of the model, such as cpu or cuda. Default: a GPU if there is one."
    )

    kind: ClassVar[str] = "scores"

    def __post_init__(self) -> None:
        for name in OPTIONS:
            _check_kind(name, getattr(self, name))
        super().__post_init__()
        if not self.methods and not self.importance:
            raise InputError(
                "no method was given",
                expected="at least one method or importance score",
                fix="Use --methods rollout (methods=('rollout',)).",
            )
        self._check_values()

    def _check_values(self) -> None:
        from attnflow.attribution import check_normalize
        from attnflow.edges.registry import EDGES, fit_residual
        from attnflow.layers import resolve_residual

        check_normalize(self.normalize)
        for name in ("model", "tokenizer", "device"):
            if getattr(self, name) == "":
                raise InputError(f"{name} is empty", expected="a name", fix=f"Leave {name} out.")
        residual: Any = self.residual_weight
        if self.edges is not None:
            residual = fit_residual(residual, EDGES[self.edges])
        if residual is not None and not isinstance(residual, str):
            resolve_residual(residual, 1)
        if self.has_answers:
            self._check_answers()
        if self.image_column is not None and self.importance:
            raise InputError(
                f"importance is {', '.join(self.importance)}, and texts come with images",
                expected="methods only",
                fix="Leave out importance.",
            )
        several = isinstance(self.positions, tuple) and self.positions
        if self.positions not in NAMED_POSITIONS and not (
            several and all(map(_is_position, self.positions))
        ):
            raise InputError(
                f"positions is {self.positions!r}",
                expected="'explained', 'all', or indices and tokens such as (0, '[SEP]')",
                fix="Use positions='explained' for one position in each text.",
            )

    def _check_answers(self) -> None:
        if self.generate and self.answer_column is not None:
            raise InputError(
                "generate and answer_column were both given",
                expected="one of them",
                fix="Leave out generate to explain the answers of the column.",
            )
        given = {"target": self.target, "importance": self.importance}
        for name, value in given.items():
            if value:
                raise InputError(
                    f"{name} is {value!r}, and answers are explained",
                    expected=f"answers without {name}",
                    fix=f"Leave out {name}: the targets are the tokens of the answers.",
                )
        if self.positions != "explained":
            raise InputError(
                f"positions is {self.positions!r}, and answers are explained",
                expected="'explained': the positions that predict the answer",
                fix="Leave out positions.",
            )

    @property
    def has_answers(self) -> bool:
        """Whether the tokens of answers are explained."""
        return bool(self.generate) or self.answer_column is not None

    @property
    def fields(self) -> tuple[str, ...]:
        """The columns of the input that are needed besides texts and IDs."""
        columns = (self.answer_column, self.image_column)
        return tuple(name for name in columns if name is not None)

    def resolve(self, device: str) -> "Settings":
        """Return a copy with `device` and `batch_tokens` filled in where they are None."""
        device = self.device or device
        default = CPU_BATCH_TOKENS if device == "cpu" else GPU_BATCH_TOKENS
        return replace(self, device=device, batch_tokens=self.batch_tokens or default)

    def resolve_edges(self) -> "Settings":
        """Return a copy with the edges for the kind of model, if they are None.

        Raises FileError if there is no such model.
        """
        from attnflow.edges.registry import default_edges
        from attnflow.models.loading import has_decoder

        is_default = self.residual_weight is None and self.heads == "mean"
        edges = self.edges or default_edges(has_decoder=is_default and has_decoder(self.model))
        return replace(self, edges=edges)

    def describe_residual(self) -> Any:
        """The residual weight of resolved settings, as results record it."""
        from attnflow.edges.registry import EDGES, fit_residual

        residual: Any = self.residual_weight
        return fit_residual(residual, EDGES[self.edges or "attention"])

    def open_scorer(self, threads: int | None) -> Any:
        """Load the model."""
        from attnflow.corpus.scorer import Scorer

        return Scorer(self, threads)

    def score_captured(self, captured: Any, threads: int | None) -> Any:
        """Compute the scores of a shard that `Scorer.capture` ran the model on."""
        from attnflow.corpus.scorer import score_captured

        return score_captured(self, captured, threads)

    def write_results(self, file: IO[bytes], results: Sequence[Any]) -> None:
        """Write scores, one row for each example, position and layer."""
        from attnflow.corpus.parquet import write_parquet

        write_parquet(file, results, self)

    def count_pairs(self, results: Iterable[Any]) -> int:
        """Count the pairs of positions and tokens whose flow was computed, over all layers."""
        if "flow" not in self.methods:
            return 0
        return sum(
            len(result.layers) * len(result.positions) * len(result.tokens)
            for result in results
            if hasattr(result, "layers")  # a rejected row has none
        )


OPTIONS = Settings.options()


# The kinds of values that a setting may have; their contents are checked elsewhere.
KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("model", "normalize", "truncate"), (str,)),
    **dict.fromkeys(("tokenizer", "edges", "device"), (str, NoneType)),
    **dict.fromkeys(("methods", "importance", "positions"), (str, list, tuple)),
    "layers": (list, tuple, NoneType),
    "residual_weight": (int, float, str, NoneType),
    "heads": (int, str),
    "target": (int, str, NoneType),
    "words": (bool,),
    "generate": (int,),
    "answer_column": (str, NoneType),
    "image_column": (str, NoneType),
    "batch_tokens": (int, NoneType),
}
ITEMS: dict[str, tuple[type, ...]] = {"methods": (str,), "importance": (str,), "layers": (int,)}


def _check_kind(name: str, value: Any) -> None:
    """Raise InputError for a value of a kind that the setting cannot have."""
    value = str(value) if isinstance(value, Path) else value
    kinds, items = KINDS.get(name), ITEMS.get(name, (object,))
    is_switch = isinstance(value, bool) and kinds != (bool,)
    listed = value if isinstance(value, list | tuple) else ()
    if kinds is not None and (
        is_switch
        or not isinstance(value, kinds)
        or not all(type(item) in items or items == (object,) for item in listed)
    ):
        names = " or ".join("None" if kind is NoneType else kind.__name__ for kind in kinds)
        raise InputError(f"{name} is {quote(value)}", expected=names, fix=f"Leave {name} out.")


def _is_position(value: Any) -> bool:
    return type(value) is int or (type(value) is str and value != "")
