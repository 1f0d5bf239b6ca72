"""How fast the viewer is in a real browser: frames while hovering, and time to switch layers.

Hovering: the pointer moves across each view of 128 tokens x 12 layers, once every frame, and the
times between frames are kept. Switching: the layer of 512 tokens x 12 layers is changed with its
slider, and time runs until the new numbers are on screen: painted, with nothing left to load.
"First" is a layer that was not looked at before, "again" one that was. Flow: the page computes the
flow of another position, with workers, while the pointer moves; time runs until it is on screen,
and on Linux the processor time of the workers is read from /proc. With --model, of texts that a
language model reads, of 512 tokens or those of --tokens. Everything else is shown from
single HTML files, made from random attention; heads, 12 a layer, from one of 4 layers. Needs
Chromium, as the tests in a browser do.

Run: python -m benchmarks.viewer
"""

import argparse
import json
import os
import platform
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean, median, quantiles
from typing import Any
from urllib.parse import quote

import numpy as np

from attnflow import Attentions, Explanation

RESULTS = Path(__file__).parent / "results" / "viewer.json"
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
LAYERS = 12
LATE = 25.0  # milliseconds: a frame after this one was missed, at 60 frames a second
VIEWS: dict[str, dict[str, Any]] = {
    "text": {"view": "text"},
    "flow graph, rollout": {"view": "flow", "method": "rollout"},
    "flow graph, flow": {"view": "flow", "method": "flow"},
    "map": {"view": "map"},
    "heads": {"view": "heads"},
}

# One move a frame, in waves across what can be hovered; returns the times between frames.
HOVER = """async (frames) => {
  const shadow = document.getElementById("attnflow").shadowRoot;
  const view = [...shadow.querySelectorAll(".stage, .sentence")].find((one) => !one.hidden);
  const box = view.getBoundingClientRect();
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const gaps = [];
  let before = await frame();
  for (let i = 0; i < frames; i++) {
    const share = (i / frames) * 12;
    const down = share % 2 < 1 ? share % 1 : 1 - (share % 1);
    const clientX = box.left + box.width * (0.05 + 0.9 * ((i % 97) / 97));
    const clientY = box.top + Math.min(box.height, innerHeight - box.top) * (0.05 + 0.9 * down);
    const target = shadow.elementFromPoint(clientX, clientY) ?? view;
    target.dispatchEvent(new PointerEvent("pointermove",
      { clientX, clientY, bubbles: true, composed: true }));
    const now = await frame();
    gaps.push(now - before);
    before = now;
  }
  return gaps;
}"""

# Time until a layer is on screen: numbers there, nothing being loaded, and two frames painted.
SWITCH = """async (layer) => {
  const shadow = document.getElementById("attnflow").shadowRoot;
  const slider = shadow.querySelector("[data-testid=layer]");
  const status = shadow.querySelector("[data-testid=progress]");
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const start = performance.now();
  slider.value = String(layer);
  slider.dispatchEvent(new Event("input"));
  do await frame(); while (status.textContent !== "");
  await frame();
  return performance.now() - start;
}"""

# Time until the page has computed a flow, and the times between frames while the pointer moves.
COMPUTE = """async () => {
  const shadow = document.getElementById("attnflow").shadowRoot;
  const status = shadow.querySelector("[data-testid=progress]");
  const tokens = [...shadow.querySelectorAll("[data-testid=token]")];
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const start = performance.now();
  const gaps = [];
  let before = await frame();
  for (let i = 0; status.textContent !== "" || performance.now() - start < 300; i++) {
    tokens[i % tokens.length].dispatchEvent(new PointerEvent("pointerover",
      { bubbles: true, composed: true }));
    const now = await frame();
    gaps.push(now - before);
    before = now;
  }
  return { ms: performance.now() - start, gaps };
}"""


def make_explanation(n_tokens: int, n_heads: int, n_layers: int = LAYERS) -> Explanation:
    """One of random attention, sharp enough to have structure."""
    random = np.random.default_rng(0)
    layers = []
    for _ in range(n_layers):
        scores = np.exp(2 * random.normal(size=(n_heads, n_tokens, n_tokens)))
        layers.append(scores / scores.sum(-1, keepdims=True))
    tokens = ["[CLS]", *(f"word{i}" for i in range(1, n_tokens))]
    return Explanation.from_attentions(Attentions(layers, tokens), text=" ".join(tokens[1:]))


@contextmanager
def opened(browser: Any, file: Path, state: dict[str, Any]) -> Iterator[Any]:
    """A page that shows a file in a state, once it has settled."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True)
    page = context.new_page()
    page.goto(f"{file.as_uri()}#{quote(json.dumps(state))}")
    page.get_by_test_id("ranking").locator("li").first.wait_for()
    page.wait_for_function(
        "() => document.getElementById('attnflow').shadowRoot"
        ".querySelector('[data-testid=progress]').textContent === ''",
        timeout=120_000,
    )
    page.wait_for_timeout(500)
    yield page
    context.close()


def hovering(browser: Any, file: Path, frames: int) -> dict[str, Any]:
    """Frames a second while hovering, for each view."""
    found = {}
    for name, state in VIEWS.items():
        with opened(browser, file, state) as page:
            gaps = page.evaluate(HOVER, frames)
        found[name] = {
            "frames_a_second": round(1000 / mean(gaps), 1),
            "median_ms": round(median(gaps), 1),
            "p95_ms": round(quantiles(gaps, n=20)[-1], 1),
            "late_frames": sum(gap > LATE for gap in gaps),
            "frames": len(gaps),
        }
        print(f"hover, {name}: {found[name]}", flush=True)
    return found


def switching(browser: Any, file: Path, heads: Path) -> dict[str, Any]:
    """Milliseconds to switch layers, for each view: never seen before, and seen."""
    found = {}
    for name, state in VIEWS.items():
        shown, n_layers = (heads, 4) if name == "heads" else (file, LAYERS)
        with opened(browser, shown, {**state, "layer": n_layers // 2}) as page:
            order = [layer for layer in range(1, n_layers + 1) if layer != n_layers // 2]
            first = [page.evaluate(SWITCH, layer) for layer in order]
            again = [page.evaluate(SWITCH, layer) for layer in order]
        found[name] = {
            "first_median_ms": round(median(first)),
            "first_largest_ms": round(max(first)),
            "again_median_ms": round(median(again)),
            "again_largest_ms": round(max(again)),
        }
        print(f"switch, {name}: {found[name]}", flush=True)
    return found


def worker_seconds() -> float | None:
    """Processor time of all workers in processes that this one started; None if not on Linux."""
    children: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(_after_name(status)[1])
            children.setdefault(parent, []).append(int(status.parent.name))
    if not children:
        return None
    ticks, processes = 0, [os.getpid()]
    for process in processes:
        processes += children.get(process, [])
        for status in Path(f"/proc/{process}/task").glob("*/stat"):
            with suppress(OSError):
                if (status.parent / "comm").read_text().strip() == "DedicatedWorker":
                    ticks += sum(int(number) for number in _after_name(status)[11:13])
    return round(ticks / os.sysconf("SC_CLK_TCK"), 2)


def _after_name(status: Path) -> list[str]:
    """The fields of a process or thread behind its name, which may have spaces."""
    return status.read_text().rpartition(")")[2].split()


def time_flow(page: Any) -> dict[str, float]:
    """Wait until a page begins to compute flow, and time it until the page has it."""
    before = worker_seconds() or 0.0
    page.wait_for_function(
        "() => document.getElementById('attnflow').shadowRoot"
        ".querySelector('[data-testid=progress]').textContent.includes('flow')",
        timeout=120_000,
    )
    result = page.evaluate(COMPUTE)
    return {
        "seconds": round(result["ms"] / 1000, 2),
        "worker_seconds": round((worker_seconds() or 0.0) - before, 2),
        "frame_median_ms": round(median(result["gaps"]), 1),
        "frame_p95_ms": round(quantiles(result["gaps"], n=20)[-1], 1),
    }


def computing(
    browser: Any, explanation: Explanation, layer: int | None, folder: Path
) -> dict[str, Any]:
    """Seconds until the page has the flow of positions that were not computed in advance."""
    file = explanation.to_html(folder / "flow.html", keep_heads=False)
    n_tokens = len(explanation.tokens)
    layer = layer or explanation.graph.n_layers
    found: dict[str, Any] = {"tokens": n_tokens, "layer": layer}
    for position in (n_tokens - 8, n_tokens // 2):
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        state = {"method": "flow", "layer": layer, "positions": [position]}
        page.goto(f"{file.as_uri()}#{quote(json.dumps(state))}")
        found[f"position {position}, opening the page"] = time_flow(page)
        page.get_by_test_id("token").nth(position - 1).click()
        found[f"position {position - 1}, selected then"] = time_flow(page)
        page.close()
    print(f"flow: {found}", flush=True)
    return found


def read_text(model: str, n_tokens: int) -> Explanation:
    """The first tokens of the project's README, read by a language model."""
    from attnflow import explain
    from attnflow.models.loading import load_model

    loaded = load_model(model)
    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    ids = loaded.tokenizer(text)["input_ids"][:n_tokens]
    explanation: Explanation = explain(ids, loaded, keep_heads=False)
    return explanation


def main() -> None:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--frames", type=int, default=360, help="frames of hovering a view")
    parser.add_argument("--model", help="a language model, for the flow that the page computes")
    parser.add_argument("--tokens", default="512", help="of these texts, such as 512,1024")
    parser.add_argument("--layers", help="at which flow is computed, such as 5,15; the last")
    parser.add_argument("--only-flow", action="store_true", help="measure only that; write nothing")
    options = parser.parse_args()
    chromium = os.environ.get("CHROMIUM") or "/usr/bin/chromium"
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        sizes = [int(n_tokens) for n_tokens in options.tokens.split(",")]
        layers = [int(layer) for layer in options.layers.split(",")] if options.layers else [None]
        flow = []
        for n_tokens in sizes:
            model = options.model
            read = read_text(model, n_tokens) if model else make_explanation(n_tokens, 1)
            flow += [computing(browser, read, layer, Path(folder)) for layer in layers]
        if options.only_flow:
            browser.close()
            return
        short = make_explanation(128, 12).to_html(Path(folder) / "128.html")
        long = make_explanation(512, 1).to_html(Path(folder) / "512.html")
        heads = make_explanation(512, 12, 4).to_html(Path(folder) / "heads.html", keep_heads=True)
        results = {
            "date": datetime.now(UTC).date().isoformat(),
            "machine": f"{platform.machine()}, {os.cpu_count()} processors, no GPU",
            "browser": f"Chromium {browser.version}",
            "hover": {
                "tokens": 128,
                "layers": LAYERS,
                "views": hovering(browser, short, options.frames),
            },
            "flow": flow,
            "switch": {"tokens": 512, "layers": LAYERS, "views": switching(browser, long, heads)},
        }
        browser.close()
    options.out.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
