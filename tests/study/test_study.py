"""Studies: values, resuming, inputs and refusals. Their tables are in test_table."""

import json
from itertools import count
from typing import Any

import numpy as np
import pytest

from attnflow import corpus
from attnflow.errors import AttnflowError, FileError, InputError, SelectionError
from attnflow.evaluation.metrics import METRICS, Trial
from attnflow.explainer import explain
from attnflow.models.loading import load_model
from attnflow.study import baselines
from attnflow.study.case import Question, make_case
from attnflow.study.design import Design
from attnflow.study.masked_model import MaskedModel
from attnflow.study.study import evaluate, open_study
from tests.refusal import refusal
from tests.study.small_models import make_llama

TEXTS = ["the keys to the old cabinet", "the author of the books", "the dogs near the cat"]
OPTIONS: dict[str, Any] = {
    "methods": "rollout",
    "edges": "attention",
    "explainers": "none",
    "metrics": "comprehensiveness,lerf,spearman_loo",
    "replacements": "unknown,remove",
    "signs": "signed,absolute",
    "threads": 1,
    "shard_size": 1,
}
# Options for studies whose values do not matter: their metric asks the model nothing.
QUICK: dict[str, Any] = {
    **OPTIONS,
    "metrics": "pointing_game",
    "replacements": "unknown",
    "signs": "signed",
}
NOT_REPRODUCIBLE = ("seconds", "megabytes")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a study that was not interrupted."""
    out = tmp_path_factory.mktemp("whole") / "out"
    summary = evaluate(TEXTS, out, **OPTIONS)
    assert (summary.rows, summary.rejected, summary.complete) == (3, 0, True)
    return out


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """The folder of a small decoder."""
    folder = tmp_path_factory.mktemp("llama")
    loaded = make_llama()
    loaded.model.save_pretrained(folder)
    loaded.tokenizer.save_pretrained(folder)
    return str(folder)


def firsts(study, name):
    """A column, with one value for each text."""
    _, rows = np.unique(study.columns["index"], return_index=True)
    return [study.columns[name][row] for row in rows]


def test_values_are_those_of_each_text_by_itself(whole):
    study = open_study(whole)
    columns = study.columns
    assert study.complete
    assert study.n_texts == 3
    baseline = ("random", "position", "recency", "frequency", "embedding_norm")
    assert study.explainers == ("rollout/attention", *baseline)
    assert study.replacements == ("unknown", "remove")
    assert len(columns["index"]) == 3 * 6 * 2 * 2
    loaded = load_model("verb-number")
    for text in TEXTS:
        case = make_case(loaded, text)
        row = explain(text, loaded, edges="attention").rollout().row(layer=-1)
        n = len(case.units)
        scores = {
            "rollout/attention": case.merge(row),
            "random": np.zeros(n),
            "recency": np.arange(1.0, n + 1),
        }
        for replacement in study.replacements:
            model = MaskedModel(case, replacement, batch_tokens=2048, draws=8, seed=0)
            for name, values in scores.items():
                for sign in ("signed", "absolute"):
                    [i] = np.flatnonzero(
                        (columns["text"] == text)
                        & (columns["replacement"] == replacement)
                        & (columns["explainer"] == name)
                        & (columns["sign"] == sign)
                    )
                    trial = Trial(values, model, sign=sign, samples=8)
                    np.testing.assert_allclose(columns["scores"][i], values, atol=1e-6)
                    for metric in study.design.metrics:
                        expected = METRICS[metric].measure(trial)
                        assert columns[metric][i] == pytest.approx(expected, abs=1e-6)
                    curve = trial.curves.probabilities(range(n + 1), "least")
                    shares = np.interp(np.linspace(0, 1, 11), np.linspace(0, 1, n + 1), curve)
                    np.testing.assert_allclose(columns["lerf_curve"][i], shares, atol=1e-6)
                    assert columns["label"][i] == case.label
                    assert columns["probability"][i] == pytest.approx(case.probability, abs=1e-6)
                    assert columns["tokens"][i].tolist() == list(case.labels) == text.split()
                    assert columns["evidence"][i] is None
                    assert columns["problem"][i] == ""


def test_a_resumed_study_has_the_same_values(whole, tmp_path):
    calls = count()
    first = evaluate(TEXTS, tmp_path, stop=lambda: next(calls) > 0, **OPTIONS)
    assert (first.interrupted, first.complete, first.rows) == (True, False, 1)
    part = open_study(tmp_path)
    assert not part.complete
    assert part.n_texts == 1
    second = evaluate(TEXTS, tmp_path, **OPTIONS)
    assert (second.interrupted, second.complete, second.new_rows) == (False, True, 2)
    expected, found = open_study(whole), open_study(tmp_path)
    assert list(expected.columns) == list(found.columns)
    for name, values in expected.columns.items():
        if name not in NOT_REPRODUCIBLE:
            for one, other in zip(values, found.columns[name], strict=True):
                np.testing.assert_array_equal(one, other, err_msg=name)


def test_shards_of_several_processes_are_one_study(whole, tmp_path):
    later = evaluate(TEXTS, tmp_path, shards=(1, None), **OPTIONS)
    assert (later.complete, later.rows) == (True, 2)
    assert open_study(tmp_path).n_texts == 2
    evaluate(TEXTS, tmp_path, shards=(0, 1), **OPTIONS)
    expected, found = open_study(whole), open_study(tmp_path)
    assert found.complete
    for name in ("index", "comprehensiveness"):
        np.testing.assert_array_equal(found.columns[name], expected.columns[name])


def test_invalid_rows_are_rejected_and_counted(tmp_path):
    rows = [
        {"text": TEXTS[0], "part": "keys"},
        {"text": "", "part": ""},
        {"text": "x", "part": ""},  # one unit, so there is nothing to rank
        {"text": TEXTS[1], "part": "keys"},  # is not in the text
        {"part": "keys"},
    ]
    options = {**QUICK, "shard_size": 3, "evidence_column": "part"}
    summary = evaluate(rows, tmp_path / "a", **options)
    assert (summary.rows, summary.rejected, summary.complete) == (5, 4, True)
    study = open_study(tmp_path / "a")
    assert (study.n_texts, study.rejected, study.complete) == (1, 4, True)
    lines = [
        json.loads(line)
        for path in sorted((tmp_path / "a" / "errors").iterdir())
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    assert [line["index"] for line in lines] == [1, 2, 3, 4]
    assert "'keys'" in lines[2]["reason"]


def test_a_strict_study_stops_at_an_invalid_row(tmp_path):
    with refusal(AttnflowError, "row 1"):
        evaluate([TEXTS[0], ""], tmp_path, strict=True, **QUICK)


def test_the_limit_counts_rows(tmp_path):
    summary = evaluate([TEXTS[0], "", TEXTS[1]], tmp_path, limit=2, **QUICK)
    assert (summary.rows, summary.rejected, summary.complete) == (2, 1, True)
    assert firsts(open_study(tmp_path), "text") == TEXTS[:1]
    with refusal(InputError, "limit was 2 and is 3"):
        evaluate([TEXTS[0], "", TEXTS[1]], tmp_path, limit=3, **QUICK)


def test_columns_of_targets(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(
        f"text,class\n{TEXTS[0]},singular\n{TEXTS[0]},\n{TEXTS[0]},plural\n{TEXTS[0]},0\n"
        f"{TEXTS[0]},1\n{TEXTS[0]},2\n",
        encoding="utf-8",
    )
    summary = evaluate(path, tmp_path / "out", target_column="class", **QUICK)
    assert summary.rejected == 1  # there is no class 2
    study = open_study(tmp_path / "out")
    loaded = load_model("verb-number")
    cases = [make_case(loaded, TEXTS[0], Question(target=i)) for i in (0, 1)]
    by_name = {case.label: case.probability for case in cases}
    assert firsts(study, "label") == ["singular", "plural", "plural", *(c.label for c in cases)]
    assert firsts(study, "probability") == pytest.approx(
        [by_name[label] for label in firsts(study, "label")], abs=1e-6
    )


def test_columns_of_contrasts_and_continuations(llama, tmp_path):
    text = "the key to the cabinets"
    rows = [
        {"text": text, "yes": "is", "no": "are", "more": "is here"},
        {"text": text, "yes": "are", "no": "is", "more": "here the key"},
    ]
    loaded = load_model(llama)
    options = {**QUICK, "model": llama, "replacements": "mean"}
    evaluate(rows, tmp_path / "a", target_column="yes", against_column="no", **options)
    contrasts = open_study(tmp_path / "a")
    assert firsts(contrasts, "label") == [
        make_case(loaded, text, Question("is", "are")).label,
        make_case(loaded, text, Question("are", "is")).label,
    ]
    assert sum(firsts(contrasts, "probability")) == pytest.approx(1, abs=1e-6)
    evaluate(rows, tmp_path / "b", continuation_column="more", **options)
    cases = [make_case(loaded, text, Question(continuation=row["more"])) for row in rows]
    found = open_study(tmp_path / "b")
    assert firsts(found, "label") == [case.label for case in cases]
    assert firsts(found, "probability") == pytest.approx([case.probability for case in cases])
    assert len(cases[1].steps) == 3
    evaluate([text], tmp_path / "c", generate=2, **options)
    case = make_case(loaded, text, Question(generate=2))
    assert firsts(open_study(tmp_path / "c"), "label") == [case.label]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "list"])
def test_evidence_as_text_and_as_offsets(tmp_path, name):
    values = ["keys", [[4, 8]], "[[4, 8]]", "", [[4, 8], [20, 27]]]
    rows = [{"text": TEXTS[0], "part": value} for value in values]
    data = tmp_path / name
    if name == "a.csv":
        cells = [json.dumps(v) if isinstance(v, list) else v for v in values]
        lines = [f'"{TEXTS[0]}","{cell}"' for cell in cells]
        data.write_text("\n".join(["text,part", *lines]), encoding="utf-8")
    elif name == "a.jsonl":
        data.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    evaluate(rows if name == "list" else data, tmp_path / "out", evidence_column="part", **QUICK)
    study = open_study(tmp_path / "out")
    keys = [False, True, False, False, False, False]
    both = [False, True, False, False, False, True]
    found = [None if mask is None else mask.tolist() for mask in firsts(study, "evidence")]
    assert found == [keys, keys, keys, None, both]
    # Recency points to the last token, which is evidence in the last text only.
    place = study.explainers.index("recency")
    np.testing.assert_array_equal(
        study.matrix("pointing_game")[:, place], [0.0, 0.0, 0.0, np.nan, 1.0]
    )


def test_other_settings_in_the_same_folder_are_refused(whole):
    for name, value in {
        "seed": 1,
        "words": True,
        "metrics": "lerf",
        "evidence_column": "a",
    }.items():
        with refusal(InputError, whole, name):
            evaluate(TEXTS, whole, **{**OPTIONS, name: value})
    with refusal(InputError, whole, "input"):
        evaluate(TEXTS[:2], whole, **OPTIONS)


def test_folders_of_other_runs_are_refused(whole, tmp_path):
    with refusal(FileError, whole, "'evaluation'", "'scores'"):
        corpus.open_corpus(whole)
    with refusal(FileError, whole, "'evaluation'", "'scores'"):
        corpus.run(TEXTS, whole)
    corpus.run(TEXTS[:1], tmp_path, threads=1)
    with refusal(FileError, tmp_path, "'scores'", "'evaluation'"):
        evaluate(TEXTS, tmp_path, **QUICK)
    with refusal(FileError, tmp_path, "'scores'", "'evaluation'"):
        open_study(tmp_path)
    with pytest.raises(FileError):
        open_study(tmp_path / "nothing")


def test_a_study_without_a_finished_shard_cannot_be_opened(tmp_path):
    evaluate(TEXTS, tmp_path, stop=lambda: True, **QUICK)
    with refusal(InputError, tmp_path):
        open_study(tmp_path)


def test_an_explainer_that_fails_on_a_text(monkeypatch, tmp_path):
    original = baselines.rarity

    def fail(case):
        if case.labels[1] == "author":
            raise InputError("no rare tokens", expected="some", fix="Use another text.")
        return original(case) * (np.nan if case.labels[1] == "dogs" else 1.0)

    monkeypatch.setattr(baselines, "rarity", fail)
    options = {**QUICK, "metrics": "comprehensiveness,morf"}
    summary = evaluate(TEXTS, tmp_path, **options)
    assert summary.rejected == 0
    study = open_study(tmp_path)
    place = study.explainers.index("frequency")
    values = study.matrix("comprehensiveness")
    assert np.isfinite(values[0]).all()
    assert np.isnan(values[1:, place]).all()
    assert np.isfinite(np.delete(values, place, axis=1)).all()
    failed = study.columns["explainer"] == "frequency"
    problems = study.columns["problem"][failed].tolist()
    assert problems[0] == ""
    assert "no rare tokens" in problems[1]
    assert "not finite" in problems[2]
    assert [scores is None for scores in study.columns["scores"][failed]] == [False, True, True]
    assert set(study.columns["problem"][~failed]) == {""}
    assert study.table("comprehensiveness").row("frequency").failed == 2
    assert len(study.curves("morf")["frequency"]) == 11


@pytest.mark.parametrize(
    ("options", "kind", "parts"),
    [
        ({"metrics": "morff"}, SelectionError, ["'morff'", "morf"]),
        ({"edges": "attentions"}, SelectionError, ["'attentions'", "attention"]),
        ({"explainers": "leave_one"}, SelectionError, ["'leave_one'", "leave_one_out"]),
        ({"methods": "rollouts"}, SelectionError, ["'rollouts'", "rollout"]),
        ({"replacements": "blank"}, InputError, ["'blank'", "unknown", "remove", "blur"]),
        ({"signs": "negative"}, InputError, ["'negative'", "signed", "positive", "absolute"]),
        ({"metrics": "none"}, InputError, ["metrics"]),
        ({"signs": "none"}, InputError, ["signs"]),
        ({"samples": 0}, InputError, ["samples", "1"]),
        ({"samples": None}, InputError, ["samples", "None", "int"]),
        ({"limit": "3"}, InputError, ["limit", "'3'", "int"]),
        ({"seed": True}, InputError, ["seed", "True", "int"]),
        ({"words": "yes"}, InputError, ["words", "'yes'", "bool"]),
        ({"methods": 5}, InputError, ["methods", "5"]),
        ({"metrics": ["morf", 5]}, InputError, ["metrics", "5"]),
        ({"model": None}, InputError, ["model", "None"]),
        ({"target": 0.5}, InputError, ["target", "0.5"]),
        ({"heads": "median"}, InputError, ["heads", "'median'", "mean"]),
        ({"limit": 10**23}, InputError, ["limit", str(10**23)]),
        ({"metric": "morf"}, InputError, ["'metric'", "metrics"]),
        ({"generate": 2, "continuation_column": "a"}, InputError, ["generate"]),
    ],
)
def test_wrong_options_are_refused_before_anything_starts(tmp_path, options, kind, parts):
    with refusal(kind, *parts):
        evaluate(TEXTS, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_a_replacement_that_does_not_fit_the_model_is_refused(tmp_path):
    with refusal(InputError, "'blur'", "unknown"):
        evaluate(TEXTS, tmp_path, **{**QUICK, "replacements": "blur"})


@pytest.mark.parametrize(
    ("options", "kind", "parts"),
    [
        ({"target": "many"}, SelectionError, ["'many'", "'plural'"]),
        ({"target": 2}, SelectionError, ["2", "0 to 1"]),
        ({"against": 99}, SelectionError, ["99", "0 to 1"]),
        ({"heads": 99}, SelectionError, ["heads", "99", "0 to 7"]),
        ({"generate": 3}, InputError, ["verb-number", "generate"]),
    ],
)
def test_options_that_fail_for_every_text_are_refused(tmp_path, options, kind, parts):
    with refusal(kind, *parts):
        evaluate(TEXTS, tmp_path, **{**QUICK, **options})


def test_a_token_that_the_model_does_not_know_is_refused(llama, tmp_path):
    with refusal(SelectionError, "99", "0 to 11"):
        evaluate(["the key"], tmp_path, model=llama, target=99, **QUICK)


def test_a_missing_column_is_refused(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(f"text,part\n{TEXTS[0]},keys\n", encoding="utf-8")
    with refusal(SelectionError, "'parts'", "'part'"):
        evaluate(path, tmp_path / "out", evidence_column="parts", **QUICK)


def test_names_that_stand_for_several():
    design = Design.from_options({"metrics": "all", "edges": "all", "explainers": "all"})
    assert set(design.metrics) == set(METRICS.names)
    assert {"alti", "norm", "attention"} <= set(design.edges)
    assert "attn_lrp" in design.explainers
    assert "random" not in design.explainers  # a baseline, which every study has
    default = Design()
    assert "attn_lrp" not in default.explainers
    assert "log_odds" not in default.metrics
    assert Design(edges=("attention:0.50", "attention:0.5")).edges == ("attention:0.5",)
    assert Design.from_json(default.to_json()) == default
