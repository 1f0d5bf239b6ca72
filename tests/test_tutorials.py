"""The tutorials run from top to bottom, and what their text says about the numbers is true."""

import os
import re
from pathlib import Path

import pytest

from tools.notebooks import TUTORIALS, names, read, read_output, run

pytestmark = pytest.mark.slow

# Messages of attnflow while it compiles its solver, which happens once on a machine.
COMPILING = re.compile(r"^compil.*$|^\s*$", re.MULTILINE)


def execute(name):
    """Execute a tutorial; return the outputs of its code cells."""
    cells = [cell for cell in run(read(name)).cells if cell.cell_type == "code"]
    for cell in cells:
        said = COMPILING.sub("", read_output(cell, "stderr"))
        assert not said.strip(), f"{name} prints to stderr: {said}"
    return [read_output(cell) for cell in cells]


def find(outputs, start):
    """The output that starts with a text."""
    [output] = [output for output in outputs if output.startswith(start)]
    return output


def read_table(output):
    """The rows of a printed table of numbers, by the text before them."""
    rows = (
        re.match(r"(.*?)\s+(-?\d[\d. ()to-]*?)(?:\s+(yes|no))?\s*$", s) for s in output.splitlines()
    )
    return {
        row[1]: ([float(x) for x in re.findall(r"-?[\d.]+", row[2])], row[3]) for row in rows if row
    }


def test_there_are_seven_and_all_are_listed():
    index = (TUTORIALS / "index.md").read_text(encoding="utf-8")
    assert len(names()) == 7
    assert [line for line in index.splitlines() if line in names()] == names()


@pytest.mark.parametrize("name", names())
def test_each_says_what_it_teaches_and_what_comes_next_and_keeps_no_outputs(name):
    text = (TUTORIALS / f"{name}.md").read_text(encoding="utf-8")
    assert text.count("**What you will learn:**") == 1
    assert "\n## What to read next\n" in text
    for link in re.findall(r"\]\(([^):]+\.md)\)", text):
        assert (TUTORIALS / link).is_file(), link
    assert all(not cell.get("outputs") for cell in read(name).cells)


def test_a_first_explanation():
    outputs = execute("1-first-explanation")
    assert outputs[0] == "plural 1.0\n"
    assert outputs[1].split()[::2] == ["keys", "the", "to"]
    lines = [line.split() for line in outputs[2].splitlines()[1:]]  # "the" occurs twice
    tokens = [line[0] for line in lines]
    raw, rollout, flow = zip(*(map(float, line[1:]) for line in lines), strict=True)
    assert raw.index(max(raw)) == 4  # the second "the"
    assert tokens[raw.index(min(raw))] == "keys"
    assert tokens[rollout.index(max(rollout))] == "keys"
    assert [tokens[i] for i, score in enumerate(flow) if score == 1] == ["keys", "to", "cabinet"]
    assert "have the same highest flow, 1" in outputs[3]
    raw_share, rollout_share, flow_share = map(int, re.findall(r"better than (\d+)%", outputs[-1]))
    assert raw_share < 50 < flow_share < rollout_share
    drop, random = map(float, re.findall(r"drops by ([\d.]+)", outputs[-1])[2:4])  # of rollout
    assert drop > 2 * random
    lower = [float(score) for score in outputs[4].split()[1::2]]
    assert len(set(lower)) == 3
    assert lower[0] - lower[2] > 0.2


def test_by_hand_prints_the_numbers_of_its_text():
    outputs = execute("2-by-hand")
    assert find(outputs, "[0.26")  # rollout by hand
    assert find(outputs, "flow from are to keys: 0.80").count("width 0.40") == 2
    rows = {name: row for name, (row, _) in read_table(outputs[-2]).items()}
    assert rows == {
        "raw_attention": [0.8, 0, 0.2],
        "rollout": [0.26, 0.44, 0.3],
        "flow": [0.5, 0.8, 0.5],
    }
    solutions = outputs[-1]
    for number, row in ((1, "[0.44, 0.56, 0.0]"), (2, "[0.7, 0.7, 0.0]"), (3, "[0.04, 0.96, 0.0]")):
        assert f"{number}: {row}" in solutions
    assert "5: [0.6, 0.9, 0.5]" in solutions
    assert "layer 10, rollout [0.29 0.71 0.  ], flow [0.8 1.  0.5]" in solutions


def test_an_answer_follows_the_words_that_decide_it():
    outputs = execute("3-llm-answer")
    stories = find(outputs, "Anna gave")
    best = re.findall(r"^(rollout|flow)\s+(\w+) <- (\w+)", stories, re.MULTILINE)
    assert best == [(m, who, who) for who in ("Ben", "Anna") for m in ("rollout", "flow")]
    check = find(outputs, "without its top tokens")
    assert [int(share) > 75 for share in re.findall(r"better than (\d+)%", check)] == [True]
    models = Path(os.environ.get("ATTNFLOW_MODELS", ""))
    if not os.environ.get("ATTNFLOW_MODELS") or not (models / "smollm2").is_dir():
        pytest.skip("the first half is fine; set ATTNFLOW_MODELS for the second, with an LLM")
    assert find(outputs, "The capital of France is Paris.")
    words = find(outputs, "   capital <-")
    assert re.search(r"capital <- capital.*\n.*Paris <- capital [\d.]+, France", words)


def test_a_vision_transformer():
    outputs = execute("4-vision-transformer")
    assert float(outputs[0].split()[-1]) > 0.85
    shares = [int(share) for share in re.findall(r"(\d+)%", find(outputs, "3"))]
    strokes, raw, rollout, flow = shares
    assert rollout > strokes + 8
    assert rollout > max(raw, flow)
    assert abs(flow - strokes) < 8
    assert min(map(int, re.findall(r"better than (\d+)%", outputs[-1]))) > 80


def test_which_method_reads_its_tables_correctly():
    outputs = execute("5-which-method")
    replaced, removed = (table for table in outputs if table.startswith("comprehensiveness"))
    first, second = read_table(replaced), read_table(removed)
    assert [table["rollout, ALTI"][1] for table in (first, second)] == ["yes", "yes"]
    assert all("rollout, ALTI" in list(table)[:4] for table in (first, second))
    assert [table["frequency, rare first"][1] for table in (first, second)] == ["yes", "no"]
    for table in (first, second):
        best = [name for name in table if name != "comprehensiveness"][:3]
        assert best[0] == "leave-one-out"
        assert set(best[1:]) == {"rollout, ALTI", "flow, ALTI"}
        assert table["flow, ALTI"][1] == table["position, earlier first"][1] == "yes"
    assert [table["rollout, attention"][1] for table in (first, second)] == ["yes", "no"]
    assert [table["flow, attention"][1] for table in (first, second)] == ["yes", "no"]
    assert [table["raw, attention"][1] for table in (first, second)] == ["no", "no"]
    evidence = read_table(find(outputs, "reciprocal_rank"))
    assert evidence["rollout, ALTI"][0][0] > 0.85
    assert evidence["rollout, attention"][0][0] == 1
    assert evidence["random"][0][0] < 0.5


def test_a_data_set_answers_in_numbers():
    outputs = execute("6-data-set")
    tables = [
        output
        for output in outputs
        if re.match(r" *(same_number|index|subject|agree|layer)", output)
    ]
    accuracy, wrong, unknown, nouns, flow = (
        [s.split() for s in t.splitlines()[1:]] for t in tables
    )
    assert [float(row[-1]) for row in accuracy] == pytest.approx([0.957, 0.979], abs=0.005)
    assert all("cabinets" in row for row in wrong)
    assert [row[1] for row in unknown] == ["True"] * 4 + ["False"] * 2
    assert 0.4 < float(unknown[-2][-1]) < 0.6
    assert float(unknown[-1][-1]) < 0.05
    assert all(float(row[4]) == 1 and float(row[2]) == 1 for row in nouns)  # rollout, accuracy
    assert all(float(row[3]) < 0.9 and float(row[5]) < 0.6 for row in nouns)  # raw, flow
    assert all(float(row[3]) < 0.03 for row in flow)  # hardly ever the nearest noun
    assert [float(row[2]) for row in flow[:3]] == [0, 0, 0]  # no ties up to layer 3


def test_an_edge_of_your_own():
    outputs = execute("7-your-own-edge")
    assert "tensor([[[0.1667, 0.8333]]])" in outputs[1]
    assert re.findall(r"keys ([\d.]+)", find(outputs, "attention ")) == ["0.36", "0.39"]
    table = read_table(find(outputs, "rollout, focused"))
    plain, focused = table["rollout, attention"][0], table["rollout, focused"][0]
    assert plain[0] < focused[0] < plain[2]  # the intervals overlap widely
    assert table["frequency, rare first"][0][2] > focused[1] > plain[1]
    gains = re.findall(r"worse on 0: ([+-][\d.]+)", outputs[-1])
    assert [float(gain) < 0.001 for gain in gains] == [False, True]
