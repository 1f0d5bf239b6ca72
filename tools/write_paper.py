"""Write docs/paper.md and its appendix from the saved results: `python -m tools.write_paper`.

`attnflow reproduce NAME --out docs/results --pictures docs/images` saves the results. The page has
the paper's tables and figures; the appendix has details, experiments beyond the paper, and the
commands. No number is typed in here or in the comments, and statements about numbers are checked.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from attnflow.paper.experiments.experiment import (
    EXPERIMENTS,
    find_experiment,
    read_result,
)
from attnflow.paper.experiments.report import Report, Table, parts_to_markdown, to_markdown
from tools.paper_claims import Results
from tools.paper_figures import (
    comment_figure1,
    comment_figure2,
    comment_figure3,
    comment_figure4,
)
from tools.paper_tables import (
    comment_accuracy,
    comment_decoders,
    comment_table1,
    comment_table2,
    comment_table3,
    write_summary,
)

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "results"
PAGE = ROOT / "docs" / "paper.md"
APPENDIX = ROOT / "docs" / "paper-appendix.md"
PICTURES = "images"  # relative to the page

# How many tables the page shows; the others go into the appendix.
N_MAIN_TABLES = {"table1": 1, "table2": 1, "table3": 2, "figure2": 0, "figure3": 0}
# Experiments that are not in the paper come after the details of its tables.
BEYOND = ("accuracy", "decoders", "edges", "residual", "saturation", "trainings")

COMMENTS: dict[str, Callable[[Results], str]] = {
    "table1": comment_table1,
    "table2": comment_table2,
    "table3": comment_table3,
    "figure1": comment_figure1,
    "figure2": comment_figure2,
    "figure3": comment_figure3,
    "figure4": comment_figure4,
    "accuracy": comment_accuracy,
    "decoders": comment_decoders,
}

INTRODUCTION = """
# The paper, reproduced

<!-- Written by `python -m tools.write_paper` from docs/results; do not edit. -->

This page reproduces the tables and figures of Abnar and Zuidema, *Quantifying Attention Flow in
Transformers* (ACL 2020). Every number and figure is computed by a command, `attnflow reproduce
NAME`. The [appendix](paper-appendix.md) has the commands, details of the tables, how the authors'
scripts differ, and experiments on questions that the paper leaves open.

The paper's weights are not published. Tables 1 and 2 use the verb-number model that comes with
attnflow: the paper's size and task, trained from scratch on the number of the verb alone. So
patterns can be compared, numbers only roughly.
"""

APPENDIX_INTRODUCTION = """
# Appendix to the paper, reproduced

<!-- Written by `python -m tools.write_paper` from docs/results; do not edit. -->

Details of the tables of [The paper, reproduced](paper.md), experiments beyond the paper, and the
commands. The data sets are not part of attnflow; `attnflow data` lists where they are published.
Without them, `--data grammar` runs the agreement experiments on generated sentences.
"""

DIFFERENCES = """
## Differences from the authors' scripts

The authors released two scripts that compute correlations, both for DistilBERT: one for SST-2
(table 3), and one for a masked language model on agreement sentences. The script for the
verb-number model of tables 1 and 2 is not among them, so its details are unknown. The two scripts
differ from this page as follows:

- *Ties.* The SST-2 script uses dense ranks in a formula that assumes no ties. The agreement script
  uses average ranks, counts undefined correlations as 0, and does not clear its lists between
  layers, so the value printed for a layer is the mean over all layers so far. This page uses
  average ranks, excludes and counts undefined correlations, and computes each layer separately.
  Scores that differ by less than 1e-9 are ties, because equal flows differ by rounding errors.
- *Position.* For each token, the SST-2 script uses the maximum score that any position gives it.
  The agreement script is meant to use the row of the masked verb but uses that of the token before,
  because the tokenizer adds [CLS] after the index was computed. This page uses the row of [CLS], as
  described in the paper.
- *Gradient.* Both scripts take the gradient with respect to the output of the embedding module, sum
  it over the embedding, and take the absolute value. This page uses the norm of the gradient with
  respect to the word embedding; the details of table 2 explain why. The SST-2 script
  differentiates the logit of a class, the agreement script a difference of the probabilities of
  two verbs. This page uses the logit of the predicted class; variants use the probability
  and the true class.
- *Blank-out.* The agreement script replaces a token by [MASK], and uses the absolute change in the
  difference of the probabilities of two verbs. This page uses [UNK], as described in the paper, and
  the absolute change in the probability of a class; a variant uses the signed change.
- *Special tokens* count as tokens in the scripts and on this page; variants exclude them.
- *Number of sentences.* The SST-2 script uses 101 sentences of the test set, because of an
  off-by-one error, and the agreement script 1,000 of the validation set; the paper says 100 and
  2,000. This page uses the first 300 of the 872 sentences of the development set of SST-2, 100 of
  them for other edges, and 2,000 agreement sentences.
"""


def main() -> None:
    results = read_results(RESULTS)
    for path, text in ((PAGE, write_page(results)), (APPENDIX, write_appendix(results))):
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)} from {len(results)} results")


def read_results(folder: Path) -> Results:
    """Read the saved results, in the order of EXPERIMENTS."""
    paths = {name: folder / f"{name}.json" for name in EXPERIMENTS}
    return {name: read_result(path) for name, path in paths.items() if path.exists()}


def write_page(results: Results) -> str:
    """Return the page with the paper's tables and figures, in Markdown."""
    parts = [INTRODUCTION, "## Summary", write_summary(results)]
    seen: set[object] = set()
    for name, result in results.items():
        if name not in BEYOND:
            # The appendix lists the commands.
            report = find_experiment(name).render(replace(result, command=""))
            # Figures 2 and 3 share paragraphs on their sentences.
            new = tuple(part for part in report.parts if part not in seen)
            seen.update(report.parts)
            parts += _write_section(name, replace(report, parts=new), results)
    return _join(parts)


def write_appendix(results: Results) -> str:
    """Return the page with details and further experiments, in Markdown."""
    reports = {name: find_experiment(name).render(result) for name, result in results.items()}
    parts = [APPENDIX_INTRODUCTION]
    for name in N_MAIN_TABLES:
        if name in reports:
            parts += _write_details(name, reports[name])
    for name in BEYOND:
        if name in reports:
            parts += _write_section(name, reports[name], results)
    return _join([*parts, DIFFERENCES, _list_commands(results)])


def _join(parts: list[str]) -> str:
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _write_section(name: str, report: Report, results: Results) -> list[str]:
    """Return the report, without details, and the comment."""
    if name in N_MAIN_TABLES:
        report = replace(report, parts=report.parts[: _end_of_main_part(name, report)])
    section = [to_markdown(report, pictures=PICTURES)]
    if name in COMMENTS:
        section += ["### Discussion", COMMENTS[name](results)]
    return section


def _write_details(name: str, report: Report) -> list[str]:
    """Return the tables of a report that are not in its main part."""
    details = report.parts[_end_of_main_part(name, report) :]
    heading = f"## {_details_title(name)}"
    return [heading, *parts_to_markdown(details, pictures=PICTURES)]


def _end_of_main_part(name: str, report: Report) -> int:
    tables = [i for i, part in enumerate(report.parts) if isinstance(part, Table)]
    n = N_MAIN_TABLES[name]
    return tables[n - 1] + 1 if n else tables[0]


def _details_title(name: str) -> str:
    return f"Details of {name[:-1]} {name[-1]}"


def _list_commands(results: Results) -> str:
    """Return a table of the commands that were run, with dates and versions."""
    rows = [
        f"| {name} | {EXPERIMENTS[name].summary} | `{result.command}` | {result.date} | "
        f"{result.version} |"
        for name, result in results.items()
    ]
    header = ["| experiment | content | command | date | version |", "| --- " * 5 + "|"]
    missing = [name for name in EXPERIMENTS if name not in results]
    note = f"\n\nNot run yet: {', '.join(missing)}." if missing else ""
    return "## Commands\n\n" + "\n".join([*header, *rows]) + note


if __name__ == "__main__":
    main()
