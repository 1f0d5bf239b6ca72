"""A real browser, and reading back what it shows.

Chromium is found by the variable CHROMIUM, or where Debian puts it. Without one these tests are
skipped, but not where CI says that they must run.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

AXE = Path(__file__).parents[2] / "viewer" / "node_modules" / "axe-core" / "axe.min.js"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
MUST_RUN = os.environ.get("CI") == "true"


def skip_or_fail(reason: str) -> None:
    """Skip the test, unless CI says that it must run."""
    if MUST_RUN:
        pytest.fail(f"{reason}, and CI is true, so that browser tests must run")
    pytest.skip(reason)


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser with a profile of its own; contexts of it share nothing."""
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
    if not Path(path).exists():
        skip_or_fail("there is no Chromium: install it, or say where it is with CHROMIUM=/path")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


class Watched:
    """A page, what it complained about, and what it asked the network for."""

    def __init__(self, browser: Any, *, network: bool, **options: Any) -> None:
        self.context = browser.new_context(
            viewport={"width": 1200, "height": 900}, accept_downloads=True, **options
        )
        self.complaints: list[str] = []
        self.requests: list[str] = []
        if not network:
            self.context.route(lambda url: not url.startswith("file:"), lambda route: route.abort())
        self.page = self.context.new_page()
        self.page.set_default_timeout(60_000)
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def close(self) -> None:
        """Close it; nothing may have been complained about."""
        self.context.close()
        assert self.complaints == []

    def expect(
        self,
        key: str,
        expected: Any,
        *,
        example: int = 0,
        within: Any = None,
        rtol: float = 2e-3,
    ) -> None:
        """Wait until the table of numbers has these scores under a key, token by token.

        The viewer fills the table when things have settled, so that it may be late, but not wrong.
        """
        cells = (within or self.page).locator(
            f'[data-testid=numbers][data-example="{example}"] td[data-key="{key}"]'
        )
        script = "cells => cells.map((cell) => Number(cell.dataset.value))"
        self.wait_for(
            lambda: np.testing.assert_allclose(
                cells.evaluate_all(script), expected, rtol=rtol, atol=1e-5, err_msg=key
            )
        )

    def wait_for(self, check: Callable[[], None], seconds: float = 60.0) -> None:
        """Wait until a check holds; afterwards its own failure is raised."""
        for _ in range(int(seconds / 0.05)):
            try:
                return check()
            except AssertionError:
                self.page.wait_for_timeout(50)
        return check()

    def press(self, *keys: str) -> None:
        """Press keys, and let the page draw after each."""
        for key in keys:
            self.page.keyboard.press(key)
            self.page.evaluate("() => new Promise((done) => requestAnimationFrame(done))")
            self.page.evaluate("() => new Promise((done) => requestAnimationFrame(done))")

    def axe(self) -> list[str]:
        """What axe-core finds wrong, in words."""
        if not AXE.exists():
            skip_or_fail("axe-core is not installed: run npm ci in the folder viewer")
        if not self.page.evaluate("typeof axe === 'object'"):
            self.page.evaluate(AXE.read_text(encoding="utf-8") + "; undefined")
        result = self.page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
        return [
            f"{found['id']}: {node['target']} {node['failureSummary']}"
            for found in result["violations"]
            for node in found["nodes"]
        ]
