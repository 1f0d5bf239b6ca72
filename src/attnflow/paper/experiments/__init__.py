"""The paper's experiments: one module for each table and figure, and for each open question.

A module has two functions, and `attnflow reproduce NAME` runs the module of that name:

- `run(options: Options, progress: Progress | None) -> Result` computes. Its numbers are what JSON
  can write, aggregated over examples. Pictures are written into `options.pictures_folder`, and
  named, without the folder, in `Result.pictures`.
- `render(result: Result) -> Report` lays a result out as text, tables and pictures. It computes
  nothing and opens no files, so that saved results can be laid out anew.

The command adds date, version and its own words to the result, saves it as JSON, and prints the
report; `docs/paper.md` is made of the same reports. To add an experiment, write its module, and
list it in EXPERIMENTS below. Progress is called with steps done and steps in all.
"""

from importlib import import_module
from typing import Protocol, cast

from attnflow.errors import SelectionError
from attnflow.paper.experiments.options import Options, Progress
from attnflow.paper.experiments.report import Report
from attnflow.paper.experiments.result import Result

__all__ = ["EXPERIMENTS", "Experiment", "find_experiment"]

# Names, in the order of the paper, and what they show.
EXPERIMENTS = {
    "accuracy": "how often the verb-number models are right, by number of attractors",
    "table1": "rank correlation with blank-out, verb-number model",
    "table2": "rank correlation with input gradients, verb-number model",
    "table3": "rank correlation with input gradients, a sentiment classifier",
    "figure1": "the attention graph of a sentence: raw attention, rollout, flow",
    "figure2": "maps of raw attention of [CLS] for three sentences",
    "figure3": "maps of rollout and flow of [CLS] for the same sentences",
    "figure4": "which name a masked pronoun is traced back to",
    "decoders": "a causal model, with and without receptive fields normalized",
    "edges": "effective, gradient-weighted and value-weighted edges",
    "saturation": "how much of flow is decided by saturation at each depth",
    "residual": "residual weights from 0.1 to 0.9",
    "trainings": "tables 1 and 2 for several trainings of the model",
}


class Experiment(Protocol):
    """What the module of an experiment has."""

    def run(self, options: Options, progress: Progress | None) -> Result:
        """Compute the numbers."""

    def render(self, result: Result) -> Report:
        """Lay them out."""


def find_experiment(name: str) -> Experiment:
    """The module of an experiment.

    Raises SelectionError for a name that is not known.
    """
    if name not in EXPERIMENTS:
        raise SelectionError(
            f"there is no experiment {name!r}",
            expected=f"one of {', '.join(EXPERIMENTS)}, or all",
            fix="Choose one of these.",
        )
    return cast(Experiment, import_module(f"attnflow.paper.experiments.{name}"))
