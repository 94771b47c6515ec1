"""A way in a process of its own: its environment is its own, and its end is told."""

from __future__ import annotations

import os

import pytest

from harness.training.rules.own_process import in_own_process
from harness.training.rules.ways import Subject, Way

pytestmark = [pytest.mark.train, pytest.mark.ci]
PLANTED = "RINGSCOPE_TEST_PLANTED"


def planted(on: Subject) -> Way:
    """Samples by what the environment says; no steps are a fault, and a negative number ends the process."""

    def take(steps: int) -> int:
        if steps < 0:
            os._exit(7)
        if not steps:
            raise ValueError("no steps")
        return int(os.environ[PLANTED]) * steps * on.batch

    return take


def way(value: str) -> Way:
    pytest.importorskip("tensorflow")
    return in_own_process(__name__, "planted", Subject("mlp", 16, gpu=False), {PLANTED: value})


def test_the_way_sees_its_own_variables_and_nobody_else_does() -> None:
    pair = way("3"), way("5")
    assert [take(2) for take in pair] == [96, 160]
    assert PLANTED not in os.environ
    with pytest.raises(RuntimeError, match="ValueError: no steps"):
        pair[0](0)
    with pytest.raises(RuntimeError, match="the process of planted ended with code"):
        pair[0](1)
    with pytest.raises(RuntimeError, match="the process of planted ended with code 7"):
        pair[1](-1)
