"""Write docs/paper.md from the saved results: `python -m tools.write_paper`.

`attnflow reproduce NAME --out docs/results --pictures docs/images` saves the results. The page has
the paper's tables and figures first, then details and experiments beyond the paper. No number is
typed in here or in the comments, and statements about numbers are checked.
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
    comment_table1,
    comment_table2,
    comment_table3,
    write_summary,
)
from tools.paper_variants import (
    comment_decoders,
    comment_edges,
    comment_residual,
    comment_trainings,
)

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "docs" / "results"
PAGE = ROOT / "docs" / "paper.md"
PICTURES = "images"  # relative to the page

# Tables with many details: how many tables come first; the others go into a section of their own.
N_MAIN_TABLES = {"table1": 2, "table2": 2, "table3": 2}
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
    "edges": comment_edges,
    "residual": comment_residual,
    "trainings": comment_trainings,
}

INTRODUCTION = """
# The paper, reproduced

<!-- Written by `python -m tools.write_paper` from docs/results; do not edit. -->

This page reproduces the tables and figures of Abnar and Zuidema, *Quantifying Attention Flow in
Transformers* (ACL 2020), and adds experiments on questions that the paper leaves open. Every number
and figure is computed by a command, `attnflow reproduce NAME`, listed in the
[last section](#commands). The data sets are not part of attnflow; `attnflow data` lists where they
are published. Without them, `--data grammar` runs the agreement experiments on generated sentences.

The paper's weights are not published. Tables 1 and 2 use the verb-number model that comes with
attnflow. It has the size of the paper's model, but was trained from scratch, partly on other data
and with two auxiliary tasks that increase its accuracy; its model card has the details. The numbers
are therefore not expected to match. The patterns can be compared: below each table and figure, the
text says which of the paper's observations hold for this model.
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
  respect to the word embedding; table 2 explains why. The SST-2 script differentiates the logit of
  a class, the agreement script a difference of the probabilities of two verbs. This page uses the
  logit of the predicted class; variants use the probability and the true class.
- *Blank-out.* The agreement script replaces a token by [MASK], and uses the absolute change in the
  difference of the probabilities of two verbs. This page uses [UNK], as described in the paper, and
  the absolute change in the probability of a class; a variant uses the signed change.
- *Special tokens* count as tokens in the scripts and on this page; variants exclude them.
- *Number of sentences.* The SST-2 script uses 101 sentences of the test set, because of an
  off-by-one error, and the agreement script 1,000 of the validation set; the paper says 100 and
  2,000. This page uses 100 and all 872 sentences of the development set of SST-2, and 2,000
  agreement sentences.
"""


def main() -> None:
    results = read_results(RESULTS)
    PAGE.write_text(write_page(results), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)} from {len(results)} results")


def read_results(folder: Path) -> Results:
    """Read the saved results, in the order of EXPERIMENTS."""
    paths = {name: folder / f"{name}.json" for name in EXPERIMENTS}
    return {name: read_result(path) for name, path in paths.items() if path.exists()}


def write_page(results: Results) -> str:
    """Return the page in Markdown."""
    reports = {name: find_experiment(name).render(result) for name, result in results.items()}
    paper = {name: report for name, report in reports.items() if name not in BEYOND}
    beyond = {name: report for name, report in reports.items() if name in BEYOND}
    details = {name: report for name, report in paper.items() if name in N_MAIN_TABLES}
    titles = {
        "Tables and figures": [report.title for report in paper.values()],
        "Details": [_details_title(name) for name in details],
        "Further experiments": [report.title for report in beyond.values()],
    }
    parts = [INTRODUCTION, "## Summary", write_summary(results), _list_sections(titles)]
    for name, report in paper.items():
        parts += _write_section(name, report, results)
    for name, report in details.items():
        parts += _write_details(name, report)
    for name, report in beyond.items():
        parts += _write_section(name, report, results)
    parts += [DIFFERENCES, _list_commands(results, reports)]
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
    return tables[N_MAIN_TABLES[name] - 1] + 1


def _details_title(name: str) -> str:
    return f"Details of {name.replace('table', 'table ')}"


def _list_sections(titles: dict[str, list[str]]) -> str:
    """Return links to sections. titles: of sections, by group."""
    lines = []
    for group, names in titles.items():
        lines += [f"{group}:\n", *(f"- [{title}](#{anchor(title)})" for title in names), ""]
    return "\n".join(lines)


def _list_commands(results: Results, reports: dict[str, Report]) -> str:
    """Return a table of the commands that were run, with dates and versions."""
    rows = [
        f"| [{name}](#{anchor(reports[name].title)}) | {EXPERIMENTS[name].summary} | "
        f"`{result.command}` | {result.date} | {result.version} |"
        for name, result in results.items()
    ]
    header = ["| experiment | content | command | date | version |", "| --- " * 5 + "|"]
    missing = [name for name in EXPERIMENTS if name not in results]
    note = f"\n\nNot run yet: {', '.join(missing)}." if missing else ""
    return "## Commands\n\n" + "\n".join([*header, *rows]) + note


def anchor(title: str) -> str:
    """Return the link target of a heading."""
    kept = "".join(c for c in title.lower() if c.isalnum() or c in " -_")
    return kept.replace(" ", "-")


if __name__ == "__main__":
    main()
