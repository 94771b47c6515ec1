"""Who is slow, in what, and since when: faults planted in generated trainings of three hosts with four ranks each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import ringscope
from benchmarks.tables import timeline
from benchmarks.training import Shape
from profiles.ground.stats import lasting
from profiles.model.findings import Finding
from profiles.model.measures import Measures
from profiles.model.timeline import Timeline
from profiles.verdicts.outliers import _of_others
from tests.made.build import Build

MS, US = 1_000_000, 1_000
ALIKE = Shape(steps=24, kernels=12, gpus=12, processes=12, skew_ns=50, hidden_ns=150_000, feed_ns=100_000)


def on_hosts(timelines: list[Timeline], each: int = 4) -> list[Timeline]:
    return [
        replace(one, recording=replace(one.recording, path=f"rank{rank}.sqlite", host=f"node{rank // each}"))
        for rank, one in enumerate(timelines)
    ]


def measured(**faults) -> Measures:
    shape = replace(ALIKE, late_ns=2 * MS, **faults)
    return ringscope.measure(on_hosts([timeline(shape, range(rank, rank + 1)) for rank in range(12)]))


def first(**faults) -> Finding:
    return measured(**faults).findings[0]


def test_a_slow_gpu_is_the_first_finding_with_its_host_and_what_is_slow_on_it() -> None:
    found = first(slow_gpus=(6,))
    assert (found.code, found.gpu, found.evidence["scope"]) == ("slow-gpu", 6, "gpu")
    assert found.text.startswith("rank 6, GPU 6 on host node1 computes")
    assert found.cost_ns_per_step == 2 * MS and "since_step" not in found.evidence


def test_a_gpu_that_became_slow_is_told_with_the_step() -> None:
    found = first(slow_gpus=(6,), late_from=9)
    assert (found.gpu, found.evidence["since_step"]) == (6, 9)
    assert "from step 9 on" in found.text
    # 15 of the measured steps are slow.
    lost = 2 * MS * 15
    assert found.cost_ns_per_step == pytest.approx(lost / (24 - 1), rel=0.05)


def test_a_host_whose_gpus_are_all_slow_is_named_and_none_of_its_gpus() -> None:
    found = first(slow_gpus=(4, 5, 6, 7))
    assert (found.code, found.evidence["scope"], found.evidence["hosts"]) == ("slow-gpu", "host", ["node1"])
    assert "every GPU of host node1 (ranks 4 to 7)" in found.text and "cooling" in found.change
    assert found.evidence["gpus"] == [4, 5, 6, 7]


def test_some_gpus_of_some_hosts_are_no_host() -> None:
    found = first(slow_gpus=(4, 5, 9))
    assert found.evidence["scope"] == "gpus" and "ranks 4, 5, 9" in found.text


def test_a_gpu_whose_copies_are_slow_has_a_slow_link() -> None:
    found = first(slow_links=(9,))
    assert (found.code, found.gpu, found.evidence["link"]) == ("slow-link", 9, "host")
    assert "rank 9, GPU 9 on host node2" in found.text and "PCIe" in found.change
    # 600 us a copy on the others, 2 ms more here.
    assert found.evidence["gb_per_s"] / found.evidence["others_median_gb_per_s"] == pytest.approx(600 / 2600)
    assert found.cost_ns_per_step == pytest.approx(2 * MS, rel=0.05)


def test_copies_that_became_slow_are_told_with_the_step() -> None:
    found = first(slow_links=(9,), late_from=6)
    # A batch is copied between the last kernel of one step and the first of the next, where this one ends.
    assert found.code == "slow-link" and "from step 5 on" in found.text and found.evidence["since_step"] == 5


def test_a_host_whose_copies_are_all_slow_has_slow_memory() -> None:
    found = first(slow_links=(8, 9, 10, 11))
    assert (found.code, found.evidence["scope"]) == ("slow-link", "host")
    assert "every GPU of host node2" in found.text and "NUMA" in found.change


def test_nobody_is_slow_where_all_are_alike() -> None:
    codes = {
        finding.code
        for finding in ringscope.measure(
            on_hosts([timeline(ALIKE, range(rank, rank + 1)) for rank in range(12)])
        ).findings
    }
    assert not codes & {"slow-gpu", "slow-link", "slow-host", "straggler"}


def exchanging(slow: set[int], *, idle: set[int] = frozenset()) -> Measures:
    """Three hosts with four GPUs: GPU i of every host reduces with GPU i of the others, over a rail of its own.

    The calls of `slow` ranks take 2 ms longer. `idle` ranks' hosts launch each step 3 ms late.
    """
    made = []
    for rank in range(12):
        one = Build(device=0, pid=rank + 1, path=f"{rank}", rank=rank, rank_source="marks", origin_utc_ns=0)
        one.device(0, uuid=f"GPU-{rank}", name="GPU")
        now = 1000 * MS
        for step in range(15):
            late = 3 * MS if rank in idle else 0
            begins = now + late
            # Rails end at times of their own.
            end = now + 20 * MS + rank % 4 * 300 * US + (2 * MS if rank in slow else 0)
            one.mark(f"step {step}", now - 5 * MS, now + 29 * MS)
            one.kernel(begins, now + 14 * MS, "conv", call=(begins - 10 * US, begins) if late else (now - MS, now - MS))
            one.kernel(now + 14 * MS, end, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", call=(now - MS, now - MS + 10))
            one.kernel(end, now + 29 * MS + 990 * US, "update", call=(now - MS, now - MS + 20))
            now += 30 * MS
        made.append(one.timeline())
    return ringscope.measure(on_hosts(made))


def test_a_slow_rail_is_named_by_the_gpu_of_every_host() -> None:
    (found,) = (one for one in exchanging({2, 6, 10}).findings if one.code == "slow-link")
    assert (found.evidence["link"], found.evidence["scope"]) == ("network", "rail")
    assert "GPU 2 of every host (ranks 2, 6, 10)" in found.text and "ibstat" in found.change
    told = found.evidence["collective_ns_per_step"] - found.evidence["others_median_ns_per_step"]
    assert 2 * MS - 600 * US <= told <= 2 * MS + 600 * US


def test_rails_that_are_alike_have_no_slow_link() -> None:
    assert not [one for one in exchanging(set()).findings if one.code == "slow-link"]


def test_a_host_whose_gpus_all_wait_for_it_is_slow() -> None:
    (found,) = (one for one in exchanging(set(), idle={8, 9, 10, 11}).findings if one.code == "slow-host")
    assert "host node2 (ranks 8 to 11)" in found.text
    assert found.evidence["gpus"] == [8, 9, 10, 11]
    assert not [one for one in exchanging(set(), idle={8, 9}).findings if one.code == "slow-host"]


@pytest.mark.parametrize("count", [2, 3, 4, 7, 12])
def test_the_others_median_is_that_without_the_own_value(count: int) -> None:
    table = np.random.default_rng(count).integers(0, 5, (count, 9)).astype(float)
    expected = np.array([np.median(np.delete(table, place, axis=0), axis=0) for place in range(count)])
    assert (_of_others(table) == expected).all()


@pytest.mark.parametrize(
    ("flags", "first_of_them"),
    [("", None), ("0000", None), ("1111", 0), ("0111", 1), ("1110", None), ("0" * 5 + "1" * 9 + "0" + "1" * 9, 5)],
)
def test_what_lasts_holds_to_the_end_nine_times_of_ten(flags: str, first_of_them: int | None) -> None:
    assert lasting(np.array([flag == "1" for flag in flags], dtype=bool)) == first_of_them


@pytest.mark.parametrize(
    ("faults", "code", "gpu"),
    [
        ({"slow_gpus": (2,), "late_ns": 3 * MS}, "slow-gpu", 2),
        ({"slow_gpus": (1,), "late_ns": 3 * MS, "late_from": 10}, "slow-gpu", 1),
        ({"slow_links": (3,), "late_ns": 3 * MS}, "slow-link", 3),
        ({"feed_ns": 8 * MS}, "input-pipeline-slow", None),
        ({"h2d_ns": 6 * MS}, "prefetch-on-host-only", None),
        ({"collective_ns": 9 * MS}, "all-reduce-exposed", None),
        ({"turnaround_ns": 9 * US, "kernel_ns": 10 * US}, "short-kernels", None),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_what_is_planted_in_a_few_ranks_is_the_first_finding(faults: dict, code: str, gpu: int | None) -> None:
    """A slow link before what all ranks' copies would give, which is most of all the slow link's."""
    usual = Shape(steps=24, kernels=200, feed_ns=30_000, h2d_ns=500_000, skew_ns=50)
    shape = replace(usual, **faults)
    found = ringscope.measure([timeline(shape, range(rank, rank + 1)) for rank in range(4)]).findings[0]
    assert (found.code, found.gpu) == (code, gpu)
