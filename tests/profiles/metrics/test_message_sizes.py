"""Bytes of collectives and their bus bandwidth: plain loops on random requests, plain SQL on real recordings."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache

import pytest

from profiles import measure, read
from profiles.gpus.gather import gather
from profiles.metrics import collectives, message_sizes
from profiles.model.measures import Measures
from tests.made.build import Build
from tests.recordings import DATA, rows

ALL_REDUCE, GATHER = "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "ncclDevKernel_AllGather_RING_LL"
MS = 1_000_000


def moved(made: Build) -> list[tuple[int, bool]]:
    timeline = made.timeline()
    (gpu,) = gather([timeline])
    found = message_sizes.moved([timeline], [0], gpu, collectives.of(gpu))
    return list(zip(found.bytes.tolist(), found.all_reduce.tolist(), strict=True))


def test_a_kernel_in_which_several_tensors_travel_moves_the_bytes_of_all():
    made = Build()
    made.kernel(500, 900, ALL_REDUCE, call=(300, 310))
    made.kernel(1500, 1900, ALL_REDUCE, call=(1300, 1310))
    for start, end, size in ((100, 320, 8), (150, 321, 16), (1200, 1320, 32), (20, 90, 999), (1311, 1330, 999)):
        made.exchange("HorovodAllreduce", start, end, size)
    assert moved(made) == [(24, True), (32, True)]


def test_a_range_over_several_launches_belongs_to_the_last():
    made = Build()
    made.kernel(500, 900, ALL_REDUCE, call=(300, 310))
    made.kernel(900, 950, ALL_REDUCE, call=(400, 410))
    made.exchange("HorovodAllreduce", 100, 320, 8)
    made.exchange("HorovodAllreduce", 200, 420, 16)
    assert moved(made) == [(8, True), (16, True)]


def test_bytes_that_are_not_all_told_are_not_told():
    made = Build()
    made.kernel(500, 900, ALL_REDUCE, call=(300, 310))
    made.kernel(1500, 1900, ALL_REDUCE, call=(1300, 1310))
    made.kernel(2500, 2900, ALL_REDUCE, call=(2300, 2310))
    made.kernel(3500, 3900, ALL_REDUCE)  # its launch call is not known
    made.exchange("HorovodAllreduce", 1200, 1320, 8)
    made.exchange("HorovodAllreduce", 2200, None, 8)
    made.exchange("HorovodAllreduce", 2200, 2400, 8)
    assert moved(made) == [(-1, False), (8, True), (-1, False), (-1, False)]


def test_nccls_word_counts_where_it_tells_as_much_as_horovods():
    made = Build()
    made.kernel(500, 900, ALL_REDUCE, call=(300, 310), tid=4)
    made.kernel(1500, 1900, GATHER, call=(1300, 1310), tid=4)
    for at in (0, 1000):
        made.exchange("HorovodAllreduce", at + 100, at + 320, 7)
    made.exchange("ncclAllReduce", 290, 312, 8, library="NCCL", tid=4)
    assert moved(made) == [(7, True), (7, True)]
    made.exchange("ncclAllReduce", 1290, 1312, 9, library="NCCL", tid=5)  # another thread's
    assert moved(made) == [(7, True), (7, True)]
    made.exchange("ncclAllGather", 1290, 1312, 10, library="NCCL", tid=4)
    assert moved(made) == [(8, True), (10, False)]


@pytest.mark.parametrize("seed", range(20))
def test_the_bytes_of_a_run_are_those_of_plain_loops_over_its_requests(seed: int):
    """Tensors are asked for at random, wait, and travel several to a kernel, one kernel after the other."""
    chance, made, now = random.Random(seed), Build(), 1000
    expected, waiting = [], []
    for _ in range(30):
        for _ in range(chance.randint(1, 4)):
            now += chance.randint(1, 40)
            waiting.append((now, chance.randint(1, 1 << 20)))
        now += chance.randint(1, 40)
        travelling = [one for one in waiting if one is waiting[0] or chance.random() < 0.7]
        waiting = [one for one in waiting if one not in travelling]
        made.kernel(now + 5000, now + 9000, ALL_REDUCE, call=(now, now + 10), stream=chance.randint(1, 3))
        now += 10
        for asked, size in travelling:
            made.exchange("HorovodAllreduce", asked, now + chance.randint(1, 5), size)
        now += 6
        expected.append(sum(size for _, size in travelling))
    assert [size for size, _ in moved(made)] == expected


# ---- bandwidth


def run(ranks: int, told: int | None = None, names=(ALL_REDUCE,), by_format: int | None = None) -> Measures:
    """12 steps in which `ranks` GPUs move 1 GB in 10 ms, of which rank 0 waits for 3 ms. `told`, `by_format`: the
    number of the run's ranks, by marks and by the format."""
    builds = []
    for rank in range(ranks):
        made = Build(pid=rank + 1, device=rank, rank=rank, origin_utc_ns=0, ranks=by_format)
        if told:
            made.mark(f"rank {rank} of {told}", 0, 1)
        for step in range(12):
            began = 10 * MS + step * 100 * MS
            made.mark(f"step {step}", began - 5 * MS, began + 95 * MS)
            made.kernel(began, began + 20 * MS, "forward", call=(began - 4 * MS, began - 3 * MS))
            for number, name in enumerate(names):
                at = began + (30 + 20 * number) * MS
                arrives = at + (0 if rank == 0 else 3 * MS)
                made.kernel(arrives, at + 13 * MS, name, call=(arrives - MS, arrives - MS + 9))
                made.exchange(name.replace("DevKernel_", ""), arrives - 2 * MS, arrives, 10**9)
        builds.append(made)
    return measure([made.timeline() for made in builds])


def test_ranks_that_the_format_tells_may_be_in_other_groups_and_change_no_bandwidth():
    measures = run(2, by_format=8)
    assert "ranks-missing" in {doubt.code for doubt in measures.doubts}
    assert [gpu.collectives.bus_gb_per_s for gpu in measures.gpus] == [pytest.approx(100)] * 2


@pytest.mark.parametrize(("ranks", "told", "factor"), [(2, None, 1), (4, None, 1.5), (2, 8, 1.75)])
def test_bus_bandwidth_is_that_of_nccl_tests(ranks: int, told: int | None, factor: float):
    """1 GB in 10 ms is 100 GB/s of data, and each link carries 2 (n - 1)/n of it, n being all ranks of the run."""
    measures = run(ranks, told)
    for gpu in measures.gpus:
        assert gpu.collectives.bytes_per_step == 10**9
        assert gpu.collectives.bus_gb_per_s == pytest.approx(100 * factor)
    assert "collective-bytes-unknown" not in {doubt.code for doubt in measures.doubts}


def test_only_all_reduces_make_the_bus_bandwidth():
    for gpu in run(2, names=(ALL_REDUCE, GATHER)).gpus:
        assert gpu.collectives.bytes_per_step == 2 * 10**9
        assert gpu.collectives.bus_gb_per_s == pytest.approx(100)
    for gpu in run(2, names=(GATHER,)).gpus:
        assert (gpu.collectives.bytes_per_step, gpu.collectives.bus_gb_per_s) == (10**9, None)


@cache
def measured(name: str) -> Measures:
    return measure([read(DATA / f"{name}.rank{rank}.sqlite.xz") for rank in (0, 1)], window="steps")


@pytest.mark.parametrize(
    ("name", "gradient_bytes"),
    [
        ("resnet50-2gpu-device", 25_583_592 * 4),
        ("resnet50-2gpu-prefetch", 25_583_592 * 4),
        ("resnet50-2gpu-in-stream", 25_583_592 * 2),
        ("vgg16-2gpu-pinned", 138_357_544 * 4),
        ("dense41m-2gpu-pinned", 41_157_101 * 4),
    ],
)
def test_the_bus_bandwidth_of_a_real_run_is_that_of_plain_sql(name: str, gradient_bytes: int):
    """Real: two H200s, gradients as float32 or float16; calls are paired by their ends on the UTC clock."""
    ends: list[list[tuple[int, int]]] = []
    for rank in (0, 1):
        path = DATA / f"{name}.rank{rank}.sqlite.xz"
        ((utc,),) = rows(path, "SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME")
        sql = 'SELECT start, "end" FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.demangledName'
        ends.append([(a + utc, b + utc) for a, b in rows(path, f"{sql} WHERE s.value LIKE 'nccl%' ORDER BY start")])
    found = measured(name)
    for rank, gpu in enumerate(found.gpus):
        ((utc,),) = rows(DATA / f"{name}.rank{rank}.sqlite.xz", "SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME")
        window = [time + utc for time in gpu.window_ns]
        took = []
        for start, end in ends[rank]:
            if window[0] <= start < window[1]:
                other, _ = min(ends[1 - rank], key=lambda call: abs(call[1] - end))
                took.append(end - max(start, min(other, end)))
        assert gpu.collectives.count == len(took) > 3
        assert gpu.collectives.transfer_ns == sum(took)
        assert gpu.collectives.bytes_per_step == gradient_bytes
        assert gpu.collectives.bus_gb_per_s == pytest.approx(len(took) * gradient_bytes / sum(took))
        assert 200 < gpu.collectives.bus_gb_per_s < 450  # what NVLink of an H200 carries one way, in GB/s


def test_both_libraries_tell_of_the_same_bytes_in_a_real_run():
    """Real: rank 0 of four, exported with NCCL's payloads."""
    timeline = read(DATA / "resnet50-4gpu-pinned.rank0.sqlite.xz")
    (gpu,) = gather([timeline])
    found = {}
    for library in ("NCCL", "Horovod"):
        only = timeline.exchanges[timeline.exchanges["library"] == library]
        one = message_sizes.moved([replace(timeline, exchanges=only)], [0], gpu, collectives.of(gpu))
        found[library] = one.bytes.tolist(), one.all_reduce.tolist()
    # The slice cut through the ranges of the first two.
    assert found["NCCL"] == found["Horovod"] == ([-1] * 2 + [25_583_592 * 2] * 7, [False] * 2 + [True] * 7)
    (measured_gpu,) = measure(timeline).gpus
    assert measured_gpu.collectives.bytes_per_step == 25_583_592 * 2
    assert measured_gpu.collectives.bus_gb_per_s is None  # one rank alone tells nothing of the transfer
