"""What all tests share, and how `make test` divides them between its workers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.browser import chromium

# Workers of pytest-xdist have one, of 80: what is printed would be as wide as that.
os.environ.pop("COLUMNS", None)

# A busy machine fails no test: hypothesis would after 200 ms an example.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

# Files with a test so marked are one chain, which one worker runs: real trainings take all cores, hosts and schedulers
# are made of names and ports that are there once, and a browser is started once. Longest chain first.
CHAINS = ("root", "train", "browser")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One browser for all tests: playwright starts once a process."""
    with chromium() as found:
        yield found


@cache
def chain(file: Path) -> str | None:
    """By the text of the file: who gives out the tests has not collected them."""
    text = file.read_text()
    return next((name for name in CHAINS if f"pytest.mark.{name}" in text), None)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a worker of pytest-xdist: chains first, as nothing can be done beside the last one."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: (*CHAINS, None).index(chain(item.path)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A worker is given a chain, or else a file, whose tests share fixtures."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ChainsAndFiles(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return chain(config.rootpath / file) or file

    return ChainsAndFiles(config, log)
