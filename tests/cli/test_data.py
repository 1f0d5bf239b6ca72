"""The command `data`, in-process."""

import hashlib
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
import typer
from typer.testing import CliRunner

from attnflow.cli.data import register
from attnflow.errors import FileError
from attnflow.paper.data import catalog as sets
from attnflow.paper.data.catalog import DataFile, DataSet

CONTENT = b"VBZ\tthe key\n"


def run(*arguments):
    app = typer.Typer(pretty_exceptions_enable=False)
    app.callback()(lambda: None)
    register(app)
    return CliRunner().invoke(app, ["data", *arguments])


def use(monkeypatch, url=None):
    file = DataFile("tiny/a", 1, len(CONTENT), hashlib.sha256(CONTENT).hexdigest(), url)
    one = DataSet("tiny", "keys", "none", "look under the mat", (file,))
    monkeypatch.setattr(sets, "known_sets", lambda: (one,))


def test_sets_are_listed():
    result = run()
    assert result.exit_code == 0, result.output
    assert "linzen_numpred: subject-verb agreement in Wikipedia" in result.stdout
    assert "  linzen_numpred/numpred.val: 15,772 rows, 679,400 bytes\n" in result.stdout
    assert "sst2/test.tsv: 1,821 rows, 193,577 bytes, no address to download it from" in (
        result.stdout
    )
    assert run("sst2").stdout.startswith("sst2: ")
    assert result.stdout.endswith(" --data grammar, with made-up sentences.\n")


def test_a_folder_is_checked(monkeypatch, tmp_path):
    use(monkeypatch)
    result = run("--in", str(tmp_path))
    assert (result.exit_code, result.stdout) == (1, "tiny/a: missing; look under the mat\n")
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "a").write_bytes(CONTENT)
    result = run("--in", str(tmp_path))
    assert (result.exit_code, result.stdout) == (0, "tiny/a: complete, 1 rows\n")
    (tmp_path / "tiny" / "a").write_bytes(CONTENT * 2)
    result = run("tiny", "--in", str(tmp_path))
    assert result.exit_code == 1
    told = "tiny/a: different: 2 rows, expected 1 and another checksum"
    assert result.stdout == f"{told}\n"
    use(monkeypatch, "https://example.org/a")
    result = run("tiny", "--in", str(tmp_path))
    assert result.stdout == f"{told}; remove it to get it again\n"


def test_a_set_without_checksums_is_told_and_counts_as_right(tmp_path):
    result = run("linzen_full", "--in", str(tmp_path))
    assert result.exit_code == 0
    assert result.stdout.startswith("linzen_full: no checksums are known; the README of ")


def test_what_is_missing_is_downloaded(monkeypatch, tmp_path):
    use(monkeypatch, "https://example.org/a")

    def download(file, folder, *, progress):
        progress(len(CONTENT), len(CONTENT))
        (folder / "tiny").mkdir()
        (folder / file.path).write_bytes(CONTENT)

    monkeypatch.setattr("attnflow.paper.data.catalog.download", download)
    result = run("--in", str(tmp_path), "--download")
    assert (result.exit_code, result.stdout) == (0, "tiny/a: complete, 1 rows\n")


def test_what_cannot_be_downloaded_does_not_stop_the_others(monkeypatch, tmp_path):
    digest = hashlib.sha256(CONTENT).hexdigest()
    away, here = (
        DataFile(f"tiny/{name}", 1, len(CONTENT), digest, f"https://example.org/{name}")
        for name in ("away", "here")
    )
    one = DataSet("tiny", "keys", "none", "look under the mat", (away, here))
    monkeypatch.setattr(sets, "known_sets", lambda: (one,))

    def download(file, folder, *, progress):
        if file is away:
            raise FileError("it is away; expected it here. Try again.")
        progress(1, 1)
        (folder / "tiny").mkdir()
        (folder / file.path).write_bytes(CONTENT)

    monkeypatch.setattr("attnflow.paper.data.catalog.download", download)
    result = run("--in", str(tmp_path), "--download")
    assert result.exit_code == 1
    assert result.stdout == "tiny/away: missing\ntiny/here: complete, 1 rows\n"
    assert result.stderr == "attnflow: it is away; expected it here. Try again.\n"


@pytest.fixture
def mirror(tmp_path):
    """The address of a server on this machine that has the set."""
    copy = tmp_path / "copy" / "tiny"
    copy.mkdir(parents=True)
    (copy / "a").write_bytes(CONTENT)
    handler = partial(SimpleHTTPRequestHandler, directory=str(copy.parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def test_a_mirror_has_what_has_no_address(monkeypatch, tmp_path, mirror):
    use(monkeypatch)
    folder = tmp_path / "data"
    result = run("--in", str(folder), "--download", "--mirror", mirror)
    assert (result.exit_code, result.stdout) == (0, "tiny/a: complete, 1 rows\n")
    assert (folder / "tiny" / "a").read_bytes() == CONTENT
    result = run("--in", str(folder), "--download", "--mirror", "ftp://example.org")
    assert result.exit_code == 2
    assert "the mirror is 'ftp://example.org'; expected an address that begins" in result.stderr


def test_a_set_is_extracted_from_treebanks(tmp_path):
    treebank = tmp_path / "en.conllu"
    treebank.write_text(
        "1\tKeys\t_\t_\tNNS\t_\t2\tnsubj\t_\t_\n2\topen\t_\t_\tVBP\t_\t0\troot\t_\t_\n"
    )
    result = run("ud_agreement", "--in", str(tmp_path), "--extract", str(treebank))
    assert result.exit_code == 0, result.output
    assert result.stdout == (
        "ud_agreement/agreement.tsv.gz: extracted, 1 rows; the listed one has 2,705\n"
    )
    assert (tmp_path / "ud_agreement" / "agreement.tsv.gz").is_file()
    for words in (["ud_agreement"], ["--in", str(tmp_path)], ["sst2", "--in", str(tmp_path)]):
        result = run(*words, "--extract", str(treebank))
        assert result.exit_code == 2
        assert "--extract was given without one set of treebanks and a folder" in result.stderr


def test_misuse():
    result = run("--download")
    assert result.exit_code == 2
    assert result.stderr.startswith("attnflow: no folder was named to download to")
    result = run("nothing")
    assert (result.exit_code, "there is no data set 'nothing'" in result.stderr) == (2, True)
