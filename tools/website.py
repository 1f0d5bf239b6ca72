"""What the documentation site shows and does not keep: made by each build, from the code.

- the gallery: pictures of `examples/gallery/*.py`, light and dark, with the code that draws them;
- the live viewer of the first page: one self-contained file;
- the notebooks of the tutorials, as executed, to download.

`docs/conf.py` connects these functions to Sphinx. `tools/check_links.py` checks the result.
"""

import importlib.util
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples" / "gallery"
GALLERY = ROOT / "docs" / "gallery"  # ignored by git
# The order in the gallery; examples that are not named here come last.
ORDER = ("maps", "graph", "two_sentences", "edges", "decoder", "own_weights", "curves")
ARGUMENT = re.compile(r"(\w+(, \w+)*: |Returns |Raises )")
# Outside of code, reStructuredText takes a word such as figure_ for a link.
TRAILING_UNDERSCORE = re.compile(r"(`[^`]*`)|(?<=\w)_(?!\w)")
LIVE_TEXT = "the keys to the old cabinet in the kitchen of the actors"


@dataclass(frozen=True)
class Entry:
    """An example of the gallery: its name, title, description, code, and module."""

    name: str
    title: str
    description: str
    code: str
    module: Any


def load_example(path: Path) -> Entry:
    """Import an example. Its docstring has the title, and after a blank line the description."""
    spec = importlib.util.spec_from_file_location(f"gallery_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    title, _, description = (module.__doc__ or "").strip().partition("\n\n")
    code = path.read_text(encoding="utf-8")
    return Entry(path.stem, title.rstrip("."), description.strip(), code, module)


def find_examples(folder: Path = EXAMPLES) -> list[Path]:
    """The files of the gallery's examples, in their order."""
    places = {name: i for i, name in enumerate(ORDER)}
    return sorted(folder.glob("*.py"), key=lambda p: (places.get(p.stem, len(places)), p.stem))


def write_gallery(folder: Path = GALLERY, examples: Path = EXAMPLES) -> Sequence[Entry]:
    """Draw the pictures of all examples, and write a page for each and one with all of them."""
    from attnflow.figures import save

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    entries = [load_example(path) for path in find_examples(examples)]
    for entry in entries:
        for scheme, dark in (("light", False), ("dark", True)):
            save(entry.module.draw(dark=dark), folder / f"{entry.name}-{scheme}.png", dpi=170)
        (folder / f"{entry.name}.md").write_text(_write_page(entry), encoding="utf-8")
        shutil.copy(examples / f"{entry.name}.py", folder)
    (folder / "index.md").write_text(_write_index(entries), encoding="utf-8")
    return entries


def _pictures(entry: Entry, target: str = "") -> str:
    """Both pictures, of which the theme shows one; target: the page that they link to."""
    lines = []
    for scheme in ("light", "dark"):
        image = f"![{entry.title}]({entry.name}-{scheme}.png){{.only-{scheme}}}"
        lines.append(f"[{image}]({target}){{.only-{scheme}}}" if target else image)
    return "\n".join(lines)


def _write_page(entry: Entry) -> str:
    return f"""# {entry.title}

{entry.description}

{_pictures(entry)}

```python
{entry.code.strip()}
```

{{download}}`Download this example <{entry.name}.py>`, or go back to [the gallery](index.md).
"""


def _write_index(entries: Sequence[Entry]) -> str:
    cards = "\n\n".join(
        f'<div class="card">\n\n{_pictures(entry, f"{entry.name}.md")}\n\n'
        f"[{entry.title}]({entry.name}.md)\n\n</div>"
        for entry in entries
    )
    names = "\n".join(entry.name for entry in entries)
    return f"""# Gallery

Each picture links to the code that draws it, in a few lines. [Figures](../figures.md) describes all
options, and [the viewer](../viewer.md) is the interactive way.

<div class="gallery">

{cards}

</div>

```{{toctree}}
:hidden:

{names}
```
"""


def to_restructured_text(lines: Sequence[str]) -> list[str]:
    r"""Make a docstring, which is plain text with examples, readable for Sphinx.

    Each line that describes an argument ("name: text") becomes a paragraph.

    >>> to_restructured_text(["Draw it.", "", "axes_: where.", "ax: `fit_` too."])
    ['Draw it.', '', 'axes\\_: where.', '', 'ax: `fit_` too.']
    """
    result: list[str] = []
    for line in lines:
        if result and result[-1].strip() and ARGUMENT.match(line):
            result.append("")
        is_example = line.lstrip().startswith(">>>")
        result.append(line if is_example else TRAILING_UNDERSCORE.sub(_escape, line))
    return result


def _escape(match: re.Match[str]) -> str:
    return match[1] or r"\_"


def write_live_page(folder: Path) -> Path:
    """Write the viewer of a sentence, in one file, for the first page of the site."""
    from attnflow import explain

    page: Path = explain(LIVE_TEXT).to_html(folder / "live.html", special="hide")
    return page


def copy_notebooks(executed: Path, folder: Path) -> None:
    """Copy the notebooks that the build has executed next to the pages of the tutorials."""
    for path in sorted(executed.glob("*.ipynb")):
        shutil.copy(path, folder)


def link_notebook(app: Any, page: str, template: str, context: dict[str, Any], tree: Any) -> None:  # noqa: ARG001
    """Put a link to the notebook above the text of a tutorial."""
    name = page.removeprefix("tutorials/")
    if name in (page, "index") or "body" not in context:
        return
    link = f'<a href="{name}.ipynb" download>Download this tutorial as a notebook</a>'
    context["body"] = f'<p class="notebook">{link}, with its outputs.</p>\n{context["body"]}'


def mark_options(app: Any, page: str, template: str, context: dict[str, Any], tree: Any) -> None:  # noqa: ARG001
    """Mark options of commands, such as --model, so that lines are not broken inside of them."""
    if "body" in context:
        context["body"] = context["body"].replace(
            '<span class="pre">-', '<span class="pre option">-'
        )


def finish(app: Any, error: Exception | None) -> None:
    """Add the files that are not pages of Sphinx."""
    if error is None and app.builder.format == "html":
        out = Path(app.outdir)
        write_live_page(out)
        copy_notebooks(out.parent / "jupyter_execute" / "tutorials", out / "tutorials")


def connect(app: Any) -> None:
    """Connect these functions to a Sphinx application."""
    app.connect("builder-inited", lambda _: write_gallery())
    app.connect("html-page-context", link_notebook)
    app.connect("html-page-context", mark_options)
    app.connect("build-finished", finish)
