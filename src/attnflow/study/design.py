"""Design: the settings of a study: the model, what is compared, and by which metrics.

`Design` is the only list of these options. The keyword arguments of `attnflow.study.evaluate`, the
options of `attnflow evaluate` and the settings in the manifest all come from its fields.
"""

from collections.abc import Iterable, Sequence
from dataclasses import Field, dataclass, fields, replace
from pathlib import Path
from typing import IO, Any, ClassVar, Literal

from attnflow.corpus.settings import Option, RunSettings, setting
from attnflow.errors import InputError, quote
from attnflow.head_merge import check_heads

METHODS = ("raw", "rollout", "flow")
EDGES = ("attention", "norm", "alti", "gradient")
REPLACEMENTS = ("unknown", "mask", "pad", "remove", "mean", "sample", "blur")
SIGNS = ("signed", "positive", "absolute")
CPU_BATCH_TOKENS = 2048
GPU_BATCH_TOKENS = 65_536


def _number_or_text(text: str) -> int | str:
    try:
        return int(text)
    except ValueError:
        return text


@dataclass(frozen=True)
class Design(RunSettings):
    """Everything that decides the values of a study. All of it can be written as JSON.

    model, tokenizer: a folder or a name, as in `attnflow.load_model`, or a vision model.
    methods, edges: their combinations are compared; edges may name a residual weight, as in
    "attention:measured" or "attention:0.3". explainers: opponents to compare with; the baselines
    (random, position, frequency, embedding norm) are part of every study.
    metrics: names of registered metrics. replacements: what takes the place of removed tokens; by
    default the one that fits the model, and "remove" (for images "mean" and "blur").
    signs: how scores with a sign are ranked.
    words: rank words instead of tokens. samples: orders to average over where tokens are tied;
    twice as many for "random", which all others are compared with.
    draws: of dropped dimensions, for the soft metrics. seed: of both.
    target, against: as in `attnflow.explain`, for all texts; or the columns that name them.
    continuation_column: texts that a decoder is made to predict; generate: or the number of tokens
    that it generates itself first. evidence_column: the part of each text that decides the
    prediction.
    heads, truncate, device: as in `attnflow.explain`. limit: only the first rows of the input.
    batch_tokens: the maximum number of tokens in a batch.
    Raises InputError or SelectionError for an invalid value.
    """

    kind: ClassVar[str] = "evaluation"

    model: str = setting(
        "verb-number", "Folder with a model in safetensors format, or name on the Hugging Face hub."
    )
    tokenizer: str | None = setting(
        None, "Folder or name of the tokenizer, if it is not stored with the model."
    )
    methods: tuple[str, ...] = setting(
        METHODS,
        "Methods, separated by commas, or all, or none.",
        registry="attnflow.methods.registry:METHODS",
        several=True,
    )
    edges: tuple[str, ...] = setting(
        EDGES,
        "Edges, separated by commas, such as alti or attention:measured, or all.",
        several=True,
    )
    explainers: tuple[str, ...] = setting(
        ("default",),
        "Opponents, separated by commas, or default, all, or none.",
        several=True,
    )
    metrics: tuple[str, ...] = setting(
        ("default",),
        "Metrics, separated by commas, or default, or all.",
        several=True,
    )
    replacements: tuple[str, ...] = setting(
        (),
        "What takes the place of removed tokens: unknown, mask, pad, remove, mean, sample; for "
        "images mean, blur. Default: the one that fits the model, and remove.",
        choices=REPLACEMENTS,
        several=True,
    )
    signs: tuple[str, ...] = setting(
        ("signed", "positive"),
        "How scores are ranked: signed, positive (negative scores are tied at 0), absolute.",
        choices=SIGNS,
        several=True,
    )
    words: bool = setting(False, "Rank words instead of tokens.", kind=bool)
    samples: int = setting(4, "Orders to average over where tokens are tied.", kind=int, minimum=1)
    draws: int = setting(
        8, "Draws of dropped dimensions, for the soft metrics.", kind=int, minimum=1
    )
    seed: int = setting(0, "Seed of the draws.", kind=int, minimum=0)
    target: str | int | None = setting(
        None, "Class or token to explain, for all texts. Default: the predicted one.",
        read=_number_or_text,
    )  # fmt: skip
    against: str | int | None = setting(
        None, "Class or token to compare the target with.", read=_number_or_text
    )
    target_column: str | None = setting(None, "Column that names the target of each text.")
    against_column: str | None = setting(
        None, "Column that names what the target of each text is compared with."
    )
    continuation_column: str | None = setting(
        None, "Column of continuations, which a decoder is made to predict."
    )
    generate: int = setting(
        0, "Tokens that a decoder generates first, to explain all of them.", kind=int, minimum=0
    )
    evidence_column: str | None = setting(
        None,
        "Column of the evidence: a part of the text, or character offsets such as [[4, 8]].",
    )
    heads: str | int = setting(
        "mean", "How to merge heads: mean, max, min, or the number of one head.",
        read=_number_or_text,
    )  # fmt: skip
    truncate: Literal["error", "cut"] = setting(
        "error",
        "error: reject texts that are too long for the model; cut: drop their end.",
        choices=("error", "cut"),
    )
    limit: int | None = setting(
        None, "Only the first rows of the input. Default: all.", kind=int, minimum=1
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

    def __post_init__(self) -> None:
        for entry in fields(self):
            _check_kind(entry, getattr(self, entry.name))
        super().__post_init__()
        from attnflow.study.explainers import resolve_explainers

        object.__setattr__(self, "edges", _expand_edges(self.edges))
        object.__setattr__(self, "explainers", _expand_explainers(self.explainers))
        object.__setattr__(self, "metrics", _expand_metrics(self.metrics))
        resolve_explainers(self.methods, self.edges, self.explainers)
        check_heads(self.heads)
        if self.generate and self.continuation_column:
            raise InputError(
                "generate and continuation_column were given",
                expected="one of the two",
                fix="Leave one out.",
            )
        if not self.signs:
            raise InputError("signs is none", expected="at least one", fix="Use signs='signed'.")

    @property
    def fields(self) -> tuple[str, ...]:
        """The columns of the input that the study needs besides texts and IDs."""
        columns = (
            self.target_column,
            self.against_column,
            self.continuation_column,
            self.evidence_column,
        )
        return tuple(column for column in columns if column is not None)

    def resolve(self, device: str) -> "Design":
        """Return a copy with `device` and `batch_tokens` filled in where they are None."""
        device = self.device or device
        default = CPU_BATCH_TOKENS if device == "cpu" else GPU_BATCH_TOKENS
        return replace(self, device=device, batch_tokens=self.batch_tokens or default)

    def resolve_edges(self) -> "Design":
        """Return the design itself: edges do not depend on the model."""
        return self

    def open_scorer(self, threads: int | None) -> Any:
        """Load the model."""
        from attnflow.study.evaluator import Evaluator

        return Evaluator(self, threads)

    def score_captured(self, captured: Any, threads: int | None) -> Any:  # noqa: ARG002
        """Return the results of a shard, which the evaluator computed with the model."""
        return captured

    def write_results(self, file: IO[bytes], results: Sequence[Any]) -> None:
        """Write values, one row for each text, explainer, replacement and sign."""
        from attnflow.study.values import write_values

        write_values(file, results, self)

    def count_pairs(self, results: Iterable[Any]) -> int:  # noqa: ARG002
        """Return 0: a study does not count flows."""
        return 0


def _check_kind(entry: Field[Any], value: Any) -> None:
    """Raise InputError for a value of a kind that a setting cannot have."""
    option: Option = entry.metadata["option"]
    kinds: tuple[type, ...] = (option.kind,)
    if option.several:
        kinds = (str, list, tuple)
    elif option.kind is str:
        kinds = (str, int) if option.read is _number_or_text else (str, Path)
    is_switch = isinstance(value, bool) and option.kind is not bool
    items = value if isinstance(value, list | tuple) else ()
    if value is None and entry.default is None:
        return
    if is_switch or not isinstance(value, kinds) or not all(isinstance(i, str) for i in items):
        raise InputError(
            f"{entry.name} is {quote(value)}",
            expected="names" if option.several else " or ".join(kind.__name__ for kind in kinds),
            fix=f"Leave {entry.name} out.",
        )


def _expand_edges(edges: Sequence[str]) -> tuple[str, ...]:
    """Return edges as `Edges.parse` writes them; "all" stands for all registered ones."""
    from attnflow.edges.registry import EDGES as REGISTERED
    from attnflow.study.explainers import Edges

    names = REGISTERED.names if "all" in edges else edges
    return tuple(dict.fromkeys(Edges.parse(name).text for name in names))


def _expand_explainers(names: Sequence[str]) -> tuple[str, ...]:
    """Return opponents; "default" and "all" stand for several."""
    from attnflow.study.explainers import EXPLAINERS, default_opponents

    expanded: list[str] = []
    for name in names:
        if name == "all":
            expanded += [entry.name for entry in EXPLAINERS if entry.kind == "opponent"]
        else:
            expanded += default_opponents() if name == "default" else [EXPLAINERS[name].name]
    return tuple(dict.fromkeys(expanded))


def _expand_metrics(names: Sequence[str]) -> tuple[str, ...]:
    """Return metrics; "default" and "all" stand for several."""
    from attnflow.evaluation.metrics import METRICS

    expanded: list[str] = []
    for name in names:
        if name in ("all", "default"):
            expanded += [m.name for m in METRICS if m.default or name == "all"]
        else:
            expanded.append(METRICS[name].name)
    if not expanded:
        raise InputError("metrics is none", expected="at least one", fix="Use metrics='default'.")
    return tuple(dict.fromkeys(expanded))
