"""Single HTML files that hold the viewer and its data, and open without a network.

Also here: the static files of the front end, which the other hosts read too.
"""

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from os import PathLike
from os.path import isdir
from pathlib import Path
from typing import Unpack

from attnflow.errors import FileError, check_choice, check_function, check_path, check_text
from attnflow.explanation import Explanation, KeepHeads, ViewOptions
from attnflow.progress import Progress
from attnflow.storage import DiskError, write_atomic
from attnflow.viewer.compression import LEVELS, compress
from attnflow.viewer.payload import Payload, make_payload
from attnflow.viewer.preview import draw_picture, visible

MODULE = "attnflow-viewer.js"  # the front end, built from the folder viewer
CHUNKS_LIMIT = 10_800_000  # bytes of all chunks, from which on weights are rounded: a file of 15 MB
HEADS_LIMIT = 16_000_000  # bytes of heads in a file, for keep_heads="auto"

# The page may run its own script, identified by a hash, and nothing else; it has no network access.
POLICY = (
    "default-src 'none'; script-src 'sha256-{}'; style-src 'unsafe-inline'; "
    "img-src data: blob:; worker-src blob:; base-uri 'none'; form-action 'none'"
)


def to_html(
    path: str | PathLike[str],
    *explanations: Explanation,
    title: str | None = None,
    keep_heads: KeepHeads = "auto",
    progress: Progress | None = None,
    **view: Unpack[ViewOptions],
) -> Path:
    """Write explanations to a single HTML file, which any browser opens without a network.

    explanations: one, or several to compare, such as two sentences or two models.
    title: the text of the first explanation by default.
    keep_heads: whether to write the attention of each head, if the explanations hold it. "auto"
    writes it if it takes at most 16 MB in total, because larger pages are slow to open.
    progress: called with pairs of positions and tokens done, and pairs in total.
    view: what the page shows when it opens: method, layer, normalize, words, special and top, as
    in `Explanation.attribute`. A link with a state after the # overrides it.
    Returns the path. An existing file is replaced only once the new one is complete.
    Raises FileError if the file cannot be written; an unusable path is detected before computing.
    """
    check_path(path)
    check_text("title", title)
    check_function("progress", progress)
    check_choice("keep_heads", keep_heads, ("auto", True, False))
    target = Path(path)
    check_target(target)
    payload = make_payload(explanations, title=title, **view)
    too_large = _heads_bytes(payload.examples) > HEADS_LIMIT
    if not keep_heads or (keep_heads == "auto" and too_large):
        examples = tuple(replace(explanation, heads=None) for explanation in payload.examples)
        payload = replace(payload, examples=examples)
    payload.compute(progress)
    payload, chunks = pack_chunks(payload)
    content = build_page(payload, chunks).encode("utf-8")
    try:
        write_atomic(target, lambda file: file.write(content))
    except DiskError as error:
        raise FileError(error.given, error.expected, error.fix) from error
    return target


def check_target(path: Path) -> None:
    """Raise FileError if no file can be written to this path; call it before a long run."""
    if isdir(path):  # noqa: PTH112 - Path raises if the name is too long
        raise FileError(
            f"{path} is a folder",
            expected="the name of a file",
            fix=f"Name a file in it, such as {path / 'page.html'}.",
        )
    if not path.parent.is_dir():
        raise FileError(
            f"cannot write {path}: there is no folder {path.parent}",
            expected="an existing folder",
            fix="Create it first.",
        )


def pack_chunks(payload: Payload) -> tuple[Payload, dict[str, bytes]]:
    """Compress all chunks. If they are too large, weights are rounded, by as little as possible.

    Returns the payload, with the rounding of its weights, and the compressed chunks.
    """
    packed: dict[tuple[str, str], bytes] = {}  # by name and type
    for levels in (None, *LEVELS):
        payload = replace(payload, levels=levels)
        chunks: dict[str, bytes] = {}
        size = 0
        for key, chunk in payload.chunks.items():
            name = (key, payload.dtype(chunk))
            if name not in packed:
                packed[name] = compress(payload.chunk(key), payload.width(chunk))
            chunks[key] = packed[name]
            size += len(chunks[key])
            if size > CHUNKS_LIMIT and levels != LEVELS[-1]:
                break  # too large without the rest
        if size <= CHUNKS_LIMIT:
            break
    return payload, chunks


def build_page(payload: Payload, chunks: Mapping[str, bytes]) -> str:
    """The HTML of a page that holds the viewer and the payload. chunks: of `pack_chunks`."""
    module, mount = inline_module(read_asset(MODULE))
    script = f"\n{module}\n{read_asset('single-file.js').replace('MOUNT', mount)}"
    script = script.replace("</script", "<\\/script").replace("<!--", "<\\!--")
    digest = b64encode(sha256(script.encode("utf-8")).digest()).decode("ascii")
    scripts = "\n".join(
        f'<script type="application/octet-stream" data-key="{key}" '
        f'data-width="{payload.width(payload.chunks[key])}">'
        f"{b64encode(data).decode('ascii')}</script>"
        for key, data in chunks.items()
    )
    parts = {
        "POLICY": escape(POLICY.format(digest)),
        "TITLE": escape(visible(payload.page_title)),
        "STYLE": read_asset("single-file.css"),
        "PICTURE": draw_picture(payload.examples[0]),
        "HEADER": escape_json(payload.header_json()),
        "CHUNKS": scripts,
        "SCRIPT": script,
    }
    # Text, name, text, name, ..., text. Split once, so that no part is searched for placeholders.
    pieces = read_asset("single-file.html").split("%%")
    return "".join(parts[piece] if i % 2 else piece for i, piece in enumerate(pieces))


def escape_json(text: str) -> str:
    r"""Escape JSON for a script element.

    >>> escape_json('["</script>&"]')
    '["\\u003c/script\\u003e\\u0026"]'
    """
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


@cache
def read_asset(name: str) -> str:
    """The text of a static file of the front end.

    Raises FileError if it is missing, as in a checkout in which the front end was not built.
    """
    try:
        return files("attnflow.viewer").joinpath("static", name).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise FileError(
            f"the viewer's file {name} is missing",
            expected="the file in the package",
            fix="Install attnflow again, or build the front end in a checkout: make viewer.",
        ) from None


def inline_module(source: str, name: str = "mount") -> tuple[str, str]:
    r"""Remove the exports of a module, so that its source can be part of another script.

    source: ends with one export list, as bundlers write it. name: the export that is needed.
    Returns the source, and the local name of the export in it.
    Raises FileError if there is no such list or no such export.

    >>> inline_module("function m(){}\nexport{d as default,m as mount};")
    ('function m(){}\n', 'm')
    """
    match = re.search(r"export\s*\{([^{}]*)\}\s*;?\s*(?://[^\n]*\s*)?\Z", source)
    if match is not None:
        for item in match[1].split(","):
            names = item.split(" as ")
            if names[-1].strip() == name:
                return source[: match.start()], names[0].strip()
    raise FileError(
        f"the viewer's module does not export {name}",
        expected=f"an export list with {name} at the end of the module",
        fix="Build the front end again: make viewer.",
    )


def _heads_bytes(explanations: Sequence[Explanation]) -> int:
    """The size of all heads as float16."""
    return sum(
        2 * sum(explanation.heads.n_heads) * explanation.heads.n_tokens**2
        for explanation in explanations
        if explanation.heads is not None
    )
