"""Jobs with a fake engine: interruption and resuming at any point, and errors."""

import errno
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from attnflow import storage
from attnflow.corpus import status
from attnflow.corpus.integrity import check, invalidate_damaged
from attnflow.corpus.job import run_job
from attnflow.corpus.journal import read_record, write_record
from attnflow.corpus.manifest import installed_versions, read_manifest, write_manifest
from attnflow.corpus.readers import open_source
from attnflow.corpus.settings import Settings
from attnflow.corpus.store import Folder
from attnflow.errors import AttnflowError, FileError, InputError
from attnflow.storage import DiskError
from tests.corpus.fakes import contents, engine, job, run
from tests.refusal import refusal

ROOT = Path(__file__).parents[2]


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_bytes(b"the key\n\nto the\nbad \xff\nlast one\n" + b"long " * 30 + b"\nend")
    return path


@pytest.fixture
def expected(texts, tmp_path):
    run(texts, tmp_path / "expected")
    return contents(tmp_path / "expected")


def test_a_run_writes_shards_errors_journal_and_manifest(texts, tmp_path):
    summary = run(texts, tmp_path / "out")
    assert (summary.rows, summary.rejected, summary.shards) == (7, 3, 3)
    assert summary.complete
    assert not summary.interrupted
    # One word and [CLS] make 2 tokens; 3, 3, 3 and 2 tokens, 2 layers, one position.
    assert summary.new_pairs == 2 * (3 + 3 + 3 + 2)
    names = sorted(contents(tmp_path / "out"))
    assert names == [
        "errors/part-000000.jsonl",
        "errors/part-000001.jsonl",
        "journal/end.json",
        *(f"journal/part-00000{i}.json" for i in range(3)),
        "manifest.json",
        *(f"shards/part-00000{i}.parquet" for i in range(3)),
    ]
    assert json.loads((tmp_path / "out/journal/end.json").read_text())["rows"] == 7
    errors = [
        json.loads(line)
        for i in range(2)
        for line in (tmp_path / f"out/errors/part-00000{i}.jsonl").read_text().splitlines()
    ]
    assert [(e["index"], e["line"], e["why"]) for e in errors] == [
        (1, 2, "empty"),
        (3, 4, "encoding"),
        (5, 6, "too_long"),
    ]
    assert errors[2]["text"] == ("long " * 40)[:150]


def test_a_finished_run_does_nothing_again(texts, tmp_path):
    run(texts, tmp_path / "out")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.*")}

    def unused(*_arguments):
        pytest.fail("the model was loaded")

    summary = run_job(job(texts, tmp_path / "out"), unused)
    assert summary.complete
    assert (summary.rows, summary.new_rows) == (7, 0)
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*.*")} == before


class CrashError(BaseException):
    """A crash that nothing catches."""


def crash_at(monkeypatch, step):
    """Crash at the n-th operation on files; returns a function that counts them."""
    count = 0

    def crashing(operation, every=1):
        calls = 0

        def wrapped(*arguments, **options):
            nonlocal count, calls
            count += calls % every == 0
            calls += 1
            if count == step:
                raise CrashError
            return operation(*arguments, **options)

        return wrapped

    monkeypatch.setattr(storage._Hashed, "write", crashing(storage._Hashed.write, 20))
    monkeypatch.setattr(os, "fsync", crashing(os.fsync))
    monkeypatch.setattr(Path, "replace", crashing(Path.replace))
    monkeypatch.setattr(Path, "open", crashing(Path.open))
    monkeypatch.setattr(Path, "mkdir", crashing(Path.mkdir))
    return lambda: count


@pytest.mark.slow
def test_a_crash_at_any_operation_on_files_loses_nothing(tmp_path, monkeypatch):
    texts = tmp_path / "short.txt"
    texts.write_bytes(b"the key\n\nto the\nlast")
    run(texts, tmp_path / "expected")
    expected = contents(tmp_path / "expected")
    with monkeypatch.context() as patch:
        steps = crash_at(patch, None)
        run(texts, tmp_path / "counted")
    assert steps() > 50
    for step in range(1, steps() + 1):
        out = tmp_path / f"out-{step}"
        with monkeypatch.context() as patch:
            crash_at(patch, step)
            with pytest.raises(CrashError):
                run(texts, out)
        if (out / "manifest.json").exists():
            assert not check(out).damaged
        assert run(texts, out).complete
        assert contents(out) == expected, f"crashed at step {step}"


@pytest.mark.slow
def test_fifty_kills_at_random_moments_lose_nothing(tmp_path):
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    command = [sys.executable, "-m", "tests.corpus.kills", str(tmp_path), "60", "20"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) >= 50


def full_disk(monkeypatch, after):
    """Simulate a disk with room for so many bytes."""
    left = [after]
    write = storage._Hashed.write

    def limited(self, data):
        left[0] -= len(data)
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(self, data)

    monkeypatch.setattr(storage._Hashed, "write", limited)


@pytest.mark.parametrize("room", [0, 500, 2000, 8000, 12000])
def test_a_full_disk_is_an_error_and_the_run_resumes(texts, tmp_path, expected, monkeypatch, room):
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        full_disk(patch, room)
        with refusal(DiskError, "disk is full", "finished shards", "same command"):
            run(texts, out)
    assert not list(out.rglob(".*.tmp"))
    assert run(texts, out).complete
    assert contents(out) == expected


def test_a_real_full_disk(texts, tmp_path, expected):
    """A file system of 64 KiB, if it can be mounted."""
    out = tmp_path / "small"
    out.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(out)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("file systems cannot be mounted here")
    try:
        ballast = out / "ballast"
        (out / "manifest.json").touch()  # so that the folder may hold something else
        (out / "manifest.json").unlink()
        run_folder = out / "corpus"
        ballast.write_bytes(b"x" * 40_000)
        with refusal(DiskError, "disk is full"):
            run(texts, run_folder)
        ballast.unlink()
        assert run(texts, run_folder).complete
        assert contents(run_folder) == expected
    finally:
        subprocess.run(["umount", str(out)], check=True)


def test_ranges_of_shards_together_are_the_whole(texts, tmp_path, expected):
    out = tmp_path / "out"
    last = run(texts, out, shards=range(2, 10))
    assert last.complete
    assert last.rows == 1
    assert check(out).missing == (0, 1)
    run(texts, out, shards=range(1))
    run(texts, out, shards=range(1, 2))
    assert contents(out) == expected


def test_temporary_files_of_killed_runs_are_removed_in_the_locked_range_only(texts, tmp_path):
    out = tmp_path / "out"
    run(texts, out, shards=range(1))
    left = [out / "shards" / f".part-00000{i}.parquet.tmp" for i in range(3)]
    for path in left:
        path.touch()
    run(texts, out, shards=range(2))
    assert [path.exists() for path in left] == [False, False, True]


def test_a_stopped_run_finishes_the_current_shard(texts, tmp_path, expected):
    out = tmp_path / "out"
    answers = iter([False, True])
    summary = run_job(job(texts, out), engine, stop=lambda: next(answers))
    assert summary.interrupted
    assert not summary.complete
    assert (summary.rows, summary.shards) == (3, 1)
    assert run(texts, out).complete
    assert contents(out) == expected


def test_progress_counts_rows_of_earlier_runs(texts, tmp_path):
    out = tmp_path / "out"
    run(texts, out, shards=range(1))
    seen: list[status.Status] = []
    run_job(job(texts, out), engine, on_status=seen.append)
    assert [one.done for one in seen][-1] == 7
    assert {one.total for one in seen} == {7}
    assert seen[0].new == 1  # an example of the second shard
    assert seen[-1].new == 4
    assert seen[-1].rejected == 3
    assert seen[-1].seconds_left == 0


def test_the_time_left_is_estimated_from_the_last_minute(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(status, "monotonic", lambda: now[0])
    seen: list[status.Status] = []
    counter = status.Counter(seen.append, total=1000)
    # 20 seconds to load the model; then 10 rows per second, and after a minute 5.
    for second in range(20, 200):
        now[0] = float(second)
        counter.report(0 if second == 20 else 10 if second < 80 else 5, 0)
    assert seen[0].seconds_left is None
    assert seen[10].seconds_left == (1000 - 100) / 10
    assert seen[100].seconds_left == (1000 - 590 - 41 * 5) / ((19 * 10 + 41 * 5) / 60)
    assert seen[-1].seconds_left == 0


def test_strict_stops_at_the_first_invalid_row_and_keeps_finished_shards(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_bytes(b"a\nb\nc\nd\n\xff\nf\n")
    with refusal(AttnflowError, "texts.txt, line 5", "0xff at 0", "UTF-8", "--strict"):
        run(path, tmp_path / "out", strict=True)
    assert [entry.shard for entry in Folder(tmp_path / "out").entries()] == [0]
    path.write_bytes(b"a\nb\nc\nd\n" + b"w " * 30 + b"\nf\n")
    with refusal(AttnflowError, "line 5", "31 tokens"):
        run(path, tmp_path / "other", strict=True)
    assert [entry.shard for entry in Folder(tmp_path / "other").entries()] == [0]


def test_strict_reports_the_first_invalid_row_of_reader_or_model(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_bytes(b"a\n" + b"w " * 30 + b"\n\xff\n")  # too long for the model, and invalid UTF-8
    with refusal(AttnflowError, "line 2", "31 tokens"):
        run(path, tmp_path / "out", strict=True)
    path.write_bytes(b"a\nb\n\xff\n")
    with refusal(AttnflowError, "line 3", "0xff at 0"):
        run(path, tmp_path / "other", strict=True)
    assert not list(Folder(tmp_path / "other").entries())


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (
            {"settings": Settings(methods=("raw",))},
            'methods was ["rollout", "flow"] and is ["raw"]',
        ),
        ({"shard_size": 4}, "shard_size was 3 and is 4"),
    ],
)
def test_other_settings_are_an_error(texts, tmp_path, change, difference):
    run(texts, tmp_path / "out")
    with refusal(InputError, str(tmp_path / "out"), difference, "--out"):
        run(texts, tmp_path / "out", **change)


def test_another_input_is_an_error(texts, tmp_path):
    run(texts, tmp_path / "out")
    texts.write_bytes(texts.read_bytes() + b" ")
    with refusal(InputError, "input", "texts.txt ("):
        run(texts, tmp_path / "out")


def test_another_model_is_an_error_that_names_the_file(texts, tmp_path):
    run(texts, tmp_path / "out")
    other = replace(job(texts, tmp_path / "out"), model={"model.safetensors": "1"})
    with refusal(InputError, "model.safetensors"):
        run_job(other, engine)


def test_the_input_may_be_moved(texts, tmp_path):
    run(texts, tmp_path / "out", shards=range(1))
    texts.rename(tmp_path / "moved.txt")
    assert run(tmp_path / "moved.txt", tmp_path / "out").complete


def test_other_versions_are_an_error_unless_accepted(texts, tmp_path):
    out = tmp_path / "out"
    run(texts, out, shards=range(1))
    path = out / "manifest.json"
    manifest = read_manifest(path)
    write_manifest(path, replace(manifest, versions=({**installed_versions(), "numpy": "1.0"},)))
    with refusal(InputError, "numpy", "1.0", installed_versions()["numpy"], "--accept-versions"):
        run(texts, out)
    assert run(texts, out, accept_versions=True).complete
    assert [v["numpy"] for v in read_manifest(path).versions] == [
        "1.0",
        installed_versions()["numpy"],
    ]
    run(texts, out)  # the versions of the last run are known


def test_an_input_that_changes_while_it_is_read_is_an_error(texts, tmp_path):
    def changing(settings, shards, report):
        for results in engine(settings, shards, report):
            yield results
            texts.write_bytes(b"something else")

    with refusal(FileError, "texts.txt", "changed"):
        run_job(job(texts, tmp_path / "out"), changing)
    assert [entry.shard for entry in Folder(tmp_path / "out").entries()] == [0]


def test_a_folder_with_other_files_is_an_error(texts, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").touch()
    with refusal(FileError, "chapter.tex", "manifest.json"):
        run(texts, tmp_path / "thesis")


def test_an_invalid_manifest_is_an_error(texts, tmp_path):
    run(texts, tmp_path / "out")
    (tmp_path / "out" / "manifest.json").write_text('{"schema": 99}')
    with refusal(FileError, "schema 99", "2"):
        run(texts, tmp_path / "out")
    (tmp_path / "out" / "manifest.json").write_text("{")
    with refusal(FileError, "manifest.json", "--out"):
        run(texts, tmp_path / "out")


@pytest.mark.parametrize("name", ["shards/part-000001.parquet", "errors/part-000000.jsonl"])
def test_a_damaged_file_is_found_and_computed_again(texts, tmp_path, expected, name):
    out = tmp_path / "out"
    run(texts, out)
    damaged = bytearray((out / name).read_bytes())
    damaged[len(damaged) // 2] ^= 1  # one bit
    (out / name).write_bytes(damaged)
    assert (
        run(texts, out).new_rows == 0
    )  # the size is right, and checksums are not compared in each run
    found = check(out)
    assert not found.complete
    [damage] = found.damaged
    assert damage.path == out / name
    assert damage.problem.startswith("has the SHA-256 ")
    assert invalidate_damaged(out, found) == [damage.shard]
    [marked] = check(out).damaged
    assert marked.problem == "marks the shard as damaged"
    assert run(texts, out).new_rows == 3
    assert contents(out) == expected
    assert check(out).complete


def test_shards_with_truncated_or_missing_files_are_computed_again(texts, tmp_path, expected):
    out = tmp_path / "out"
    run(texts, out)
    (out / "shards/part-000000.parquet").unlink()
    (out / "shards/part-000001.parquet").write_bytes(b"PAR1")
    (out / "journal/part-000002.json").write_text("{")
    problems = [damage.problem for damage in check(out).damaged]
    assert problems[0] == "is missing"
    assert problems[1].startswith("has 4 bytes ")
    assert "checksum" in problems[2]
    assert run(texts, out).new_rows == 7
    assert contents(out) == expected


def test_an_empty_input_is_a_complete_corpus(tmp_path):
    (tmp_path / "empty.txt").touch()
    summary = run(tmp_path / "empty.txt", tmp_path / "out")
    assert summary.complete
    assert (summary.rows, summary.shards) == (0, 0)
    assert check(tmp_path / "out").complete


def test_a_shard_of_invalid_rows_only(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\n\n\n\n")
    assert run(tmp_path / "a.txt", tmp_path / "out").rejected == 4
    assert check(tmp_path / "out").complete


def test_a_run_resumes_after_its_engine_failed(texts, tmp_path, expected):
    def failing(settings, shards, report):
        yield next(engine(settings, shards, report))
        raise MemoryError

    with pytest.raises(MemoryError):
        run_job(job(texts, tmp_path / "out"), failing)
    assert [entry.shard for entry in Folder(tmp_path / "out").entries()] == [0]
    resumed = run(texts, tmp_path / "out")
    assert (resumed.complete, resumed.new_rows) == (True, 4)  # of 7; the first shard is kept
    assert contents(tmp_path / "out") == expected


def no_engine(_settings, _shards, _report):
    raise InputError("there is no layer 9", "1 or 2")


def test_settings_are_not_locked_before_the_first_shard_is_finished(texts, tmp_path, expected):
    out, wrong = tmp_path / "out", Settings(methods=("raw",), layers=(9,))
    with refusal(InputError, "layer 9"):
        run_job(job(texts, out, settings=wrong, shard_size=2), no_engine)
    (
        out / "shards/part-000004.parquet"
    ).touch()  # renamed, and killed before the journal was written
    (out / "journal/end.json").write_text('{"rows": 1}')  # of another input
    with pytest.warns(UserWarning, match=r"layers was \[9\] and is null"):
        assert run(texts, out).complete
    assert contents(out) == expected


def test_settings_are_locked_while_another_run_is_active(texts, tmp_path):
    out = tmp_path / "out"

    def meanwhile(settings, shards, report):
        with refusal(InputError, "methods", "rollout", "raw"):
            run(texts, out, settings=Settings(methods=("raw",)), shards=range(1, 2))
        yield from engine(settings, shards, report)

    assert run_job(job(texts, out, shards=range(1)), meanwhile).complete


def test_an_input_that_is_truncated_while_it_is_read_is_an_error(tmp_path):
    path, row = tmp_path / "texts.txt", b"x" * 65_535 + b"\n"  # as blocks are read
    path.write_bytes(7 * row)

    def cutting(settings, shards, report):
        for results in engine(settings, shards, report):
            yield results
            os.truncate(path, 3 * len(row))  # after the first shard

    with refusal(FileError, "texts.txt", "changed"):
        run_job(job(path, tmp_path / "out"), cutting)
    assert Folder(tmp_path / "out").total() is None


def test_an_input_that_is_removed_while_it_is_read_is_an_error(texts, tmp_path):
    def removing(settings, shards, report):
        texts.unlink()
        yield from engine(settings, shards, report)

    with refusal(FileError, "texts.txt", "changed"):
        run_job(job(texts, tmp_path / "out"), removing)


def test_settings_stay_locked_if_all_shards_are_damaged(texts, tmp_path):
    out = tmp_path / "out"
    run(texts, out)
    for path in (out / "shards").iterdir():
        path.write_bytes(b"")
    assert invalidate_damaged(out, check(out)) == [0, 1, 2]
    texts.write_bytes(b"something else")
    with refusal(InputError, "input"):
        run(texts, out)


def test_an_input_with_an_id_is_not_read_for_a_checksum(texts, tmp_path):
    source = open_source(texts, input_id="mine")
    assert (source.checksum, source.count, source.has_input_id) == ("mine", None, True)
    assert len(list(source.rows())) == 7
    assert not open_source(texts).has_input_id
    assert run(texts, tmp_path / "out").complete
    with refusal(InputError, "(mine)"):
        run_job(replace(job(texts, tmp_path / "out"), source=source), engine)


@pytest.mark.parametrize("name", ["first", "rows", "refused"])
def test_a_journal_with_wrong_counts_is_damaged(texts, tmp_path, expected, name):
    out = tmp_path / "out"
    run(texts, out)
    path = out / "journal/part-000001.json"
    written = read_record(path)
    path.write_text(json.dumps({**written, name: written[name] + 1}))
    [damage] = check(out).damaged
    assert damage.path == path
    assert "checksum" in damage.problem
    write_record(path, {**written, name: written[name] + 1})
    damage = check(out).damaged[-1]
    assert (damage.path, damage.problem) == (path, "has wrong row counts")
    invalidate_damaged(out, check(out))
    assert run(texts, out).complete
    assert contents(out) == expected
