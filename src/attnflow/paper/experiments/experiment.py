"""Experiments: the table of all of them, the options they share, and the results they return.

An experiment has two functions. `run` computes a Result from Options; `render` turns a Result into
a Report without computing anything, so saved results can be rendered again. Nothing here loads
NumPy or torch, because the help of `attnflow reproduce` lists the experiments.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from attnflow.errors import FileError, SelectionError
from attnflow.progress import Progress
from attnflow.registry import resolve_function

if TYPE_CHECKING:
    from attnflow.paper.experiments.report import Report

# The methods that the paper compares, in the order of its tables.
PAPER_METHODS = ("raw", "rollout", "flow")


@dataclass(frozen=True)
class Experiment:
    """An experiment: a table or figure of the paper, or a question that the paper leaves open.

    name: as the command line spells it. summary: what it shows, as a phrase.
    run_function, render_function: "module:function", with a module of this package, such that
    listing the experiments imports none of them.
    """

    name: str
    summary: str
    run_function: str
    render_function: str

    def run(self, options: "Options", progress: Progress | None = None) -> "Result":
        """Compute the numbers, and draw figures into `options.pictures_folder`."""
        result: Result = resolve_function(f"{__package__}.{self.run_function}")(options, progress)
        return result

    def render(self, result: "Result") -> "Report":
        """Turn a result into text, tables and pictures."""
        report: Report = resolve_function(f"{__package__}.{self.render_function}")(result)
        return report


# To add an experiment, write its two functions and list them here.
_ALL = (
    Experiment(
        "table1",
        "rank correlation with blank-out, verb-number model",
        "agreement_tables:run_table1",
        "agreement_tables:render_table1",
    ),
    Experiment(
        "table2",
        "rank correlation with input gradients, verb-number model",
        "agreement_tables:run_table2",
        "agreement_tables:render_table2",
    ),
    Experiment(
        "table3",
        "rank correlation with input gradients, sentiment classifier",
        "table3:run",
        "table3:render",
    ),
    Experiment(
        "figure1",
        "the attention graph of a sentence: raw attention, rollout and flow",
        "sentence_figures:run_figure1",
        "sentence_figures:render_figure1",
    ),
    Experiment(
        "figure2",
        "maps of raw attention of [CLS] for three sentences",
        "sentence_figures:run_figure2",
        "sentence_figures:render_figure2",
    ),
    Experiment(
        "figure3",
        "maps of rollout and flow of [CLS] for the same sentences",
        "sentence_figures:run_figure3",
        "sentence_figures:render_figure3",
    ),
    Experiment(
        "figure4",
        "attention of a masked pronoun to the two words it can refer to",
        "figure4:run",
        "figure4:render",
    ),
    Experiment(
        "accuracy",
        "accuracy of the verb-number models, by number of attractors",
        "accuracy:run",
        "accuracy:render",
    ),
    Experiment(
        "decoders",
        "a causal model, with and without receptive-field normalization",
        "graph_variants:run_decoders",
        "graph_variants:render_decoders",
    ),
    Experiment(
        "edges",
        "edge weightings other than plain attention",
        "graph_variants:run_edges",
        "graph_variants:render_edges",
    ),
    Experiment(
        "residual",
        "residual weights from 0.1 to 0.9",
        "graph_variants:run_residual",
        "graph_variants:render_residual",
    ),
    Experiment(
        "saturation",
        "share of tokens whose flow is saturated, by layer",
        "saturation:run",
        "saturation:render",
    ),
    Experiment(
        "trainings",
        "tables 1 and 2 for several trained models",
        "agreement_tables:run_trainings",
        "agreement_tables:render_trainings",
    ),
)
EXPERIMENTS = {experiment.name: experiment for experiment in _ALL}


def find_experiment(name: str) -> Experiment:
    """Return an experiment by its name.

    Raises SelectionError, listing all names, if there is none.
    """
    if name not in EXPERIMENTS:
        raise SelectionError(
            f"the experiment is {name!r}",
            expected=f"one of {', '.join(EXPERIMENTS)}, or all",
            fix="Run `attnflow reproduce` for a list with descriptions.",
        )
    return EXPERIMENTS[name]


@dataclass(frozen=True)
class Options:
    """Options that all experiments share.

    data: a folder of data sets, a file of agreement sentences, or "grammar" for generated
    sentences. Default: the folder named by ATTNFLOW_DATA, or ./data.
    examples: the maximum number of examples of each set. Default: all.
    out: the folder for results. pictures: the folder for figures. Default: the same as `out`.
    cache: the folder that caches measurements; None disables the cache.
    model: a name or a folder. Default: the model of the experiment.
    device: where models run. threads: for models and for flow.
    seed: for samples and the bootstrap.
    picture_format: "svg", "pdf" or "png". width: of figures in inches. Default: a full page.
    dark: whether to draw on a dark background. scale: the color scale of maps, "shared" by all or
    each its "own". Default: shared, unless one map would be nearly blank.
    texts: the texts that figures show. Default: those of the experiment.
    fillers: the words that figure 4 compares at the mask. candidates: for each text of figure 4
    the words that the fillers refer to, in the same order, separated by commas.
    """

    data: str | None = None
    examples: int | None = None
    out: Path = Path("results")
    pictures: Path | None = None
    cache: Path | None = None
    model: str | None = None
    device: str | None = None
    threads: int | None = None
    seed: int = 0
    picture_format: str = "svg"
    width: float | None = None
    dark: bool = False
    scale: Literal["shared", "own"] | None = None
    texts: tuple[str, ...] = ()
    fillers: tuple[str, ...] = ("his", "her")
    candidates: tuple[str, ...] = ()

    @property
    def drawing_options(self) -> dict[str, Any]:
        """Keyword arguments of all drawing functions: `dark`, and `width` if it is set."""
        return {"dark": self.dark} | ({} if self.width is None else {"width": self.width})

    @property
    def pictures_folder(self) -> Path:
        """The folder for figures; created if it does not exist."""
        folder = self.out if self.pictures is None else self.pictures
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def default_cache() -> Path:
    """Return the folder that caches measurements by default: one in the user's cache folder."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "attnflow" / "experiments"


@dataclass(frozen=True)
class Result:
    """The numbers of an experiment, and how they were computed.

    experiment: its name. numbers: aggregated over examples; JSON values.
    settings: the model, the data and the options that the numbers depend on.
    pictures: the file names of figures, without the folder.
    command, date, version: the command line, the day, and the version of attnflow; the command
    line sets them.
    """

    experiment: str
    numbers: Mapping[str, Any]
    settings: Mapping[str, Any] = field(default_factory=dict)
    pictures: tuple[str, ...] = ()
    command: str = ""
    date: str = ""
    version: str = ""


def write_result(result: Result, folder: Path) -> Path:
    """Write a result to NAME.json in the folder, atomically. Returns the path.

    Raises ValueError if a number is not finite, because JSON has no such numbers.
    """
    from attnflow.storage import write_atomic  # loads NumPy

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result.experiment}.json"
    text = json.dumps(asdict(result), separators=(",", ":"), allow_nan=False)
    write_atomic(path, lambda file: file.write(f"{text}\n".encode()))
    return path


def read_result(path: Path) -> Result:
    """Read a file that `write_result` wrote.

    Raises FileError if it cannot be read or is not the result of an experiment.
    """
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        return Result(**{**fields, "pictures": tuple(fields.get("pictures", ()))})
    except (OSError, TypeError, ValueError, AttributeError) as error:
        raise FileError(
            f"{path} is not the result of an experiment ({error})",
            expected="a JSON file written by `attnflow reproduce`",
            fix="Run the experiment again.",
        ) from error
