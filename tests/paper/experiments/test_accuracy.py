"""Accuracy of the models, counted by hand for few sentences."""

from attnflow.paper.experiments import accuracy
from attnflow.paper.experiments.experiment import Options
from attnflow.paper.experiments.report import to_text

LINES = """VBZ\tthe key to the NNS
VBZ\tthe key to the NNS
VBP\tthe keys to the door
VBP\tthe key to the zyzzyva
"""


def measure(tmp_path, **options):
    path = tmp_path / "numpred.test.1"
    path.write_text(LINES, encoding="utf-8")
    return accuracy.run(Options(data=str(path), **options), None)


def test_accuracy_is_counted_by_number(tmp_path):
    result = measure(tmp_path, model="verb-number")
    # The last line has the wrong label on purpose, and the repeated line counts once.
    assert result.numbers["models"]["verb-number"]["natural"] == {
        "examples": 3,
        "accuracy": 0.6667,
        "low": 0.0,
        "high": 1.0,
        "unique": 3,
        "accuracy_unique": 0.6667,
        "unknown_words": 1,
        "by_number": {
            "singular": {"examples": 1, "accuracy": 1.0},
            "plural": {"examples": 2, "accuracy": 0.5},
        },
    }


def test_both_bundled_models_are_measured_by_default(tmp_path):
    result = measure(tmp_path)
    assert list(result.numbers["models"]) == ["verb-number", "verb-number-causal"]
    assert result.settings["model"] == "verb-number, verb-number-causal"


def test_the_table_has_all_counts(tmp_path):
    text = to_text(accuracy.render(measure(tmp_path, model="verb-number")))
    assert f"The paper reports {accuracy.PAPER_ACCURACY}" in text
    row = next(line for line in text.splitlines() if line.startswith("  1 attractor "))
    expected = "1 attractor 3 0.667 [0.000, 1.000] 1.000 of 1 0.500 of 2 1 0.667 of 3"
    assert " ".join(row.split()) == expected


def test_accuracy_is_missing_for_a_number_without_examples(tmp_path):
    path = tmp_path / "numpred.val"
    path.write_text("VBZ\tthe key\n" * 2, encoding="utf-8")
    result = accuracy.run(Options(data=str(path), model="verb-number"), None)
    plural = result.numbers["models"]["verb-number"]["natural"]["by_number"]["plural"]
    assert plural == {"examples": 0, "accuracy": None}
    assert "  -  " in to_text(accuracy.render(result))
