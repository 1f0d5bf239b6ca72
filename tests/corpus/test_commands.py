"""The corpus commands on tiny random models; and signals, in another process."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest
import typer
from typer.testing import CliRunner

from attnflow import corpus
from attnflow.cli.corpus import register
from attnflow.corpus import manifest
from attnflow.corpus.journal import read_record, write_record
from attnflow.corpus.manifest import checksum_model
from attnflow.corpus.settings import OPTIONS
from attnflow.edges.registry import EDGES
from attnflow.errors import FileError
from attnflow.explainer import explain
from attnflow.importance.blank_out import blank_out
from attnflow.methods.registry import METHODS, default_methods
from attnflow.models.loading import load_model
from tests.corpus.fakes import contents
from tests.models.checkpoints import save
from tests.refusal import refusal

ROOT = Path(__file__).parents[2]
TEXTS = ["the key to cabinets", "", "the key", "is here the key to the cabinets", "x " * 20, "here"]


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    return save(tmp_path_factory.mktemp("classifier"))


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "texts.jsonl"
    lines = [json.dumps({"name": f"s{i}", "text": text}) for i, text in enumerate(TEXTS)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def invoke(*arguments):
    app = typer.Typer(pretty_exceptions_enable=False)
    app.callback()(lambda: None)
    register(app)
    return CliRunner().invoke(app, ["corpus", *map(str, arguments)])


@pytest.fixture(scope="module")
def scores(classifier, texts, tmp_path_factory):
    """A corpus with all methods and importance scores."""
    out = tmp_path_factory.mktemp("scores") / "out"
    options = ("--methods", "all", "--importance", "all", "--positions", "0,-1")
    arguments = ("--model", classifier, "--id-column", "name", "--shard-size", 4, "--threads", 1)
    result = invoke("run", texts, "--out", out, *options, *arguments)
    assert result.exit_code == 0, result.output
    assert "6 rows in 2 shards, 2 rejected" in result.stdout
    assert f"attnflow corpus errors {out}" in result.stdout
    return out


def test_a_corpus_with_missing_shards_says_so(scores, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(scores, out)
    (out / "journal/part-000000.json").unlink()
    for command in (
        ["table", out],
        ["show", out, "s5"],
        ["errors", out],
        ["errors", out, "--counts"],
    ):
        result = invoke(*command)
        assert result.exit_code == 0
        assert "1 of 2 shards" in result.stderr
        assert not invoke(command[0], scores, *command[2:]).stderr.count("not complete")


def test_scores_are_those_of_explain(scores, classifier):
    loaded = load_model(classifier)
    stored = list(corpus.open_corpus(scores).examples())
    assert [one.id for one in stored] == ["s0", "s2", "s3", "s5"]
    for one in stored:
        expected = explain(one.text, loaded)
        assert expected.prediction is not None
        assert one.tokens == expected.tokens
        assert one.special == expected.special
        assert one.explained == expected.position == 0
        assert one.positions == (0, len(one.tokens) - 1)
        assert one.layers == (1, 2)
        assert one.prediction == expected.prediction.label
        assert one.probability == pytest.approx(expected.prediction.probability, abs=1e-6)
        for method in default_methods():
            scores_of = getattr(expected, method)(positions=one.positions).to_numpy()
            np.testing.assert_allclose(one.scores[method], scores_of, atol=1e-6)
        drops = blank_out(one.text, loaded).to_numpy()[0, 0]
        np.testing.assert_allclose(one.importance["blank_out"], drops, atol=1e-6)


def test_python_and_the_command_write_the_same_bytes(scores, classifier, texts, tmp_path):
    summary = corpus.run(
        texts,
        tmp_path / "out",
        model=classifier,
        methods="all",
        importance=("blank_out", "input_gradients"),
        positions=(0, -1),
        id_column="name",
        shard_size=4,
        threads=2,
    )
    assert summary.complete
    assert contents(tmp_path / "out") == contents(scores)


def test_duckdb_reads_the_shards(scores):
    query = f"""
        SELECT id, layer, tokens[list_position(rollout, list_max(rollout))] AS best,
               list_sum(rollout) AS total, prediction
        FROM '{scores}/shards/*.parquet' WHERE position = explained ORDER BY index, layer
    """
    rows = duckdb.execute(query).fetchall()
    assert [(row[0], row[1]) for row in rows] == [
        (name, layer) for name in ("s0", "s2", "s3", "s5") for layer in (1, 2)
    ]
    for _, _, _, total, _ in rows:
        assert total == pytest.approx(1, abs=1e-5)
    [first] = [one for one in corpus.open_corpus(scores).examples() if one.id == "s0"]
    best = first.attribution("rollout").top(1, position=0, layer=1)
    assert rows[0][2] == best[0][0]
    errors = duckdb.execute(
        f"SELECT id, why FROM '{scores}/errors/*.jsonl' ORDER BY index"
    ).fetchall()
    assert errors == [("s1", "empty"), ("s4", "too_long")]


def test_one_row_per_token_in_duckdb(scores):
    query = f"""
        SELECT id, unnest(tokens) AS token, unnest(flow) AS flow, unnest(blank_out) AS blank_out
        FROM '{scores}/shards/*.parquet' WHERE layer = 2 AND position = explained
    """
    assert len(duckdb.execute(query).fetchall()) == 6 + 4 + 9 + 3  # [CLS] and [SEP] are tokens too


def test_pandas_and_polars_read_the_shards(scores):
    frame = pd.read_parquet(scores / "shards")
    assert len(frame) == 4 * 2 * 2  # examples, positions, layers
    assert frame["rollout"][0].dtype == np.float32
    lazy = pl.scan_parquet(scores / "shards" / "*.parquet")
    found = lazy.filter(pl.col("layer") == 2).select("id", "position").collect()
    assert found["id"].to_list() == [name for name in ("s0", "s2", "s3", "s5") for _ in "01"]
    assert str(lazy.collect_schema()["flow"]) == "List(Float32)"


@pytest.mark.parametrize("sign", [None, "absolute", "signed"])
def test_the_table_is_the_mean_of_the_rank_correlations(scores, sign):
    from attnflow.evaluation import rank_correlation, summarize

    asked = () if sign is None else ("--sign", sign)
    printed = json.loads(invoke("table", scores, "--format", "json", *asked).stdout)
    assert len(printed) == 3 * 2 + 3
    stored = list(corpus.open_corpus(scores).examples())
    for one in printed:
        if one["against"] == "rollout" or one["against"] == "flow":
            continue
        rho = [
            rank_correlation(
                example.attribution(one["method"], position=0),
                example.attribution(one["against"]),
                **({} if sign is None else {"sign": sign}),
            )
            for example in stored
        ]
        expected = summarize(rho)
        np.testing.assert_allclose(one["mean"], expected.mean, atol=1e-9)
        np.testing.assert_allclose(one["sd"], expected.sd, atol=1e-9)
        assert one["n"] == expected.n.tolist()


def test_the_sign_matters_only_to_scores_that_have_one(scores):
    absolute, signed = (
        json.loads(invoke("table", scores, "--format", "json", "--sign", sign).stdout)
        for sign in ("absolute", "signed")
    )
    for first, second in zip(absolute, signed, strict=True):
        assert (first["mean"] != second["mean"]) == (first["against"] == "blank_out")


def test_tables_in_all_formats(scores):
    shown = invoke("table", scores).stdout
    assert "with blank_out" in shown
    assert "methods with each other" in shown
    # Only two ordinary tokens or fewer in two of the examples: they have no order to compare.
    hidden = json.loads(invoke("table", scores, "--format", "json", "--special", "hide").stdout)
    assert hidden[0]["left_out"] == [2, 2]
    row = json.loads(invoke("table", scores, "--format", "json").stdout)[0]
    error = 1.96 * row["sd"][0] / (row["n"][0] - 1) ** 0.5
    assert row["low"][0] == pytest.approx(row["mean"][0] - error)
    assert row["high"][0] == pytest.approx(row["mean"][0] + error)
    lines = invoke("table", scores, "--format", "csv").stdout.splitlines()
    assert lines[0] == "method,against,layer,mean,sd,low,high,n,left_out"
    assert len(lines) == 1 + 9 * 2


def test_tables_need_two_scores_of_the_explained_position(texts, classifier, tmp_path):
    arguments = ("run", texts, "--model", classifier, "--quiet", "--out")
    invoke(*arguments, tmp_path / "one")
    result = invoke("table", tmp_path / "one")
    assert result.exit_code == 2
    assert "two scores" in result.stderr
    invoke(*arguments, tmp_path / "two", "--methods", "raw,rollout", "--positions", "1")
    result = invoke("table", tmp_path / "two")
    assert result.exit_code == 2
    assert "--positions explained" in result.stderr


def test_showing_one_example(scores, tmp_path):
    result = invoke("show", scores, "s3")
    assert result.exit_code == 0
    assert result.stdout.startswith("s3: is here the key to the cabinets\nclass: LABEL_")
    for name in default_methods():
        assert f"\n{METHODS[name].title}, layer" in result.stdout
    assert result.stdout.count(", layer") >= len(default_methods()) + 2  # and importance scores
    printed = json.loads(invoke("show", scores, "s3", "--format", "json").stdout)
    assert printed["id"] == "s3"
    assert all("scores" in attribution for attribution in printed["attributions"])
    rows = invoke("show", scores, "s3", "--format", "csv", "--top", "1").stdout.splitlines()
    assert rows[0].startswith("method,layer,position,")
    last = invoke("show", scores, "s3", "--position", "-1")
    assert "position 8 [SEP] (of 9 tokens)" in last.stdout
    assert "blank_out" not in last.stdout
    result = invoke("show", scores, "s3", "--position", "4")
    assert result.exit_code == 2
    assert "position 4" in result.stderr
    assert "0, 8" in result.stderr
    page = tmp_path / "page.html"
    assert invoke("show", scores, "s3", "--html", page).exit_code == 0
    assert "cabinets" in page.read_text(encoding="utf-8")


def test_control_characters_are_escaped(classifier, tmp_path):
    path, out = tmp_path / "a.tsv", tmp_path / "out"
    path.write_bytes(b"id\ttext\na\x1b[2J\tthe key \x1b]0;title\x07 here\nb\t" + b"x" * 5000)
    arguments = ("--model", classifier, "--id-column", "id", "--out", out, "--quiet")
    assert invoke("run", path, *arguments).exit_code == 0
    shown = invoke("show", out, "0", "--index").stdout
    assert shown.startswith(r"a\x1b[2J: the key \x1b]0;title\x07 here")
    assert "... (5,000 characters)" in invoke("show", out, "b").stdout


def test_an_example_is_not_explained_again_with_another_model(texts, tmp_path):
    model, out = save(tmp_path / "model"), tmp_path / "out"
    assert invoke("run", texts, "--model", model, "--out", out, "--quiet").exit_code == 0
    weights = tmp_path / "model" / "model.safetensors"
    changed = bytearray(weights.read_bytes())
    changed[-1] ^= 1
    weights.write_bytes(changed)
    assert invoke("show", out, "0").exit_code == 0
    result = invoke("show", out, "0", "--html", tmp_path / "page.html")
    assert result.exit_code == 2
    assert "model.safetensors" in result.stderr
    assert "--html" in result.stderr


def test_positions_can_be_tokens(texts, classifier, tmp_path):
    out = tmp_path / "out"
    arguments = ("--model", classifier, "--out", out, "--positions", "key,[SEP],0", "--quiet")
    result = invoke("run", texts, *arguments)
    assert result.exit_code == 0, result.output
    found = [(one.index, one.positions) for one in corpus.open_corpus(out).examples()]
    assert found == [(0, (2, 5, 0)), (2, (2, 3, 0)), (3, (4, 8, 0))]
    reasons = {row["index"]: row["reason"] for row in corpus.open_corpus(out).rejected()}
    assert "'key'" in reasons[5]
    assert invoke("run", texts, *arguments).exit_code == 0  # tokens are restored from the manifest


def test_examples_that_cannot_be_shown(scores):
    result = invoke("show", scores, "s1")
    assert result.exit_code == 2
    assert "'s1'" in result.stderr
    assert "empty" in result.stderr
    assert "'nobody'" in invoke("show", scores, "nobody").stderr
    assert invoke("show", scores, "0", "--index").exit_code == 0
    assert "9999" in invoke("show", scores, "9999", "--index").stderr
    rejected = invoke("show", scores, "first", "--index")
    assert rejected.exit_code == 2
    assert "'first'" in rejected.stderr
    assert "manifest.json" in invoke("show", scores / "shards", "s1").stderr


def test_rejected_rows_are_listed(scores):
    lines = [json.loads(line) for line in invoke("errors", scores).stdout.splitlines()]
    assert [(row["id"], row["line"], row["why"]) for row in lines] == [
        ("s1", 2, "empty"),
        ("s4", 5, "too_long"),
    ]
    assert "22 tokens" in lines[1]["reason"]
    assert invoke("errors", scores, "--counts").stdout == "empty: 1\ntoo_long: 1\n"


def test_the_summary_is_json(texts, classifier, tmp_path):
    arguments = ("run", texts, "--model", classifier, "--out", tmp_path / "out")
    result = invoke(*arguments, "--json", "--quiet", "--summary", tmp_path / "summary.json")
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    assert (printed["complete"], printed["rows"], printed["rejected"]) == (True, 6, 2)
    assert json.loads((tmp_path / "summary.json").read_text()) == printed
    assert result.stderr == ""
    again = json.loads(invoke(*arguments, "--json").stdout)
    assert (again["rows"], again["new_rows"]) == (6, 0)
    assert invoke(*arguments, "--quiet").stdout == ""
    assert "shards 5:9 are complete\n" in invoke(*arguments, "--shards", "5:9").stdout


@pytest.mark.parametrize("options", [(), ("--input-id", "mine")])
def test_a_damaged_shard_is_named_and_repaired(texts, classifier, tmp_path, options):
    out = tmp_path / "out"
    arguments = ("--model", classifier, "--out", out, "--quiet")
    assert invoke("run", texts, *arguments, *options).exit_code == 0
    expected = contents(out)
    assert invoke("check", out).exit_code == 0
    shard = out / "shards/part-000000.parquet"
    damaged = bytearray(shard.read_bytes())
    damaged[100] ^= 255
    shard.write_bytes(damaged)
    result = invoke("check", out)
    assert result.exit_code == 1
    assert f"shard 0: {shard} has the SHA-256 " in result.stdout
    assert "1 shard checked, 1 damaged; the corpus is not complete" in result.stdout
    result = invoke("check", out, "--repair")
    assert result.exit_code == 0, result.output
    assert "after the repair:\n1 shard checked, 0 damaged; the corpus is complete" in result.stdout
    assert contents(out) == expected


@pytest.mark.parametrize(
    ("arguments", "code", "parts"),
    [
        (("--methods", "flows"), 2, ["'flows'", *METHODS.names]),
        (("--methods", "none"), 2, ["--methods"]),
        (("--importance", "shapley"), 2, ["importance", "'shapley'", "'blank_out'"]),
        (("--positions", "explaned"), 2, ["'explaned'", "Did you mean explained?"]),
        (("--positions", ","), 2, ["('', '')", "'explained'", "'all'"]),
        (("--layers", "top"), 2, ["'top'", "--layers 1,-1"]),
        (("--summary", "no/such/folder.json"), 2, ["--summary", "no/such"]),
        (("--summary", "."), 2, ["--summary", "folder"]),
        (("--summary", "x" * 300), 2, ["xxx", "File name too long"]),
        (("--engine", "spark"), 2, ["'spark'", "'local' or 'ray'"]),
        (("--format", "excel"), 2, ["'excel'", "'jsonl'"]),
        (("--edges", "thick"), 2, ["'thick'", *EDGES.names]),
        (("--engine", "ray", "--address", "127.0.0.1:1"), 2, ["'127.0.0.1:1'", "ray start"]),
        (("--shards", "5"), 2, ["'5'", "--shards 0:100"]),
        (("--shards", "5:2"), 2, ["5:2", "0:100"]),
        (("--model", "no/such/model"), 2, ["no/such/model", "--model"]),
        (("--device", "abacus"), 2, ["'abacus'", "--device"]),
        (("--strict",), 1, ["line 2", "empty", "--strict"]),
    ],
)
def test_exit_codes(texts, classifier, tmp_path, arguments, code, parts):
    given = arguments if "--model" in arguments else ("--model", classifier, *arguments)
    result = invoke("run", texts, "--out", tmp_path / "out", "--quiet", *given)
    assert result.exit_code == code, result.output
    assert result.stderr.startswith("attnflow: ")
    for part in parts:
        assert part in result.stderr


STOPPED = """
import signal, sys
import attnflow.corpus.job as job
from functools import partial
from tests.corpus.fakes import engine

signals = [int(number) for number in sys.argv.pop(1).split(",")]

def interrupt(example):
    if example.index == 25:  # in the second of the shards of 20 rows
        for number in signals:
            signal.raise_signal(number)

def run_fake(settings, shards, report, *, threads):
    return engine(settings, shards, report, before=interrupt)

job.run_local, job.find_device = run_fake, lambda: "cpu"
from attnflow.cli.main import main
sys.argv[0] = "attnflow"
main()
"""


def run_interrupted(tmp_path, *signals, command=("--json",)):
    """Run a command in a process that sends itself signals in its second shard.

    command: of `corpus`, or options of `corpus run`.
    """
    path = tmp_path / "many.txt"
    path.write_text("\n".join(f"word {i}" for i in range(1000)))
    run = ["run", path, "--out", tmp_path / "out", "--shard-size", 20]
    arguments = ["corpus", *(run if command[0].startswith("--") else ()), *command]
    numbers = ",".join(str(int(number)) for number in signals)
    return subprocess.run(
        [sys.executable, "-c", STOPPED, numbers, *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.slow
@pytest.mark.parametrize("signals", [(signal.SIGINT,), (signal.SIGINT, signal.SIGINT)])
def test_a_repair_is_stopped_by_signals(tmp_path, signals):
    assert run_interrupted(tmp_path, 0, command=("--shards", "0:1")).returncode == 0
    repair = ("check", tmp_path / "out", "--repair")
    done = run_interrupted(tmp_path, *signals, command=repair)
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    result = corpus.check(tmp_path / "out")
    assert (result.checked, result.damaged) == (3 - len(signals), ())


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_one_signal_finishes_the_current_shard(tmp_path, number, code):
    done = run_interrupted(tmp_path, number)
    assert done.returncode == code, done.stderr
    assert "Ctrl-C" in done.stderr
    summary = json.loads(done.stdout)
    assert summary["interrupted"]
    assert not summary["complete"]
    assert summary["rows"] == 40
    assert not list((tmp_path / "out").rglob(".*.tmp"))
    assert corpus.check(tmp_path / "out").damaged == ()


@pytest.mark.slow
def test_two_signals_stop_at_once_and_keep_finished_shards(tmp_path):
    done = run_interrupted(tmp_path, signal.SIGINT, signal.SIGTERM)
    assert done.returncode == 143
    assert done.stdout == ""
    result = corpus.check(tmp_path / "out")
    assert (result.checked, result.damaged) == (1, ())


def test_a_changed_model_is_an_error(texts, tmp_path):
    model = save(tmp_path / "model")
    arguments = ("run", texts, "--model", model, "--out", tmp_path / "out", "--quiet")
    assert invoke(*arguments, "--shards", "0:1", "--shard-size", "4").exit_code == 0
    weights = tmp_path / "model" / "model.safetensors"
    changed = bytearray(weights.read_bytes())
    changed[-1] ^= 1
    weights.write_bytes(changed)
    result = invoke(*arguments, "--shard-size", "4")
    assert result.exit_code == 2
    assert "model.safetensors" in result.stderr
    assert "--out" in result.stderr


def test_a_builtin_model_is_identified_by_all_of_its_files():
    assert set(checksum_model(corpus.Settings())) == {
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "weights.safetensors",
    }
    files = checksum_model(corpus.Settings(model="minilm-sst2"))
    assert {"adapter.safetensors", "encoder/model.safetensors", "encoder/vocab.txt"} <= set(files)


def test_a_model_that_is_not_on_the_hub_is_requested_once(monkeypatch):
    requests = []
    monkeypatch.setattr(manifest, "_find_on_hub", lambda *names: requests.append(names))
    with refusal(FileError, "nobody/nothing", "--model"):
        checksum_model(corpus.Settings(model="nobody/nothing"))
    assert requests == [("nobody/nothing", "config.json")]


def test_the_help_lists_all_settings_and_what_is_registered():
    shown = " ".join(invoke("run", "--help").stdout.split())
    for name in OPTIONS:
        assert f"--{name.replace('_', '-')} " in shown
    for name in (*METHODS.names, *EDGES.names):
        assert f"{name}: " in shown


def test_a_repair_with_other_versions_must_be_accepted(texts, classifier, tmp_path):
    out = tmp_path / "out"
    assert invoke("run", texts, "--model", classifier, "--out", out, "--quiet").exit_code == 0
    path = out / "manifest.json"
    content = read_record(path)
    content["versions"][0]["numpy"] = "1.0"
    write_record(path, content)
    (out / "shards/part-000000.parquet").write_bytes(b"")
    result = invoke("check", out, "--repair")
    assert result.exit_code == 2
    assert "numpy" in result.stderr
    assert "--accept-versions" in result.stderr
    result = invoke("check", out, "--repair", "--accept-versions")
    assert result.exit_code == 0, result.output
