"""Commands that are called wrongly: each exits with 2, and says what is wrong on stderr."""

import os
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from attnflow.cli.main import app
from tests.models.checkpoints import save

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

LONG = "x" * 300  # longer than a file name may be
BYTE = "\udcff"  # a byte that is not UTF-8, as Python passes it on
MODEL = ("--model", "model")
EXPLAIN = ("explain", "the key", *MODEL)
TRACE = ("trace", "weights.npy")
RUN = ("corpus", "run", "texts.txt", "--out", "out", *MODEL)


def options(command, **values):
    """The command with each value of each option."""
    return [
        (*command, f"--{name.replace('_', '-')}", value)
        for name, several in values.items()
        for value in several
    ]


CALLS = {
    "explain": [
        ("explain",),
        ("explain", "a", "b"),
        *(("explain", text, *MODEL) for text in ("", " ", BYTE, "x " * 100)),
        *options(
            EXPLAIN,
            layer=["", "key", "9.5", "99", "-99", "0"],
            heads=["", "99", "foo", "1.5"],
            residual_weight=["", "99", "-1", "foo", "nan", "1e999"],
            method=["", "zz"],
            edges=["", "zz"],
            device=["cuda:99", "tpu", "meta", "", BYTE],
            position=["", "99", "nope"],
            target=["", "99", "nope"],
            against=["99", "nope"],
            save=[LONG, "nodir/x", "folder", ""],
            html=[LONG, "nodir/x", "folder"],
            tokenizer=["", "folder", LONG, "model/config.json"],
            top=["0", "x"],
            format=["xml"],
            threads=["0"],
            truncate=["x"],
        ),
        (*EXPLAIN, "--check", "--format", "csv"),
        (*EXPLAIN, "--chat", "latin.txt"),
        ("explain", *MODEL, "--chat", "latin.txt"),
        *options(("explain", "the key"), model=["", "folder", "nope/nope", LONG, BYTE, "x" * 5000]),
    ],
    "explain-image": [
        ("explain-image",),
        *(("explain-image", name, *MODEL) for name in ("nope.png", "folder", "empty", LONG, BYTE)),
    ],
    "trace": [
        ("trace",),
        *(("trace", name) for name in ("nope.npy", "folder", "empty", "texts.txt", LONG)),
        *options(
            TRACE,
            tokens=["a,b"],
            tokens_file=["latin.txt", "nope"],
            position=["9"],
            layer=["9"],
            heads=["9"],
            residual_weight=["measured"],
            save=[LONG],
        ),
    ],
    "corpus": [
        ("corpus",),
        ("corpus", "nope"),
        ("corpus", "run"),
        ("corpus", "run", "texts.txt"),
        *(
            ("corpus", "run", name, "--out", "out", *MODEL)
            for name in ("nope.txt", "folder", "empty", "bad.csv", f"{BYTE}.txt", "hf:", LONG)
        ),
        *(("corpus", "run", "texts.txt", "--out", out, *MODEL) for out in ("texts.txt", "model")),
        *options(
            RUN,
            methods=["x"],
            layers=["x", "9"],
            positions=["", "alll"],
            edges=["x"],
            heads=["9", "zz"],
            target=["zz", "99"],
            device=["tpu", "meta", ""],
            text_column=["x"],
            input_id=[""],
            shard_size=["0"],
            shards=["x", "3:1", "-1:2"],
            engine=["x"],
            workers=["1"],
            summary=["nodir/x", "folder", LONG],
            tokenizer=["folder"],
        ),
        *(("corpus", name, *rest) for name in ("table", "check", "errors") for rest in
          ((), ("nope",), ("folder",), (LONG,), ("texts.txt",))),
        ("corpus", "show", "folder", "1"),
    ],
    "others": [
        ("nope",),
        ("--nope",),
        ("convert",),
        ("convert", "nope"),
        ("convert", "/"),
        ("convert", "model"),
        ("convert", LONG),
        ("reproduce", "nope"),
        ("reproduce", "table1", "--data", "nope"),
        ("reproduce", "table1", "--data", "grammar", "--device", "tpu"),
        ("data", "nope"),
        ("data", "--download"),
        ("train",),
        ("train", "nope"),
        ("train", "verb-number"),
        ("train", "verb-number", "--out", "trained", "--device", "tpu"),
        ("serve", "--host", "nope.invalid"),
        ("serve", "--host", BYTE),
        ("serve", "--port", "99999"),
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("misuse")
    save(folder / "model")
    np.save(folder / "weights.npy", np.full((2, 1, 3, 3), 1 / 3))
    (folder / "texts.txt").write_text("the key\nto the cabinets\n")
    (folder / "latin.txt").write_bytes(b"caf\xe9\n\xe9\nx\n")
    (folder / "bad.csv").write_text("a,b\n1,2\n")
    (folder / "photo.png").write_bytes(b"a picture")
    (folder / "empty").touch()
    (folder / "folder").mkdir()
    return folder


@pytest.mark.parametrize("command", CALLS)
def test_misuse_exits_with_2_and_a_message(command, folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    wrong = []
    for arguments in CALLS[command]:
        result = CliRunner().invoke(app, list(arguments))
        is_ours = result.exception is None or isinstance(result.exception, SystemExit)
        if not is_ours or result.exit_code != 2 or not result.stderr.strip():
            wrong.append((arguments, result.exit_code, result.exception))
    assert wrong == []


def run(*arguments, **options):
    code = "from attnflow.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], text=True, check=False, timeout=300, **options
    )


@pytest.mark.parametrize(
    ("command", "written"),
    [
        ((*EXPLAIN, "--save", "new", "--html", "folder/../new"), "new"),
        ((*EXPLAIN, "--chat", "texts.txt", "--save", "texts.txt"), "texts.txt"),
        ((*TRACE, "--save", "weights.npy"), "weights.npy"),
        ((*TRACE, "--tokens-file", "texts.txt", "--html", "texts.txt"), "texts.txt"),
        (("explain-image", "photo.png", *MODEL, "--overlay", "photo.png"), "photo.png"),
        ((*RUN, "--summary", "texts.txt"), "texts.txt"),
        (("evaluate", "texts.txt", *MODEL, "--out", "out", "--report", "texts.txt"), "texts.txt"),
    ],
)
def test_no_output_replaces_an_input_or_another_output(folder, monkeypatch, command, written):
    monkeypatch.chdir(folder)
    file = folder / written
    before = file.read_bytes() if file.exists() else None
    result = CliRunner().invoke(app, list(command))
    assert result.exit_code == 2, result.output
    assert written in result.stderr
    assert (file.read_bytes() if file.exists() else None) == before


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")  # noqa: PTH110
@pytest.mark.parametrize("arguments", [["--help"], ["explain", "the key"], ["data"]])
def test_output_that_cannot_be_written_is_an_error(arguments):
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = run(*arguments, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_closed_stderr_is_no_error():
    closed = run("explain", "the key", stdout=subprocess.PIPE, preexec_fn=lambda: os.close(2))
    assert closed.returncode == 0
    assert "verb-number" in closed.stdout


def test_devices_are_never_replaced_by_a_file(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    done = run("explain", "the key", "--save", str(pipe), capture_output=True)
    assert done.returncode == 2
    assert pipe.is_fifo()
