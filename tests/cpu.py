"""CPU seconds of each test, for tests/seconds.csv: `pytest -p tests.cpu --cpu-seconds FILE`, one process.

A test is charged with all processes, its own and those that live on; the first of a file also with its fixtures.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest


def taken_s() -> float:
    """What this process and all it has started have taken."""
    own = psutil.Process()
    seconds = 0.0
    for process in [own, *own.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            seconds += sum(process.cpu_times()[:4])  # user, system, and of ended children
    return seconds


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu-seconds", metavar="FILE", default="cpu.csv")


class Clock:
    def __init__(self, path: Path) -> None:
        self._file, self._before = path.open("w"), taken_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        found = yield
        print(f"{taken_s() - self._before:.2f},{item.nodeid}", file=self._file, flush=True)
        self._before = taken_s()
        return found


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Clock(Path(config.getoption("cpu_seconds"))))
