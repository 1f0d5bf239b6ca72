"""The scoreboard: its data sets, its results, and the page that is made of them."""

import json
import math
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from attnflow.study.study import open_study
from benchmarks import scoreboard, scoreboard_data, scoreboard_findings
from benchmarks.scoreboard_findings import Result
from benchmarks.scoreboard_report import PAGE, render

EXPLAINERS = ["raw/attention", "rollout/attention", "flow/attention", "leave_one_out",
              "random", "position"]  # fmt: skip


def make_result(means: dict[str, list[float]], **options: Any) -> Result:
    """A result with these means [explainers] by metric, the same with both replacements."""
    values = {}
    for replacement in ("unknown", "remove"):
        values[replacement] = {
            metric: {"n": 40, "rows": [[m, m, m, m - row[4], 0.01] for m in row]}
            for metric, row in means.items()
            if replacement == "unknown" or metric != "reciprocal_rank"
        }
    numbers = {
        "name": "model", "title": "Model", "kind": "encoder", "set": "sst2",
        "about": "Sentences.", "apart": False,
        "command": "python -m benchmarks.scoreboard run model", "n": 40, "tokens": 9.0,
        "probability": 0.9, "device": "cpu", "machine": "2 processors", "date": "2026-01-02",
        "versions": [{"python": "3.11", "torch": "2.0"}], "weights": "Of 4 bits.",
        "data": {"tried": 50, "kept": 40},
        "explainers": EXPLAINERS, "numbers": list(scoreboard.NUMBERS), "values": values,
        "claims": {}, "positive": {"comprehensiveness": {"leave_one_out": 0.5}},
        "scores": {name: [1.0, 0.2, 0.1] for name in EXPLAINERS},
        "costs": {name: [0.01, 1.0] for name in EXPLAINERS},
    }  # fmt: skip
    return Result({**numbers, **options})


MEANS = {
    "comprehensiveness": [0.1, 0.3, 0.2, 0.4, 0.15, 0.25],
    "sufficiency": [0.3, 0.1, 0.2, 0.05, 0.25, 0.15],
    "reciprocal_rank": [0.4, 0.6, 0.5, 0.9, 0.3, 0.2],
}


def test_entries_name_known_data_sets_and_valid_designs() -> None:
    from attnflow.study.design import Design

    for entry in scoreboard.read_entries().values():
        assert entry.set in {*scoreboard_data.SETS, "digits"}
        assert Design.from_options(dict(entry.design)).metrics


def test_places_go_from_last_to_first() -> None:
    result = make_result(MEANS)
    places = scoreboard_findings.shares(result, result.graphs)
    assert places == {"raw/attention": 0.0, "rollout/attention": 1.0, "flow/attention": 0.5}
    assert scoreboard_findings.recommend([result], 1) == [("rollout/attention", 1.0)]


def test_copies_count_once() -> None:
    means = {name: [row[1], *row[1:]] for name, row in MEANS.items()}
    same, other = make_result(means), make_result(MEANS)
    assert same.copies == {"rollout/attention": "raw/attention"}
    assert same.graphs == ["raw/attention", "flow/attention"]
    assert scoreboard_findings.common_graphs([same, same]) == same.graphs
    # Where they differ on one of several models, both are compared.
    assert scoreboard_findings.common_graphs([same, other]) == EXPLAINERS[:3]


def test_rivals_are_opponents_with_a_better_place() -> None:
    names = ["raw/attention", "rollout/attention", "alti_logit", "leave_one_out", "random",
             "input_gradients"]  # fmt: skip
    result = make_result(MEANS, explainers=names)
    # Places among the four, over 2 + 2 + 1 measures: raw (0 + 0 + 1/3) / 5, rollout 1, ALTI-Logit
    # (2/3 + 2/3 + 2/3) / 5, input gradients (4/3 + 4/3 + 0) / 5. Leave-one-out is circular.
    better = [("input_gradients", 1), ("alti_logit", 1)]
    assert scoreboard_findings.rivals([result], "raw/attention") == better
    assert scoreboard_findings.rivals([result], "rollout/attention") == []
    # An opponent that one of two results has is compared on that one.
    names = [*names[:2], "random", "leave_one_out", "position", "alti_logit"]
    other = make_result(MEANS, explainers=names)
    found = scoreboard_findings.rivals([result, other], "raw/attention")
    assert found == [("input_gradients", 1), ("alti_logit", 2)]


def test_first_of_all_is_counted_without_leave_one_out() -> None:
    names = ["raw/attention", "rollout/attention", "alti_logit", "leave_one_out", "random",
             "position"]  # fmt: skip
    # Rollout is above ALTI-Logit by every measure, and below it with the means exchanged.
    exchanged = {name: [row[0], row[2], row[1], *row[3:]] for name, row in MEANS.items()}
    results = [make_result(means, explainers=names) for means in (MEANS, exchanged)]
    results.append(make_result(MEANS))
    assert scoreboard_findings.count_first(results) == {"": (2, 3), "alti_logit": (1, 2)}


def test_statements_are_checked_on_models_kept_apart() -> None:
    claim = "raw attention has a better place than rollout on attention"
    holds = scoreboard_findings.STATEMENTS[claim]
    reversed_means = {name: [-value for value in row] for name, row in MEANS.items()}
    assert (holds(make_result(MEANS)), holds(make_result(reversed_means))) == (False, True)
    assert holds(make_result(MEANS, explainers=["raw/alti", *EXPLAINERS[1:]])) is None
    other = make_result(reversed_means, apart=True, title="Other")
    assert f"| {claim} | 0 of 1 | yes |" in render([make_result(MEANS), other])


def test_answer_names_options_and_opponents() -> None:
    answer = render([make_result(MEANS)]).partition("## How to read")[0]
    assert "**rollout, attention**: `--method rollout --edges attention`" in answer
    assert "1 of 1 sets" in answer


def test_low_is_good_for_sufficiency() -> None:
    assert make_result(MEANS).best("sufficiency", EXPLAINERS[:3]) == "rollout/attention"


def test_outcome_needs_significance() -> None:
    result = make_result(MEANS)
    assert result.outcome("comprehensiveness", "rollout/attention") == "better"
    assert result.outcome("comprehensiveness", "raw/attention") == "worse"
    result.numbers["values"]["unknown"]["comprehensiveness"]["rows"][1][4] = None
    assert result.outcome("comprehensiveness", "rollout/attention") == ""


def test_transfer_finds_the_same_and_the_reversed_ranking() -> None:
    made = make_result(MEANS)
    means = {name: [-value for value in row] for name, row in MEANS.items()}
    rows = scoreboard_findings.transfer([made], [make_result(MEANS), make_result(means)])
    assert [(name, place, round(rho, 6)) for _, name, place, rho in rows] == [
        ("rollout/attention", 1.0, 1.0),
        ("rollout/attention", 0.0, -1.0),
    ]


def test_claims_count_significant_differences() -> None:
    first = {"rollout/attention": [0.1, 0.01, 3, 1], "rollout/alti": [0.1, 0.01, 3, 1]}
    second = {"rollout/attention": [-0.1, 0.01, 1, 3], "flow/attention": [0.2, 0.01, 1, 3]}
    third = {"rollout/attention": [0.2, 0.5, 1, 3]}
    claims = {"comprehensiveness": {"unknown": first, "remove": second}, "mas": {"unknown": third}}
    result = make_result(MEANS, claims=claims)
    assert scoreboard_findings.count_claims([result], "rollout", "attention") == (1, 1, 3)
    assert scoreboard_findings.count_claims([result], "rollout") == (2, 1, 4)


def test_models_are_named_where_a_method_correlates_better_than_raw_attention() -> None:
    def make(title: str, gain: float, p: float) -> Result:
        rows = {"rollout/attention": [gain, p, 3, 1]}
        return make_result(MEANS, title=title, claims={"spearman_loo": {"unknown": rows}})

    page = render([make("A", 0.1, 0.01), make("B", -0.1, 0.01), make("C", 0.1, 0.5)])
    assert "Rollout is significantly better on A and worse on B." in page
    assert "Flow is significantly better on none and worse on none." in page


def test_baseline_and_methods_above_it() -> None:
    result = make_result(MEANS)
    assert scoreboard_findings.best_baseline(result, "comprehensiveness") == "position"
    assert scoreboard_findings.above_baseline(result, "comprehensiveness") == 1


def test_best_edges_and_methods_are_counted() -> None:
    edges, methods, total = scoreboard_findings.best_parts([make_result(MEANS)])
    assert (dict(edges), dict(methods), total) == ({"attention": 5}, {"rollout": 5}, 5)
    better, worse, count = scoreboard_findings.count_outcomes(
        [make_result(MEANS)], "comprehensiveness", "raw/attention"
    )
    assert (len(better), len(worse), count) == (0, 1, 1)


def test_page_shows_commands_marks_and_never_calls_leave_one_out_the_best() -> None:
    page = render([make_result(MEANS), make_result(MEANS, apart=True, title="Other")])
    summary = page.partition("## Findings")[0]
    assert "python -m benchmarks.scoreboard run model" in page
    assert "rollout, attention 0.30*" in summary
    assert "eave-one-out 0.40" not in summary
    assert "Other (apart)" in page
    assert "40 of 50 texts" in page
    assert "Sentences. Of 4 bits." in page
    assert "Measured on 2026-01-02 on 2 processors, with python 3.11 and torch 2.0." in page


def test_processes_share_the_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts: list[tuple[int, int]] = []

    class Process:
        exitcode = 0

        def __init__(self, target: Any, args: tuple[Any, ...]) -> None:
            assert target is run
            self.part = args[2]

        def start(self) -> None:
            parts.append(self.part)

        def join(self) -> None:
            pass

    def run(_entry: Any, _options: Any, part: Any = None) -> None:
        assert part is None
        whole.append(len(parts))

    whole: list[int] = []
    context = SimpleNamespace(Process=Process)
    monkeypatch.setattr(scoreboard, "run", run)
    monkeypatch.setattr(scoreboard, "get_context", lambda _method: context)
    (tmp_path / "minilm-mlm.jsonl").write_text("")
    options = ["run", "minilm-mlm", "--out", str(tmp_path), "--limit", "22", "--shard-size", "5"]
    scoreboard.main([*options, "--processes", "3"])
    assert parts == [(0, 2), (2, 3), (3, 5)]  # 5 shards
    assert whole == [3]  # afterwards
    Process.exitcode = 1
    with pytest.raises(SystemExit, match="resume"):
        scoreboard.main([*options, "--processes", "9"])
    assert len(parts) == 3 + 5  # no process without a shard


def test_rounding_keeps_significant_digits() -> None:
    assert scoreboard._round(0.000123456) == 0.000123
    assert scoreboard._round(math.nan) is None


def test_results_are_written_with_short_lists_on_one_line(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    results = {"rows": [[1.0, 2.0], [3.0, None]], "name": "a"}
    scoreboard.write_results(path, results)
    text = path.read_text(encoding="utf-8")
    assert json.loads(text) == results
    assert text == '{\n"rows":[\n[1.0,2.0],\n[3.0,null]\n],\n"name":"a"\n}\n'


def test_subject_is_found_in_the_changed_words() -> None:
    prefix = scoreboard_data.Prefix(
        ("The", "Foo", "keys"), ("DT", "NNP", "NNS"), 2, "VBP", ("are",)
    )
    words = ("the", "NNP", "keys")
    start, end = prefix.span(words)
    assert " ".join(words)[start:end] == "keys"


def test_name_of_a_story_occurs_before() -> None:
    story = "There was a girl named Lily. She had a dog. One day, Lily went to Max."
    assert list(scoreboard_data._find_name(story)) == [
        ("Lily", "There was a girl named Lily. She had a dog. One day,")
    ]


def test_page_is_up_to_date() -> None:
    results = scoreboard_findings.read_results(scoreboard.read_entries())
    assert results
    assert PAGE.read_text(encoding="utf-8") == render(results), (
        "run: python -m benchmarks.scoreboard report"
    )


@pytest.mark.slow
def test_study_is_collected(tmp_path: Path) -> None:
    """A small study of the built-in model, from its data to the page."""
    rows = [
        {"text": "the keys to the old cabinet", "evidence": [[4, 8]], "target": "plural"},
        {"text": "the author of the books", "evidence": [[4, 10]], "target": "singular"},
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "verb-number.jsonl").write_text(lines, encoding="utf-8")
    scoreboard.main(
        ["run", "verb-number", "--out", str(tmp_path), "--threads", "1", "--limit", "2"]
    )
    numbers = scoreboard.collect(scoreboard.read_entries()["verb-number"], tmp_path)
    result = Result(json.loads(json.dumps(numbers)))
    assert result.n == 2
    assert result.complete
    assert abs(date.today() - date.fromisoformat(result.date)).days <= 1
    study = open_study(tmp_path / "verb-number")
    column = study.explainers.index("rollout/alti")
    mean = study.matrix("sufficiency", replacement="remove")[:, column].mean()
    assert np.isclose(
        result.value("sufficiency", "rollout/alti", "mean", "remove"), mean, atol=1e-3
    )
    assert result.replacements_of("reciprocal_rank") == ["unknown"]
    assert "Verb-number encoder" in render([result])
