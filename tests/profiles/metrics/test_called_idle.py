"""A copy to the GPU whose call waits for it owns the idle time from that call to its start, whatever its causes."""

from __future__ import annotations

import pytest

from profiles import analyse
from profiles.model.measures import GpuMeasures
from tests.made.build import Build
from tests.profiles.verdicts.test_people import MS, US, findings

STEPS = 40  # of fewer kernels in all nothing follows


def stepping(*, api: str = "cudaMemcpy_v3020", size: int = 80, staged_us: int = 2000) -> Build:
    """Each step copies two small inputs by calls that block: the first returns before its copy starts, the second when
    its own has ended; each copy starts `staged_us` after the GPU ran dry."""
    made, now = Build(), 10 * MS
    for number in range(STEPS):
        made.mark(f"step {number}", now, now + 5 * MS)
        made.kernel(now, now + 100 * US, call=(now - 8 * US, now - 5 * US) if number else (now - 9 * US, now))
        dry = now + 100 * US
        first, second = dry + staged_us * US, dry + 2 * staged_us * US + 5 * US
        made.copy("h2d", first, first + 5 * US, size, call=(dry + 10 * US, dry + 20 * US), api=api, stream=8)
        made.copy("h2d", second, second + 5 * US, size, call=(dry + 30 * US, second + 6 * US), api=api, stream=8)
        now = second + 20 * US
    return made


def measured(made: Build) -> GpuMeasures:
    return analyse([made.timeline()], window="capture").measures.gpus[0]


@pytest.mark.parametrize("api", ["cudaMemcpy_v3020", "cuMemcpyHtoD_v2", "hipMemcpyWithStream"])
def test_idle_time_from_the_call_to_the_start_of_a_copy_is_counted_by_cause(api: str) -> None:
    gpu = measured(stepping(api=api))
    assert gpu.copies["h2d"].called_idle_ns == {
        "idle_launch": STEPS * (2000 - 10) * US,  # the first: called after the GPU ran dry
        "idle_wait": STEPS * 2000 * US,  # the second: called before that
    }
    assert gpu.ledger_ns["idle_wait"] == STEPS * 2000 * US


def test_a_blocking_copy_is_one_finding_and_comes_first() -> None:
    found = findings(stepping())
    first = next(iter(found.values()))
    assert first.code == "copies-synchronous"
    assert first.saved_ns["idle_launch"] + first.saved_ns["idle_wait"] >= 0.9 * (STEPS - 4) * 4 * MS
    assert {"launched-work-waits", "launch-bound", "python-in-the-loop"} & set(found) == set()


@pytest.mark.parametrize("api", ["cudaMemcpyAsync_v3020", "cuMemcpyHtoDAsync_v2", "cudaGraphLaunch_v10000"])
def test_copies_that_no_call_waits_for_have_none(api: str) -> None:
    gpu = measured(stepping(api=api))
    assert gpu.copies["h2d"].called_idle_ns == {} and "copies-synchronous" not in findings(stepping(api=api))


def test_small_copies_that_nothing_waits_for_are_no_finding() -> None:
    assert "copies-synchronous" not in findings(stepping(staged_us=6))
