"""Processes beside a job end with it, with all that they started, and say in one line what went wrong."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.processes.helpers import Helpers
from profiles.ground.errors import RingscopeError
from tests.harness.running import PATIENCE_S, carrying, wait_until

FAMILY = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"


def test_all_of_a_group_end_with_it_grandchildren_included(mark: str, tmp_path: Path) -> None:
    with Helpers(most=2) as helpers:
        for number in range(2):
            helpers.start([sys.executable, "-c", FAMILY], tmp_path / f"{number}.log", {"RINGSCOPE_TEST": mark})
        # Keeper, child, grandchild: twice.
        wait_until(lambda: len(carrying(mark)) == 6, PATIENCE_S, lambda: carrying(mark))
    wait_until(lambda: not carrying(mark), PATIENCE_S, lambda: carrying(mark))


def test_one_that_fails_is_said_with_its_last_words(tmp_path: Path) -> None:
    failing = [sys.executable, "-c", "print('first'); print('no such model'); raise SystemExit(3)"]
    with Helpers() as helpers:
        helpers.start(failing, tmp_path / "log")
        with pytest.raises(RingscopeError, match="the server: ended with 3: no such model; see .*log"):
            helpers.until(lambda: False, PATIENCE_S, "the server")
    with Helpers() as helpers:
        helpers.start(failing, tmp_path / "log")
        with pytest.raises(RingscopeError, match="ended with 3"):
            helpers.ended(PATIENCE_S, "the load")


def test_a_limit_is_kept(tmp_path: Path) -> None:
    with Helpers() as helpers:
        helpers.start([sys.executable, "-c", "import time; time.sleep(600)"], tmp_path / "log")
        with pytest.raises(RingscopeError, match="the server: not ready within 0.3 s"):
            helpers.until(lambda: False, 0.3, "the server")
        with pytest.raises(RingscopeError, match="the load: not done within 0.3 s"):
            helpers.ended(0.3, "the load")


def test_what_ends_well_raises_nothing(tmp_path: Path) -> None:
    with Helpers() as helpers:
        helpers.start([sys.executable, "-c", f"open({str(tmp_path / 'done')!r}, 'w')"], tmp_path / "log")
        helpers.ended(PATIENCE_S, "it")
    assert (tmp_path / "done").exists()
