"""Idle time until managed memory moves is of the side that touches it, and so is the remedy."""

from __future__ import annotations

import pytest

from profiles import analyse
from profiles.model.findings import Finding
from profiles.model.measures import Measures
from tests.made.build import Build
from tests.profiles.verdicts.test_people import MS, US

PAGE = 2 << 20


def touched(kind: str, *, pages: int = 100, idle_us: int = 90, called: bool = False) -> Measures:
    """A kernel, then a page each 100 us that moves because the host (`d2h`) or the next kernel (`h2d`) touches it."""
    made, now = Build(), 2 * MS
    made.kernel(MS, now, call=(MS - 30 * US, MS - 20 * US))
    ends = {"h2d": ("managed", "device"), "d2h": ("device", "managed")}[kind]
    for _ in range(pages):
        now += idle_us * US
        call = {"call": (now - 9 * US, now - 5 * US), "api": "cudaMemPrefetchAsync_v8000"} if called else {}
        made.copy(kind, now, now + 10 * US, PAGE, src_kind=ends[0], dst_kind=ends[1], **call)
        now += 10 * US
    made.kernel(now + 5 * US, now + MS, call=(now - 30 * US, now - 20 * US))
    return analyse([made.timeline()]).measures


def moving(measures: Measures) -> Finding:
    return next(one for one in measures.findings if one.code == "managed-memory-moves")


@pytest.mark.parametrize("kind", ["h2d", "d2h"])
def test_idle_time_until_a_page_moves_is_priced_by_its_direction(kind: str) -> None:
    measures = touched(kind)
    (gpu,) = measures.gpus
    assert {name: one.managed_idle_ns for name, one in gpu.copies.items() if one.managed_idle_ns} == {kind: 9 * MS}
    assert gpu.ledger_ns["idle_unknown"] == 9 * MS
    first, found = measures.findings[0], moving(measures)
    assert first is found
    assert found.saved_ns == {kind: MS, "idle_unknown": 9 * MS}


@pytest.mark.parametrize(("kind", "to_host"), [("h2d", False), ("d2h", True)])
def test_what_the_host_reads_is_not_to_be_prefetched_to_the_gpu(kind: str, to_host: bool) -> None:
    found = moving(touched(kind))
    assert ("cudaCpuDeviceId" in found.change) is to_host
    assert found.evidence["managed_idle_ns"] == 9 * MS


def test_pages_that_a_call_asked_for_were_prefetched() -> None:
    measures = touched("d2h", called=True)
    (gpu,) = measures.gpus
    assert gpu.copies["d2h"].managed_idle_ns == 0 and gpu.copies["d2h"].managed_share == 0.0
    assert "managed-memory-moves" not in {one.code for one in measures.findings}


def test_idle_time_until_something_else_without_a_call_is_not_the_pages() -> None:
    made = Build()
    made.kernel(0, MS, call=(-30 * US, -20 * US))
    made.copy("d2h", 3 * MS, 4 * MS, PAGE, dst_kind="pageable")
    made.copy("d2h", 6 * MS, 7 * MS, PAGE, dst_kind="managed")
    made.kernel(9 * MS, 10 * MS)
    (gpu,) = analyse([made.timeline()]).measures.gpus
    assert gpu.ledger_ns["idle_unknown"] == 6 * MS and gpu.copies["d2h"].managed_idle_ns == 2 * MS
