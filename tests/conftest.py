"""What all tests share, and how `make test` divides them between its workers."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.browser import chromium

pytest_plugins = ("tests.tiers", "tests.late")

# Workers of pytest-xdist have one, of 80: what is printed would be as wide as that.
os.environ.pop("COLUMNS", None)

# Tests train for some steps: LLVM's optimisation takes more CPU than it saves, half of what XLA takes to compile, and
# so does the newer of XLA's two ways to make code for CPUs, a quarter of what scripts by people take.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false")

# A job in a shell's background ignores Ctrl-C, and so would everything that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine fails no test: hypothesis would after 200 ms an example.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

# Files with a test so marked are a chain, which one worker runs: what measures time or memory while it trains, hosts
# and schedulers, made of names and ports that are there once, and a browser, which is started once.
CHAINS = ("train", "browser", "root")
# The order of files: the first worker goes through it from here, the others come from its end, and meet it where two
# trainings may run side by side or among files that train nothing.
ORDER = ("train", "beside", None, "browser", "root")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One browser for all tests: playwright starts once a process."""
    with chromium() as found:
        yield found


@cache
def kind(file: Path) -> str | None:
    """Which of ORDER, by the text of the file: who gives out the tests has not collected them."""
    text = file.read_text()
    return next((name for name in ("root", "browser", "beside", "train") if f"pytest.mark.{name}" in text), None)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a worker of pytest-xdist."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: ORDER.index(kind(item.path)))


def pytest_collection_finish() -> None:
    """What was imported stays: no garbage collection need look through TensorFlow and all tests again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A worker is given a chain, or else a file, whose tests share fixtures."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class FromBothEnds(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            found = kind(config.rootpath / file)
            return found if found in CHAINS else file

        def remove_node(self, node: Any) -> str | None:
            """A worker has crashed: what it had done is not given out again, for who has nothing to do never asks."""
            units = self.assigned_work[node]
            for done in [scope for scope, unit in units.items() if all(unit.values())]:
                del units[done]
            return super().remove_node(node)

        def _assign_work_unit(self, node: Any) -> None:
            if node is not self.nodes[0]:
                self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
            super()._assign_work_unit(node)

    return FromBothEnds(config, log)
