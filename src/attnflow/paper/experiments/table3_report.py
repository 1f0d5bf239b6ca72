"""How table 3 is laid out."""

from typing import Any

from attnflow.paper.experiments.layout import (
    comparison_table,
    first_table,
    interval_table,
    layer_names,
    mean_and_sd,
    provenance,
    variants_table,
)
from attnflow.paper.experiments.measuring import METHODS, TITLES
from attnflow.paper.experiments.report import Report, Table
from attnflow.paper.experiments.result import Result

# As printed in the paper, for 100 samples and DistilBERT; it shows these layers only.
LAYERS = (1, 3, 5, 6)
PAPER = {
    "raw": ("0.12±0.21", "0.09±0.21", "0.08±0.20", "0.09±0.21"),
    "rollout": ("0.11±0.19", "0.12±0.21", "0.13±0.21", "0.13±0.20"),
    "flow": ("0.11±0.19", "0.11±0.21", "0.12±0.22", "0.14±0.21"),
}
PAPERS_MODEL = "DistilBERT"
THEIRS = "the authors' gradient and ranks, highest positions"

MEANING = (
    "Spearman's rho between the scores of [CLS] over all subword tokens and input gradients: the "
    "length (l2) of the gradient of the predicted class's logit for each token's embedding, as in "
    "table 2. The paper's numbers are for DistilBERT; the model here is the one that is named, so "
    "that only the shape can be compared."
)
AUTHORS = (
    "The authors' script for this table takes the gradient for what the embedding module returns, "
    "positions added and normalized, and adds it up over the embedding; it ranks densely, with a "
    "formula for ranks without ties; and in place of the row of [CLS] it takes the highest score "
    "that any position gives to a token. It reads the class to explain from the labels of the test "
    "set; GLUE does not publish them, and they are all -1 there, which reads as the last class. "
    "The next table is made in their way but for that last point: it explains the predicted class."
)


def report_sentiment(result: Result) -> Report:
    """The paper's table with ours beside it, once in our way and once in the authors'."""
    numbers = result.numbers
    everything, sample = numbers["all"], numbers["sample"]
    caption = f"The same for {sample['examples']} sentences"
    # Of few sentences, all are the sample.
    smaller = sample["examples"] < everything["examples"]
    again = (comparison_table(caption, sample["comparisons"]),) if smaller else ()
    n_layers = len(everything["methods"]["raw"]["mean"])
    return Report(
        "Table 3: a sentiment classifier",
        (
            f"{provenance(result)} The model is right on {numbers['accuracy']:.1%} of them.",
            MEANING,
            _beside("Table 3: correlation with input gradients", result, "methods"),
            AUTHORS,
            _beside("Table 3 in the authors' way", result, THEIRS),
            first_table(numbers["first"]),
            interval_table(
                f"95% bootstrap intervals of the means, {everything['examples']:,} sentences",
                everything["methods"],
            ),
            comparison_table(
                "Differences between methods, Wilcoxon signed-rank test over "
                f"{everything['examples']:,} sentences, p corrected (Holm)",
                everything["comparisons"],
            ),
            *again,
            variants_table(
                f"Variants, {everything['examples']:,} sentences, {n_layers} layers",
                everything["ways"],
            ),
        ),
    )


def _beside(caption: str, result: Result, which: str) -> Table:
    """Rows of the paper's table, of our sample, and of all sentences.

    A model of another depth has no columns in common with the paper's.
    """
    parts = {result.numbers[key]["examples"]: result.numbers[key] for key in ("sample", "all")}
    n_layers = len(result.numbers["all"]["methods"]["raw"]["mean"])
    comparable = n_layers == LAYERS[-1]
    layers = [layer - 1 for layer in LAYERS] if comparable else list(range(n_layers))
    rows: list[tuple[str, ...]] = []
    for method in METHODS:
        if comparable:
            rows.append((f"{TITLES[method]}, paper, {PAPERS_MODEL}, 100", *PAPER[method]))
        for part in parts.values():
            found: Any = part["methods"] if which == "methods" else part["ways"][which]
            title = f"{TITLES[method]}, {result.settings['model']}, {part['examples']}"
            rows.append((title, *(mean_and_sd(found[method], i) for i in layers)))
    names = layer_names(n_layers)
    return Table(caption, ("", *(names[i] for i in layers)), tuple(rows))
