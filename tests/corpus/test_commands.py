"""The commands `corpus ...` on tiny random models, in-process; and signals, in a process."""

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from time import sleep

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest
import typer
from typer.testing import CliRunner

from attnflow import corpus
from attnflow.cli.corpus import register
from attnflow.errors import FileError
from attnflow.explainer import explain
from attnflow.importance.blank_out import blank_out
from attnflow.models.loading import load_model
from tests.corpus.faking import contents
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
    """A corpus with all that can be asked for."""
    out = tmp_path_factory.mktemp("scores") / "out"
    options = ("--methods", "all", "--importance", "all", "--positions", "0,-1")
    arguments = ("--model", classifier, "--id-column", "name", "--shard-size", 4, "--threads", 1)
    result = invoke("run", texts, "--out", out, *options, *arguments)
    assert result.exit_code == 0, result.output
    assert "6 rows in 2 shards, 2 refused" in result.stdout
    assert f"attnflow corpus errors {out}" in result.stdout
    return out


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
        for method in ("raw", "rollout", "flow"):
            scores_of = getattr(expected, method)(positions=one.positions).to_numpy()
            np.testing.assert_allclose(one.scores[method], scores_of, atol=1e-6)
        drops = blank_out(loaded, one.text).to_numpy()[0, 0]
        np.testing.assert_allclose(one.importance["blank_out"], drops, atol=1e-6)


def test_the_library_writes_the_same_bytes(scores, classifier, texts, tmp_path):
    summary = corpus.run(
        texts,
        tmp_path / "out",
        model=classifier,
        methods=("raw", "rollout", "flow"),
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


def test_a_token_a_row_in_duckdb(scores):
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


def without_sign(example, name):
    found = example.attribution(name)
    return replace(found, scores=np.abs(found.scores))


def test_the_table_is_the_mean_of_the_rank_correlations(scores):
    from attnflow.evaluation import rank_correlation, summarize

    printed = json.loads(invoke("table", scores, "--format", "json").stdout)
    assert len(printed) == 3 * 2 + 3
    stored = list(corpus.open_corpus(scores).examples())
    for one in printed:
        if one["against"] == "rollout" or one["against"] == "flow":
            continue
        rho = [
            rank_correlation(
                example.attribution(one["method"], position=0),
                without_sign(example, one["against"]),
            )
            for example in stored
        ]
        expected = summarize(rho)
        np.testing.assert_allclose(one["mean"], expected.mean, atol=1e-9)
        np.testing.assert_allclose(one["sd"], expected.sd, atol=1e-9)
        assert one["n"] == expected.n.tolist()
    shown = invoke("table", scores).stdout
    assert "with blank_out" in shown
    assert "methods with each other" in shown
    # Only two ordinary tokens or fewer in two of the examples: they have no order to compare.
    hidden = json.loads(invoke("table", scores, "--format", "json", "--special", "hide").stdout)
    assert hidden[0]["left_out"] == [2, 2]
    lines = invoke("table", scores, "--format", "csv").stdout.splitlines()
    assert lines[0] == "method,against,layer,mean,sd,n,left_out"
    assert len(lines) == 1 + 9 * 2


def test_tables_need_two_scores_of_the_explained_position(texts, classifier, tmp_path):
    arguments = ("run", texts, "--model", classifier, "--quiet", "--out")
    invoke(*arguments, tmp_path / "one")
    result = invoke("table", tmp_path / "one")
    assert result.exit_code == 2
    assert "holds rollout only; expected two scores to compare" in result.stderr
    invoke(*arguments, tmp_path / "two", "--methods", "raw,rollout", "--positions", "1")
    result = invoke("table", tmp_path / "two")
    assert result.exit_code == 2
    assert "has no scores of the explained position" in result.stderr


def test_showing_one_example(scores, tmp_path):
    result = invoke("show", scores, "s3")
    assert result.exit_code == 0
    assert result.stdout.startswith("s3: is here the key to the cabinets\nclass: LABEL_")
    for method in ("raw", "rollout", "flow", "blank_out", "input_gradients"):
        assert f"\n{method}, layer" in result.stdout
    last = invoke("show", scores, "s3", "--position", "-1")
    assert "position 8 [SEP], 9 tokens" in last.stdout
    assert "blank_out" not in last.stdout
    result = invoke("show", scores, "s3", "--position", "4")
    assert result.exit_code == 2
    assert "position 4 was not scored; expected one of 0, 8" in result.stderr
    page = tmp_path / "page.html"
    assert invoke("show", scores, "s3", "--html", page).exit_code == 0
    assert "cabinets" in page.read_text(encoding="utf-8")


def test_a_text_does_nothing_to_the_terminal_that_shows_it(classifier, tmp_path):
    path, out = tmp_path / "a.tsv", tmp_path / "out"
    path.write_bytes(b"id\ttext\na\x1b[2J\tthe key \x1b]0;title\x07 here\nb\t" + b"x" * 5000)
    arguments = ("--model", classifier, "--id-column", "id", "--out", out, "--quiet")
    assert invoke("run", path, *arguments).exit_code == 0
    shown = invoke("show", out, "0", "--index").stdout
    assert shown.startswith(r"a\x1b[2J: the key \x1b]0;title\x07 here")
    assert "... (5,000 characters)" in invoke("show", out, "b").stdout


def test_an_example_is_not_explained_anew_with_another_model(texts, tmp_path):
    model, out = save(tmp_path / "model"), tmp_path / "out"
    assert invoke("run", texts, "--model", model, "--out", out, "--quiet").exit_code == 0
    weights = tmp_path / "model" / "model.safetensors"
    changed = bytearray(weights.read_bytes())
    changed[-1] ^= 1
    weights.write_bytes(changed)
    assert invoke("show", out, "0").exit_code == 0
    result = invoke("show", out, "0", "--html", tmp_path / "page.html")
    assert result.exit_code == 2
    assert "other files than the corpus was computed with: model.safetensors;" in result.stderr


def test_positions_may_be_named_by_their_tokens(texts, classifier, tmp_path):
    out = tmp_path / "out"
    arguments = ("--model", classifier, "--out", out, "--positions", "key,[SEP],0", "--quiet")
    result = invoke("run", texts, *arguments)
    assert result.exit_code == 0, result.output
    found = [(one.index, one.positions) for one in corpus.open_corpus(out).examples()]
    assert found == [(0, (2, 5, 0)), (2, (2, 3, 0)), (3, (4, 8, 0))]
    reasons = {row["index"]: row["reason"] for row in corpus.open_corpus(out).refused()}
    assert "there is no token 'key'" in reasons[5]
    assert invoke("run", texts, *arguments).exit_code == 0  # names come back from the manifest


def test_what_cannot_be_shown(scores):
    result = invoke("show", scores, "s1")
    assert result.exit_code == 2
    assert "the example 's1' was refused: the text is empty" in result.stderr
    assert "there is no example 'nobody'" in invoke("show", scores, "nobody").stderr
    assert invoke("show", scores, "0", "--index").exit_code == 0
    assert "there is no example 9999" in invoke("show", scores, "9999", "--index").stderr
    refused = invoke("show", scores, "first", "--index")
    assert refused.exit_code == 2
    assert "the index is 'first'; expected the number of a row" in refused.stderr
    assert "has no manifest.json" in invoke("show", scores / "shards", "s1").stderr


def test_refused_rows_are_listed(scores):
    lines = [json.loads(line) for line in invoke("errors", scores).stdout.splitlines()]
    assert [(row["id"], row["line"], row["why"]) for row in lines] == [
        ("s1", 2, "empty"),
        ("s4", 5, "too_long"),
    ]
    assert "the text has 22 tokens" in lines[1]["reason"]
    assert invoke("errors", scores, "--counts").stdout == "empty: 1\ntoo_long: 1\n"


def test_the_summary_is_json(texts, classifier, tmp_path):
    arguments = ("run", texts, "--model", classifier, "--out", tmp_path / "out")
    result = invoke(*arguments, "--json", "--quiet", "--summary", tmp_path / "summary.json")
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    assert (printed["complete"], printed["rows"], printed["refused"]) == (True, 6, 2)
    assert json.loads((tmp_path / "summary.json").read_text()) == printed
    assert result.stderr == ""
    again = json.loads(invoke(*arguments, "--json").stdout)
    assert (again["rows"], again["new_rows"]) == (6, 0)
    assert invoke(*arguments, "--quiet").stdout == ""
    assert "out: the shards 5:9 are complete\n" in invoke(*arguments, "--shards", "5:9").stdout


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
    ("arguments", "code", "wording"),
    [
        (("--methods", "flows"), 2, "methods has 'flows'; expected 'raw', 'rollout' or 'flow'"),
        (("--methods", "none"), 2, "no method was given"),
        (("--importance", "shapley"), 2, "importance has 'shapley'"),
        (("--positions", "explaned"), 2, "expected explained, all, or indices and tokens with"),
        (("--positions", ","), 2, "positions is ('', ''); expected 'explained', 'all', or indices"),
        (("--layers", "top"), 2, "--layers is 'top'; expected all, or whole numbers"),
        (("--summary", "no/such/folder.json"), 2, "there is no folder no/such; expected an"),
        (("--summary", "."), 2, "--summary is ., a folder; expected a file"),
        (("--summary", "x" * 300), 1, "xxx could not be written (File name too long)"),
        (("--engine", "ray", "--address", "127.0.0.1:1"), 2, "there is no Ray cluster at '127"),
        (("--shards", "5"), 2, "--shards is '5'; expected two whole numbers"),
        (("--shards", "5:2"), 2, "shards is 5:2; expected a first shard"),
        (("--model", "no/such/model"), 2, "there is no model no/such/model"),
        (("--device", "abacus"), 2, "the model cannot be moved to the device 'abacus' ("),
        (("--strict",), 1, "line 2: the text is empty; expected at least one word. The run is"),
    ],
)
def test_exit_codes(texts, classifier, tmp_path, arguments, code, wording):
    given = arguments if "--model" in arguments else ("--model", classifier, *arguments)
    result = invoke("run", texts, "--out", tmp_path / "out", "--quiet", *given)
    assert result.exit_code == code, result.output
    assert result.stderr.startswith("attnflow: ")
    assert wording in result.stderr


STOPPED = """
import sys
from itertools import islice
import attnflow.corpus.local_engine as engines
from tests.corpus.faking import engine

def first_quickly(_threads, settings, shards, report):
    stream = iter(shards)
    yield from engine(settings, islice(stream, 1), report)
    yield from engine(settings, stream, report, pause=pause)

pause = float(sys.argv.pop(1))
engines._run_local, engines._device_here = first_quickly, lambda: "cpu"
from attnflow.cli.main import main
sys.argv[0] = "attnflow"
main()
"""


def start(tmp_path, out, pause):
    """The command in a process of its own, its first shard finished.

    Its stand-in for a model rests for `pause` seconds before each further example.
    """
    path = tmp_path / "many.txt"
    path.write_text("\n".join(f"word {i}" for i in range(1000)))
    arguments = ["corpus", "run", str(path), "--out", str(out), "--shard-size", "20"]
    command = [sys.executable, "-c", STOPPED, str(pause), *arguments, "--json"]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while not list(out.glob("journal/part-*.json")):
        assert process.poll() is None, process.communicate()
        sleep(0.02)
    return process


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_one_signal_finishes_the_shard_in_hand(tmp_path, number, code):
    out = tmp_path / "out"
    process = start(tmp_path, out, 0.02)
    process.send_signal(number)
    printed, said = process.communicate(timeout=60)
    assert process.returncode == code
    assert "finishing the shard in hand; Ctrl-C again stops at once" in said
    summary = json.loads(printed)
    assert summary["interrupted"]
    assert 20 <= summary["rows"] < 1000
    assert not list(out.rglob(".*.tmp"))
    assert corpus.check(out).damaged == ()


def test_two_signals_stop_at_once_and_lose_nothing(tmp_path):
    out = tmp_path / "out"
    process = start(tmp_path, out, 2)  # a shard takes 40 seconds, and is not waited for
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    while "finishing the shard in hand" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    printed, _ = process.communicate(timeout=30)
    assert process.returncode == 143
    assert printed == ""
    found = corpus.check(out)
    assert (found.checked, found.damaged) == (1, ())


def test_another_model_in_the_same_place_is_refused(texts, tmp_path):
    model = save(tmp_path / "model")
    arguments = ("run", texts, "--model", model, "--out", tmp_path / "out", "--quiet")
    assert invoke(*arguments, "--shards", "0:1", "--shard-size", "4").exit_code == 0
    weights = tmp_path / "model" / "model.safetensors"
    changed = bytearray(weights.read_bytes())
    changed[-1] ^= 1
    weights.write_bytes(changed)
    result = invoke(*arguments, "--shard-size", "4")
    assert result.exit_code == 2
    assert "was begun differently: the model has other files: model.safetensors." in result.stderr


def test_a_model_by_its_name_is_known_by_all_of_its_files():
    from attnflow.corpus.manifest import checksums

    assert set(checksums(corpus.Settings())) == {
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "weights.safetensors",
    }
    files = checksums(corpus.Settings(model="minilm-sst2"))
    assert {"adapter.safetensors", "encoder/model.safetensors", "encoder/vocab.txt"} <= set(files)


def test_a_model_that_is_not_on_the_hub_is_asked_for_once(monkeypatch):
    from attnflow.corpus import manifest as identity

    asked = []
    monkeypatch.setattr(identity, "_on_hub", lambda *names: asked.append(names))
    with refusal(FileError, "there is no model nobody/nothing; expected a folder"):
        identity.checksums(corpus.Settings(model="nobody/nothing"))
    assert asked == [("nobody/nothing", "config.json")]


def test_a_repair_with_other_versions_must_be_accepted(texts, classifier, tmp_path):
    out = tmp_path / "out"
    assert invoke("run", texts, "--model", classifier, "--out", out, "--quiet").exit_code == 0
    path = out / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["versions"][0]["numpy"] = "1.0"
    path.write_text(json.dumps(manifest))
    (out / "shards/part-000000.parquet").write_bytes(b"")
    result = invoke("check", out, "--repair")
    assert result.exit_code == 2
    assert "version of numpy was 1.0" in result.stderr
    result = invoke("check", out, "--repair", "--accept-versions")
    assert result.exit_code == 0, result.output
