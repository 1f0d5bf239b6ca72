"""The catalog of data sets, checks of files, and downloads from a local server."""

import hashlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import ClassVar

import pytest

from attnflow.errors import FileError, InputError, SelectionError
from attnflow.paper.data.catalog import DataFile, check_file, download, find_sets, read_catalog
from tests.paper.data.published import FOLDER, published
from tests.refusal import refusal

CONTENT = b"VBZ\tthe key\n" * 20_000


class Server(ThreadingHTTPServer):
    """Records the requested ranges."""

    ranges: ClassVar[list[str | None]] = []


class Handler(BaseHTTPRequestHandler):
    """Serves CONTENT and supports ranges, unless the path asks for something else."""

    def do_GET(self):
        requested = self.headers.get("Range")
        Server.ranges.append(requested)
        if self.path == "/none":
            self.send_error(404)
            return
        start = int(requested.removeprefix("bytes=").rstrip("-")) if requested else 0
        is_partial = requested is not None and self.path != "/whole"
        body = CONTENT[start:] if is_partial else CONTENT
        self.send_response(206 if is_partial else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.path == "/broken" and not requested:
            body = body[: len(body) // 2]
        self.wfile.write(b"x" * len(body) if self.path == "/other" else body)

    def log_message(self, *_):
        """Print nothing."""


@pytest.fixture
def server():
    Server.ranges.clear()
    with Server(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def file_at(server, path):
    return DataFile(
        "set/numpred.val",
        20_000,
        len(CONTENT),
        hashlib.sha256(CONTENT).hexdigest(),
        f"http://127.0.0.1:{server.server_port}/{path}",
    )


def test_a_file_is_downloaded_once(server, tmp_path):
    steps = []
    path = download(file_at(server, "all"), tmp_path, progress=lambda *step: steps.append(step))
    assert path.read_bytes() == CONTENT
    assert steps[-1] == (len(CONTENT), len(CONTENT))
    assert download(file_at(server, "all"), tmp_path) == path
    assert server.ranges == [None]
    assert [file.name for file in path.parent.iterdir()] == ["numpred.val"]


def test_an_interrupted_download_resumes(server, tmp_path):
    with refusal(FileError, "/broken", "120,000", "240,000"):
        download(file_at(server, "broken"), tmp_path)
    assert not (tmp_path / "set" / "numpred.val").exists()
    assert download(file_at(server, "broken"), tmp_path).read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=120000-"]


def test_a_server_without_ranges(server, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "numpred.val.part").write_bytes(b"VBZ")
    assert download(file_at(server, "whole"), tmp_path).read_bytes() == CONTENT


def test_a_download_with_another_checksum_is_deleted(server, tmp_path):
    with refusal(FileError, "/other", "SHA-256"):
        download(file_at(server, "other"), tmp_path)
    assert list((tmp_path / "set").iterdir()) == []


def test_files_that_cannot_be_downloaded(server, tmp_path):
    with refusal(FileError, "/none", "Not Found", tmp_path / "set" / "numpred.val"):
        download(file_at(server, "none"), tmp_path)
    for url in (None, "file:///etc/hosts"):
        with refusal(InputError, "set/a", "attnflow data"):
            download(DataFile("set/a", 1, 1, "", url), tmp_path)


def test_files_are_checked(tmp_path):
    file = DataFile("a.tsv", 1, 4, hashlib.sha256(b"h\nx\n").hexdigest())
    assert check_file(tmp_path, file).state == "missing"
    (tmp_path / "a.tsv").write_bytes(b"h\nx\n")
    assert check_file(tmp_path, file).state == "complete"
    (tmp_path / "a.tsv").write_bytes(b"h\nx\ny\n")
    status = check_file(tmp_path, file)
    assert (status.state, status.rows) == ("different", 2)  # without the header
    (tmp_path / "a.tsv").write_bytes(b"\xff")
    assert check_file(tmp_path, file).rows is None


def test_the_catalog():
    names = [data_set.name for data_set in read_catalog()]
    assert names == [
        *("linzen_numpred", "linzen_full", "amalgum_agreement", "ud_agreement"),
        *("gum_agreement", "wikipedia_agreement", "sst2"),
    ]
    for data_set in read_catalog():
        assert data_set.source
        for file in data_set.files:
            assert file.path.startswith(f"{data_set.name}/")
            assert len(file.sha256) == 64
            assert file.url is None or file.url.startswith("https://")
    assert [data_set.name for data_set in find_sets(["sst2"])] == ["sst2"]
    with refusal(SelectionError, "'sst'", "'sst2'"):
        find_sets(["sst"])


@pytest.mark.parametrize(
    "name",
    [
        *("linzen_numpred", "amalgum_agreement", "ud_agreement", "gum_agreement"),
        *("wikipedia_agreement", "sst2"),
    ],
)
def test_the_catalog_matches_the_published_files(name):
    published(name)
    [data_set] = find_sets([name])
    for file in data_set.files:
        assert check_file(FOLDER, file).state == "complete"
        assert (FOLDER / file.path).stat().st_size == file.size
