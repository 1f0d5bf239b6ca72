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
from attnflow.paper.data import catalog
from attnflow.paper.data.catalog import DataFile, DataSet

CONTENT = b"VBZ\tthe key\n"


def run(*arguments):
    app = typer.Typer(pretty_exceptions_enable=False)
    app.callback()(lambda: None)
    register(app)
    return CliRunner().invoke(app, ["data", *arguments])


def use_tiny_set(monkeypatch, url=None):
    """Replace the catalog by a data set with one file."""
    file = DataFile("tiny/a", 1, len(CONTENT), hashlib.sha256(CONTENT).hexdigest(), url)
    data_set = DataSet("tiny", "keys", "none", "under the mat", (file,))
    monkeypatch.setattr(catalog, "read_catalog", lambda: (data_set,))


def test_data_sets_are_listed():
    result = run()
    assert result.exit_code == 0, result.output
    assert "linzen_numpred: " in result.stdout
    assert "  linzen_numpred/numpred.val: 15,772 rows, 679,400 bytes\n" in result.stdout
    assert "sst2/test.tsv: 1,821 rows, 193,577 bytes, " in result.stdout  # it has no URL
    assert run("sst2").stdout.startswith("sst2: ")
    assert result.stdout.endswith(" --data grammar\n")


def test_a_folder_is_checked(monkeypatch, tmp_path):
    use_tiny_set(monkeypatch)
    result = run("--in", str(tmp_path))
    assert (result.exit_code, result.stdout) == (1, "tiny/a: missing; under the mat\n")
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "a").write_bytes(CONTENT)
    result = run("--in", str(tmp_path))
    assert (result.exit_code, result.stdout) == (0, "tiny/a: complete, 1 rows\n")
    (tmp_path / "tiny" / "a").write_bytes(CONTENT * 2)
    result = run("tiny", "--in", str(tmp_path))
    assert result.exit_code == 1
    assert "tiny/a: different checksum, 2 rows" in result.stdout
    assert "--download" not in result.stdout
    use_tiny_set(monkeypatch, "https://example.org/a")
    result = run("tiny", "--in", str(tmp_path))
    assert "--download" in result.stdout


def test_a_data_set_without_checksums_is_not_checked(tmp_path):
    result = run("linzen_full", "--in", str(tmp_path))
    assert result.exit_code == 0
    assert result.stdout.startswith("linzen_full: ")
    assert "no checksums" in result.stdout
    assert "github.com/TalLinzen/rnn_agreement" in result.stdout


def test_missing_files_are_downloaded(monkeypatch, tmp_path):
    use_tiny_set(monkeypatch, "https://example.org/a")

    def download(file, folder, *, progress):
        progress(len(CONTENT), len(CONTENT))
        (folder / "tiny").mkdir()
        (folder / file.path).write_bytes(CONTENT)

    monkeypatch.setattr("attnflow.paper.data.catalog.download", download)
    result = run("--in", str(tmp_path), "--download")
    assert (result.exit_code, result.stdout) == (0, "tiny/a: complete, 1 rows\n")


def test_a_failed_download_does_not_stop_the_others(monkeypatch, tmp_path):
    digest = hashlib.sha256(CONTENT).hexdigest()
    offline, online = (
        DataFile(f"tiny/{name}", 1, len(CONTENT), digest, f"https://example.org/{name}")
        for name in ("offline", "online")
    )
    data_set = DataSet("tiny", "keys", "none", "under the mat", (offline, online))
    monkeypatch.setattr(catalog, "read_catalog", lambda: (data_set,))

    def download(file, folder, *, progress):
        if file is offline:
            raise FileError("no connection", expected="a server", fix="Try again.")
        progress(1, 1)
        (folder / "tiny").mkdir()
        (folder / file.path).write_bytes(CONTENT)

    monkeypatch.setattr("attnflow.paper.data.catalog.download", download)
    result = run("--in", str(tmp_path), "--download")
    assert result.exit_code == 1
    assert result.stdout == "tiny/offline: missing\ntiny/online: complete, 1 rows\n"
    assert "no connection" in result.stderr


@pytest.fixture
def mirror(tmp_path):
    """The URL of a local server with the data set."""
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


def test_files_without_a_url_are_downloaded_from_a_mirror(monkeypatch, tmp_path, mirror):
    use_tiny_set(monkeypatch)
    folder = tmp_path / "data"
    result = run("--in", str(folder), "--download", "--mirror", mirror)
    assert (result.exit_code, result.stdout) == (0, "tiny/a: complete, 1 rows\n")
    assert (folder / "tiny" / "a").read_bytes() == CONTENT
    result = run("--in", str(folder), "--download", "--mirror", "ftp://example.org")
    assert result.exit_code == 2
    assert "'ftp://example.org'" in result.stderr


def test_a_data_set_is_extracted_from_treebanks(tmp_path):
    treebank = tmp_path / "en.conllu"
    treebank.write_text(
        "1\tKeys\t_\t_\tNNS\t_\t2\tnsubj\t_\t_\n2\topen\t_\t_\tVBP\t_\t0\troot\t_\t_\n"
    )
    result = run("ud_agreement", "--in", str(tmp_path), "--extract", str(treebank))
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("ud_agreement/agreement.tsv.gz: extracted 1 rows")
    assert "2,705" in result.stdout
    assert (tmp_path / "ud_agreement" / "agreement.tsv.gz").is_file()
    for arguments in (["ud_agreement"], ["--in", str(tmp_path)], ["sst2", "--in", str(tmp_path)]):
        result = run(*arguments, "--extract", str(treebank))
        assert result.exit_code == 2
        assert "--extract" in result.stderr
        assert "--in FOLDER" in result.stderr


def test_misuse():
    result = run("--download")
    assert result.exit_code == 2
    assert "--in FOLDER" in result.stderr
    result = run("nothing")
    assert result.exit_code == 2
    assert "'nothing'" in result.stderr
