"""A real headless Chromium and a web server on loopback, for the tests of what people open in a browser."""

from __future__ import annotations

import functools
import http.server
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium")
PATIENCE_S = 240  # a busy machine fails no test
# Without the networking flags Chromium looks for its maker's hosts at every start.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser; the test is skipped where Debian's chromium or playwright is not installed."""
    playwright = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("needs Debian's package chromium")
    with playwright.sync_playwright() as session:
        browser = session.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        new_page = browser.new_page

        def patient_page(**options: Any) -> Any:
            page = new_page(**options)
            page.set_default_timeout(PATIENCE_S * 1000)
            return page

        browser.new_page = patient_page
        try:
            yield browser
        finally:
            browser.close()


def wait_until(page: Any, expression: str, argument: Any = None, *, timeout_s: float = PATIENCE_S) -> None:
    """Ask the page until `expression` holds. Playwright's own wait evaluates text inside the page, whose policy
    forbids that."""
    until = time.monotonic() + timeout_s
    while not page.evaluate(expression, argument):
        assert time.monotonic() < until, f"not within {timeout_s} s: {expression}"
        time.sleep(0.02)


@contextmanager
def served(folder: Path, extra: dict[str, Path]) -> Iterator[str]:
    """The address that `folder` is served at, with the files of `extra` at their paths (`/trace.gz`) beside it."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def translate_path(self, path: str) -> str:
            beside = extra.get(path.split("?")[0])
            return str(beside) if beside else super().translate_path(path)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
