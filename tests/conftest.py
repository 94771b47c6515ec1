"""What all tests share, and how `make test` divides them between its workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser import chromium

# Tests with such a mark are one chain, which one worker runs: real trainings take all cores, hosts and schedulers are
# made of names and ports that are there once, and a browser is started once. Longest chain first.
CHAINS = ("root", "train", "browser")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One browser for all tests: playwright starts once a process."""
    with chromium() as found:
        yield found


def chain(item: pytest.Item) -> str | None:
    return next((name for name in CHAINS if item.get_closest_marker(name)), None)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a worker of pytest-xdist: chains first, as nothing can be done beside the last one."""
    if not hasattr(config, "workerinput"):
        return
    for item in items:
        if name := chain(item):
            item.add_marker(pytest.mark.xdist_group(name))
    items.sort(key=lambda item: (*CHAINS, None).index(chain(item)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A chain, or a file: tests of one file share fixtures."""
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadGroupScheduling

    class ChainsAndFiles(LoadGroupScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return super()._split_scope(nodeid).split("::")[0]

    return ChainsAndFiles(config, log)
