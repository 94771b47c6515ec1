"""Collectives by kind and size: how fast each moved its bytes, against sums made here."""

from __future__ import annotations

import pytest

from profiles import analyse
from profiles.model.collectives import OfSize
from tests.made.build import Build

US = 1_000
REDUCED = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
GATHERED = "ncclDevKernel_AllGather_RING_LL"


def rank(number: int, late_us: int = 0) -> Build:
    """Five rounds of an all-reduce of 1 MB and one of 8 MB and a gather of 1 MB; 100, 200 and 50 us from the last
    rank's arrival, this one's being `late_us` after the others'."""
    made = Build(path=f"rank{number}.sqlite", rank=number, rank_source="marks")
    made.device(0, uuid=f"gpu {number}")
    now = 1_000 * US
    for _ in range(5):
        made.kernel(now, now + 500 * US, "work", call=(now - 3 * US, now - 2 * US))
        now += 600 * US
        for name, size, lasts in ((REDUCED, 1 << 20, 100), (REDUCED, 8 << 20, 200), (GATHERED, 1 << 20, 50)):
            kind = "ncclAllReduce" if name == REDUCED else "ncclAllGather"
            made.exchange(kind, now - 20 * US, now - 5 * US, size, library="NCCL")
            start = now + late_us * US
            made.kernel(start, now + (40 + lasts) * US, name, stream=9, call=(now - 10 * US, now - 9 * US))
            now += 400 * US
    return made


def sizes(*made: Build) -> list[list[OfSize]]:
    return [gpu.collectives.by_size for gpu in analyse([one.timeline() for one in made]).measures.gpus]


def test_a_rate_is_of_the_transfer_and_the_bus_bandwidth_is_nccl_tests() -> None:
    for own, late in zip(sizes(rank(0), rank(1, 40)), (0, 40), strict=True):
        told = {(one.kind, one.bytes): one for one in own}
        assert set(told) == {("all_reduce", 1 << 20), ("all_reduce", 8 << 20), ("all_gather", 1 << 20)}
        for (kind, size), one in told.items():
            lasts = {("all_reduce", 1 << 20): 100, ("all_reduce", 8 << 20): 200}.get((kind, size), 50)
            assert (one.count, one.transfer_ns, one.lasted_ns) == (5, 5 * lasts * US, 5 * (lasts + 40 - late) * US)
            assert one.gb_per_s == pytest.approx(size / (lasts * US))
            assert one.bus_gb_per_s == (pytest.approx(size / (lasts * US)) if kind == "all_reduce" else None)


def test_of_one_rank_alone_the_rate_is_over_all_of_its_time() -> None:
    ((first, *others),) = sizes(rank(0))
    assert len(others) == 2 and first.bytes == 8 << 20
    assert (first.transfer_ns, first.bus_gb_per_s) == (None, None)
    assert first.gb_per_s == pytest.approx((8 << 20) / (240 * US))
