"""The list of data sets, checking files, and downloading from a server on this machine."""

import hashlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import ClassVar

import pytest

from attnflow.errors import FileError, InputError, SelectionError
from attnflow.paper.data.catalog import DataFile, check_file, choose_sets, download, known_sets
from tests.data.published import FOLDER, published
from tests.refusal import refusal

CONTENT = b"VBZ\tthe key\n" * 20_000


class Server(ThreadingHTTPServer):
    """Keeps the ranges that were asked for."""

    asked: ClassVar[list[str | None]] = []


class Handler(BaseHTTPRequestHandler):
    """Gives CONTENT, and knows ranges, unless the address asks for something else."""

    def do_GET(self):
        asked = self.headers.get("Range")
        Server.asked.append(asked)
        if self.path == "/none":
            self.send_error(404)
            return
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        ranged = asked is not None and self.path != "/whole"
        body = CONTENT[start:] if ranged else CONTENT
        self.send_response(206 if ranged else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.path == "/broken" and not asked:
            body = body[: len(body) // 2]
        self.wfile.write(b"x" * len(body) if self.path == "/other" else body)

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def server():
    Server.asked.clear()
    with Server(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def at(server, path):
    return DataFile(
        "set/numpred.val",
        20_000,
        len(CONTENT),
        hashlib.sha256(CONTENT).hexdigest(),
        f"http://127.0.0.1:{server.server_port}/{path}",
    )


def test_a_file_is_downloaded_once(server, tmp_path):
    told = []
    path = download(at(server, "all"), tmp_path, progress=lambda *done: told.append(done))
    assert path.read_bytes() == CONTENT
    assert told[-1] == (len(CONTENT), len(CONTENT))
    assert download(at(server, "all"), tmp_path) == path
    assert server.asked == [None]
    assert [file.name for file in path.parent.iterdir()] == ["numpred.val"]


def test_a_download_that_broke_off_goes_on(server, tmp_path):
    with refusal(FileError, "cannot be downloaded", "of which 120,000 are here", "Try again"):
        download(at(server, "broken"), tmp_path)
    assert not (tmp_path / "set" / "numpred.val").exists()
    assert download(at(server, "broken"), tmp_path).read_bytes() == CONTENT
    assert server.asked == [None, "bytes=120000-"]


def test_a_server_may_know_no_ranges(server, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "numpred.val.part").write_bytes(b"VBZ")
    assert download(at(server, "whole"), tmp_path).read_bytes() == CONTENT


def test_a_file_that_is_another_is_not_kept(server, tmp_path):
    with refusal(FileError, "gave a file with the SHA-256", "it was not kept"):
        download(at(server, "other"), tmp_path)
    assert list((tmp_path / "set").iterdir()) == []


def test_what_cannot_be_downloaded(server, tmp_path):
    with refusal(FileError, "/none cannot be downloaded (Not Found)", "or copy the file to"):
        download(at(server, "none"), tmp_path)
    with refusal(InputError, "no address is known for a; expected one"):
        download(DataFile("a", 1, 1, ""), tmp_path)
    with refusal(InputError, "no address is known"):
        download(DataFile("a", 1, 1, "", "file:///etc/hosts"), tmp_path)


def test_files_are_checked(tmp_path):
    file = DataFile("a.tsv", 1, 4, hashlib.sha256(b"h\nx\n").hexdigest())
    assert check_file(tmp_path, file).state == "missing"
    (tmp_path / "a.tsv").write_bytes(b"h\nx\n")
    assert check_file(tmp_path, file).state == "complete"
    (tmp_path / "a.tsv").write_bytes(b"h\nx\ny\n")
    found = check_file(tmp_path, file)
    assert (found.state, found.rows) == ("different", 2)  # without the header
    (tmp_path / "a.tsv").write_bytes(b"\xff")
    assert check_file(tmp_path, file).rows is None


def test_the_list():
    names = [one.name for one in known_sets()]
    assert names == ["linzen_numpred", "linzen_full", "amalgum_agreement", "ud_agreement", "sst2"]
    for one in known_sets():
        assert one.find
        for file in one.files:
            assert file.path.startswith(f"{one.name}/")
            assert len(file.sha256) == 64
            assert file.url is None or file.url.startswith("https://")
    assert [one.name for one in choose_sets(["sst2"])] == ["sst2"]
    with refusal(SelectionError, "there is no data set 'sst'", "Did you mean 'sst2'?"):
        choose_sets(["sst"])


@pytest.mark.parametrize("name", ["linzen_numpred", "amalgum_agreement", "ud_agreement", "sst2"])
def test_the_list_is_that_of_the_published_files(name):
    published(name)
    [one] = choose_sets([name])
    for file in one.files:
        assert check_file(FOLDER, file).state == "complete"
        assert (FOLDER / file.path).stat().st_size == file.size
