"""How `make test` divides the tests between its workers, and what ends a run that stands still."""

from __future__ import annotations

import _thread
import contextlib
import importlib
import threading
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

# Files with a test so marked are a chain, which one worker runs: what measures time or memory while it trains, hosts
# and schedulers, made of names and ports that are there once, and a browser, which is started once.
CHAINS = ("train", "browser", "root")
# The order of files: the first worker goes through it from here, the others come from its end, and meet it where two
# trainings may run side by side or among files that train nothing.
ORDER = ("train", "beside", None, "browser", "root")
QUIET_S = 930  # longer than a test may take: faulthandler_timeout of pyproject.toml ends its worker before


@cache
def kind(file: Path) -> str | None:
    """Which of ORDER, by the text of the file: who gives out the tests has not collected them."""
    text = file.read_text()
    return next((name for name in ("root", "browser", "beside", "train") if f"pytest.mark.{name}" in text), None)


class FromBothEnds(LoadFileScheduling):
    """A worker is given a chain, or else a file, whose tests share fixtures."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        self._heard_s = time.monotonic()
        threading.Thread(target=self._watch, daemon=True).start()

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        found = kind(self.config.rootpath / file)
        return found if found in CHAINS else file

    def _assign_work_unit(self, node: Any) -> None:
        if node is not self.nodes[0]:
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        with contextlib.suppress(OSError):  # the worker has just crashed: remove_node will give its tests to others
            super()._assign_work_unit(node)

    def _reschedule(self, node: Any) -> None:
        """A worker begins a test when it knows the next one: it is given two, or told that there are no more.

        xdist 3.8 gives one file to a worker that replaces a crashed one; with one test in it the run never ends.
        """
        while node in self.registered_collections and not node.shutting_down:
            super()._reschedule(node)
            if self._pending_of(self.assigned_work[node]) >= 2:
                return

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        self._heard_s = time.monotonic()
        super().add_node_collection(node, collection)

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        self._heard_s = time.monotonic()
        super().mark_test_complete(node, item_index, duration)

    def remove_node(self, node: Any) -> str | None:
        """The test on which a worker crashed, if it has; the others get what it had not begun.

        xdist 3.8 would run that test again, and crash or wait for as long once more.
        """
        self._heard_s = time.monotonic()
        units = self.assigned_work.pop(node)
        left = [(scope, nodeid) for scope, unit in units.items() for nodeid, done in unit.items() if not done]
        for scope, nodeid in left[1:]:
            self.workqueue.setdefault(scope, {})[nodeid] = False
        if self.workqueue:
            for other in self.nodes:
                self._reschedule(other)
        return left[0][1] if left else None

    def _watch(self) -> None:
        """Ends a run, as Ctrl-C does, in which no worker has ended a test for QUIET_S, and says what they are at."""
        while time.monotonic() - self._heard_s < QUIET_S:
            time.sleep(1)
        plugin = self.config.pluginmanager.get_plugin
        with plugin("capturemanager").global_and_fixture_disabled():
            plugin("terminalreporter").write_line(f"\nno worker has ended a test for {QUIET_S} s: the run ends here")
            for line in self._at():
                plugin("terminalreporter").write_line(line)
        _thread.interrupt_main()

    def _at(self) -> Iterator[str]:
        """A line for each worker: the test that it has to end next."""
        for node, units in self.assigned_work.copy().items():
            left = (nodeid for unit in units.values() for nodeid, done in unit.items() if not done)
            yield f"{node.gateway.id} has not ended {next(left, 'its collection of the tests, or itself')}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Where all tests run, each worker compiles its share of their files first, and reads the others' when it collects.

    In a new checkout each would compile them all, which takes 20 s of CPU.
    """
    config = session.config
    given = getattr(config, "workerinput", None)
    if not given or config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    folders = [config.rootpath / path for path in config.getini("testpaths")]
    files = [file for folder in folders for file in sorted(folder.rglob("test_*.py"))]
    which, count = int(given["workerid"].removeprefix("gw")), given["workercount"]
    for file in files[which % count :: count]:
        with contextlib.suppress(Exception, pytest.skip.Exception):  # collecting it says what is wrong
            importlib.import_module(".".join(file.relative_to(config.rootpath).with_suffix("").parts))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a worker of pytest-xdist. What trains for minutes begins before shorter trainings, not alone at the end."""
    if not hasattr(config, "workerinput"):
        return
    long = {item.path for item in items if item.get_closest_marker("exhaustive")}

    def order(item: pytest.Item) -> tuple[int, bool]:
        of = kind(item.path)
        return ORDER.index(of), of == "beside" and item.path not in long

    items.sort(key=order)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """In the process that is asked for the tests."""
    return FromBothEnds(config, log) if config.getoption("dist") == "loadfile" else None
