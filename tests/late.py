"""What is left at minute 20 of `.ci/run`, and how fast the machine is: RINGSCOPE_CI_BEGAN, its begin, asks for it."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterable

import pytest

REPORT_S = 20 * 60
FILES = 12  # that are named


class Late:
    """In the process that is asked for the tests, not in workers of pytest-xdist."""

    def __init__(self, config: pytest.Config, began_s: float) -> None:
        self._config = config
        self._began_s, self._setup_s = began_s, time.time() - began_s
        self._left: set[str] = set()
        self._running: dict[str, float] = {}
        self._all = 0
        self._timer: threading.Timer | None = None

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Iterable[str]) -> None:
        self._collected(ids)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._collected(item.nodeid for item in session.items)

    def _collected(self, ids: Iterable[str]) -> None:
        if not self._timer:  # workers collect the same
            self._left = set(ids)
            self._all = len(self._left)
            self._timer = threading.Timer(max(0.0, self._began_s + REPORT_S - time.time()), self._say)
            self._timer.daemon = True
            self._timer.start()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._running[nodeid] = time.time()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._left.discard(nodeid)
        self._running.pop(nodeid, None)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer.join()  # lines that have begun are written to the end

    def _say(self) -> None:
        running_s = {nodeid: time.time() - began_s for nodeid, began_s in self._running.copy().items()}
        lines = report(self._left.copy(), self._all, running_s, self._setup_s)
        plugin = self._config.pluginmanager.get_plugin
        with plugin("capturemanager").global_and_fixture_disabled():
            for line in ("", *lines):
                plugin("terminalreporter").write_line(line)


def report(left: set[str], every: int, running_s: dict[str, float], setup_s: float) -> list[str]:
    """Lines: how many tests are left and of which files, what runs and since when, and how fast the machine is."""
    files = Counter(nodeid.partition("::")[0] for nodeid in left)
    named = ", ".join(f"{file} {count}" for file, count in files.most_common(FILES))
    more = f" and {len(files) - FILES} files more" if len(files) > FILES else ""
    return [
        f"late: {len(left)} of {every} tests are left: {named}{more}",
        *(f"late: {nodeid} has been running for {seconds:.0f} s" for nodeid, seconds in running_s.items()),
        f"late: the tests began after {setup_s:.0f} s; {machine()}",
    ]


def machine() -> str:
    """How fast it is now, by a fixed loop."""
    began_s, cpu_s = time.perf_counter(), time.thread_time()
    total = 0
    for i in range(10_000_000):
        total += i
    taken_s, cpu_s = time.perf_counter() - began_s, time.thread_time() - cpu_s
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    return f"a loop of 0.3 s takes {cpu_s:.2f} s of CPU and {taken_s:.2f} s of time here, {load}"


def pytest_configure(config: pytest.Config) -> None:
    began = os.environ.pop("RINGSCOPE_CI_BEGAN", None)  # which is not for runs that tests begin
    if began and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Late(config, float(began)))
