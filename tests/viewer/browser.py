"""A real browser, and pages of the viewer in it.

The environment variable CHROMIUM names the browser; by default it is searched for. Without a
browser these tests are skipped, except in continuous integration (CI=true), where they fail.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnflow import Explanation
from attnflow.viewer.header import PAGE_METHODS

AXE = Path(__file__).parents[2] / "viewer" / "node_modules" / "axe-core" / "axe.min.js"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
NEXT_FRAME = "() => new Promise((done) => requestAnimationFrame(done))"
PATIENCE = 120  # seconds after which a test fails; passing tests never wait for it


def skip_or_fail(reason: str) -> None:
    """Skip the test, or fail in continuous integration."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason}, and with CI=true browser tests must run")
    pytest.skip(reason)


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser; its contexts share no data."""
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
    if not Path(path).exists():
        skip_or_fail("Chromium is missing: install it, or set CHROMIUM=/path/to/it")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


class ViewerPage:
    """A page with the viewer. console: its errors and warnings. requests: the URLs it loaded."""

    def __init__(self, browser: Any, *, network: bool, **options: Any) -> None:
        self.context = browser.new_context(
            viewport={"width": 1200, "height": 900}, accept_downloads=True, **options
        )
        self.console: list[str] = []
        self.requests: list[str] = []
        if not network:
            self.context.route(lambda url: not url.startswith("file:"), lambda route: route.abort())
        self.page = self.context.new_page()
        self.page.set_default_timeout(1000 * PATIENCE)
        self.page.on("console", self._record_message)
        self.page.on("pageerror", lambda error: self.console.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def _record_message(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.console.append(message.text)

    def close(self) -> None:
        """Close the page, and check that it reported no errors."""
        self.context.close()
        assert self.console == []

    def expect_scores(
        self,
        key: str,
        expected: Any,
        *,
        example: int = 0,
        within: Any = None,
        rtol: float = 2e-3,
    ) -> None:
        """Wait until the table of numbers has these scores under a key, token by token.

        The viewer fills the table after it has drawn everything else.
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

    def expect_explanation(
        self, explanation: Explanation, *, position: int, layer: int, example: int = 0
    ) -> None:
        """Wait until the table has the scores of a position by each method of the page."""
        for method in PAGE_METHODS:
            scores = explanation.attribute(method, layers=layer, positions=position).to_numpy()
            self.expect_scores(method, scores[0, 0], example=example)

    def wait_for(self, check: Callable[[], object]) -> None:
        """Repeat a check until it passes: it must not raise AssertionError or return False."""
        for _ in range(PATIENCE * 20):
            try:
                if check() is not False:
                    return
            except AssertionError:
                pass
            self.page.wait_for_timeout(50)
        assert check() is not False

    def wait_for_drawing(self) -> None:
        """Wait until the page has drawn the current state."""
        self.page.evaluate(NEXT_FRAME)
        self.page.evaluate(NEXT_FRAME)

    def press(self, *keys: str) -> None:
        """Press keys, and let the page draw after each."""
        for key in keys:
            self.page.keyboard.press(key)
            self.wait_for_drawing()

    def find_violations(self) -> list[str]:
        """Accessibility problems that axe-core finds."""
        if not AXE.exists():
            skip_or_fail("axe-core is not installed: run npm ci in the folder viewer")
        if not self.page.evaluate("typeof axe === 'object'"):
            self.page.evaluate(AXE.read_text(encoding="utf-8") + "; undefined")
        result = self.page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
        return [
            f"{violation['id']}: {node['target']} {node['failureSummary']}"
            for violation in result["violations"]
            for node in violation["nodes"]
        ]
