"""One HTML file that holds viewer and arrays, and works from disk without a network.

The files of the front end that come with the package.
"""

import os
import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from os import PathLike
from pathlib import Path
from tempfile import NamedTemporaryFile

from attnflow.errors import FileError
from attnflow.explanation import Explanation, KeepHeads, Progress
from attnflow.viewer.payload import Payload, make_payload
from attnflow.viewer.preview import draw_picture, visible

MODULE = "attnflow-viewer.js"


@cache
def read_asset(name: str) -> str:
    """The text of one of the front end's files.

    Raises FileError if it is missing, as in a checkout where the front end was not built.
    """
    try:
        return files("attnflow.viewer").joinpath("static", name).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise FileError(
            f"the viewer's file {name} is missing",
            expected="it in the package",
            fix="Install attnflow again, or build the front end in a checkout: make viewer.",
        ) from None


def inline_module(source: str, name: str = "mount") -> tuple[str, str]:
    r"""A module without its exports, to be put into a page, and what one of them is called in it.

    The module ends in one export list, as bundlers write it.
    Raises FileError if it does not, or if the name is not in it.

    >>> inline_module("function m(){}\nexport{d as default,m as mount};")
    ('function m(){}\n', 'm')
    """
    found = re.search(r"export\s*\{([^{}]*)\}\s*;?\s*(?://[^\n]*\s*)?\Z", source)
    if found is not None:
        for item in found[1].split(","):
            names = item.split(" as ")
            if names[-1].strip() == name:
                return source[: found.start()], names[0].strip()
    raise FileError(
        f"the viewer's module does not end in a list of exports that has {name}",
        expected="one",
        fix="Build the front end again: make viewer.",
    )


HEADS_LIMIT = 16_000_000  # bytes that heads may take in a file for keep_heads="auto"

# The page may run its own script, known by its hash, and nothing else; it can reach no network.
POLICY = (
    "default-src 'none'; script-src 'sha256-{}'; style-src 'unsafe-inline'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'"
)


def to_html(
    path: str | PathLike[str],
    *explanations: Explanation,
    title: str | None = None,
    keep_heads: KeepHeads = "auto",
    progress: Progress | None = None,
) -> Path:
    """Write explanations to one HTML file, to look at with any browser, without a network.

    explanations: one, or several to compare: two sentences, or two models.
    title: if not given, the text of the first. progress: called with flows done and flows in all.
    keep_heads: whether to write the attention of each head, if there is any; "auto" does so where
    that of all explanations takes at most 16 MB, since a page of more is slow to open.
    The file is there whole or not at all. Returns its path.
    Raises FileError if it cannot be written.
    """
    target = Path(path)
    check_target(target)
    payload = make_payload(explanations, title=title)
    too_much = _bytes_of_heads(payload.examples) > HEADS_LIMIT
    if not keep_heads or (keep_heads == "auto" and too_much):
        without = tuple(replace(one, heads=None) for one in payload.examples)
        payload = replace(payload, examples=without)
    payload.compute(progress)
    write_whole(target, build_page(payload))
    return target


def _bytes_of_heads(explanations: Sequence[Explanation]) -> int:
    """What the heads take as float16."""
    return sum(
        2 * sum(one.heads.n_heads) * one.heads.n_tokens**2
        for one in explanations
        if one.heads is not None
    )


def check_target(path: Path) -> None:
    """Raise FileError, before anything is computed, if no file can be at this path."""
    if path.is_dir():
        raise FileError(
            f"{path} is a folder",
            expected="the name of a file",
            fix=f"Name a file in it, such as {path / 'page.html'}.",
        )
    if not path.parent.is_dir():
        raise FileError(
            f"cannot write {path}: there is no folder {path.parent}",
            expected="an existing one",
            fix="Create it first.",
        )


def write_whole(path: Path, text: str) -> None:
    """Write a file so that it is there whole or not at all.

    Raises FileError if the file cannot be written.
    """
    temporary = None
    try:
        with NamedTemporaryFile(
            "w", encoding="utf-8", newline="\n", dir=path.parent, prefix=".attnflow-", delete=False
        ) as file:
            temporary = Path(file.name)
            file.write(text)
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise FileError(
            f"cannot write {path}: {error.strerror or error}",
            expected="a file that can be written",
            fix="Choose another.",
        ) from error


def _umask() -> int:
    """Which rights new files do not get; it can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def build_page(payload: Payload) -> str:
    """The whole page as text."""
    module, mount = inline_module(read_asset(MODULE))
    script = f"\n{module}\n{read_asset('single-file.js').replace('MOUNT', mount)}"
    script = script.replace("</script", "<\\/script").replace("<!--", "<\\!--")
    hashed = b64encode(sha256(script.encode("utf-8")).digest()).decode("ascii")
    chunks = "\n".join(
        f'<script type="application/octet-stream" data-key="{key}">'
        f"{b64encode(payload.chunk(key)).decode('ascii')}</script>"
        for key in payload.chunk_keys()
    )
    parts = {
        "POLICY": escape(POLICY.format(hashed)),
        "TITLE": escape(visible(payload.title)),
        "STYLE": read_asset("single-file.css"),
        "PICTURE": draw_picture(payload.examples[0]),
        "HEADER": escape_json(payload.header_json()),
        "CHUNKS": chunks,
        "SCRIPT": script,
    }
    page = read_asset("single-file.html")
    pieces = page.split("%%")  # text, name, text, name, ..., text: filled in once, never twice
    return "".join(parts[piece] if i % 2 else piece for i, piece in enumerate(pieces))


def escape_json(text: str) -> str:
    r"""JSON in ASCII that can stand inside a script element.

    >>> escape_json('["</script>&"]')
    '["\\u003c/script\\u003e\\u0026"]'
    """
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
