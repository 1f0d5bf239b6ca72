"""Downloading the files of data sets: resumed where it broke off, and checked by their sums."""

from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from attnflow.data.sets import DataFile, checksum
from attnflow.errors import FileError, InputError

BLOCK = 2**16  # bytes read at a time
PATIENCE = 30.0  # seconds without an answer

Progress = Callable[[int, int], None]  # bytes done, and all


def download(file: DataFile, folder: str | Path, *, progress: Progress | None = None) -> Path:
    """Download a file into a folder of data, and return its path.

    What was downloaded before it broke off is in a file that ends in `.part`, and is not downloaded
    again. A file that is there and right is left alone.
    Raises InputError if no address is known, FileError if the address cannot be reached or gives
    something else; a file that is there already is then as it was.
    """
    if file.url is None or not file.url.startswith(("https://", "http://")):
        raise InputError(
            f"no address is known for {file.path}; expected one to download it from. `attnflow "
            "data` says where to find it."
        )
    path = Path(folder) / file.path
    if path.is_file() and checksum(path) == file.sha256:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    try:
        _fetch(file, part, progress)
    except (HTTPException, OSError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        kept = part.stat().st_size if part.is_file() else 0
        raise FileError(
            f"{file.url} cannot be downloaded ({reason}); expected {file.size:,} bytes, of which "
            f"{kept:,} are here. Try again, which goes on from there, or copy the file to {path}."
        ) from error
    found = checksum(part)
    if found != file.sha256:
        part.unlink()
        raise FileError(
            f"{file.url} gave a file with the SHA-256 {found[:12]}...; expected "
            f"{file.sha256[:12]}... It may have changed there, or on the way; it was not kept."
        )
    part.replace(path)
    return path


def _fetch(file: DataFile, part: Path, progress: Progress | None) -> None:
    """Download what is missing of a file. Raises OSError if the connection breaks."""
    done = part.stat().st_size if part.is_file() else 0
    if done >= file.size:
        return  # all of it; or too much, which the checksum will tell
    headers = {"User-Agent": "attnflow", "Accept-Encoding": "identity"}
    if done:
        headers["Range"] = f"bytes={done}-"
    try:
        answer = urlopen(Request(str(file.url), headers=headers), timeout=PATIENCE)
    except HTTPError as error:
        error.close()
        raise
    with answer:
        goes_on = answer.status == 206
        done = done if goes_on else 0  # a server may know nothing of ranges, and send all
        with part.open("ab" if goes_on else "wb") as out:
            _copy(answer, out, done, file.size, progress)
    if part.stat().st_size < file.size:
        raise OSError("the connection broke off")


def _copy(answer: Any, out: Any, done: int, size: int, progress: Progress | None) -> None:
    # Never much more than expected, so that no server can fill the disk.
    while done <= size and (block := answer.read(BLOCK)):
        out.write(block)
        done += len(block)
        if progress is not None:
            progress(done, size)
