"""Launch idle while Horovod waits for other ranks: hand-built runs, and plain loops over real recordings."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

import profiles
from profiles import read
from profiles.gpus.gather import gather
from profiles.steps.find import find
from tests.made.bruteforce import BruteForce
from tests.made.build import Build
from tests.recordings import DATA, rows
from tests.tiers import few

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
MS = 1_000_000
STEPS, STEP_MS = 12, 100


def run(*, ready_ms: tuple[int, ...] = (20, 60), told: bool = True, extra: bool = False) -> Any:
    """Steps in which rank k hands its gradients in at ready_ms[k]; all launch their all-reduce at 62 ms.

    `extra`: another kernel is launched late, inside of the range, before the all-reduce.
    """
    timelines = []
    for rank, ready in enumerate(ready_ms):
        made = Build(pid=rank + 1, device=rank, rank=rank, path=f"rank{rank}.sqlite", origin_utc_ns=0)
        for step in range(STEPS):
            at = (10 + step * STEP_MS) * MS
            made.mark(f"step {step}", at - MS, at + (STEP_MS - 1) * MS)
            made.kernel(at, at + ready * MS, "backward", call=(at - MS + 9, at - MS + 99))
            called = at + 62 * MS
            if told:
                made.exchange("HorovodAllreduce", at + (ready - 1) * MS, called + 9 * MS, 10**6)
            if extra:
                late = at + (ready + 10) * MS
                made.kernel(late, late + MS, "late", call=(late - 9, late - 1))
            made.kernel(called, called + 8 * MS, ALL_REDUCE, call=(called - 8, called - 1))
        timelines.append(made.timeline())
    return profiles.analyse(timelines).measures


def test_the_rank_that_is_ready_early_waits_until_the_all_reduce_is_launched() -> None:
    measures = run()
    first, second = (gpu.collectives.negotiation_ns for gpu in measures.gpus)
    count = measures.gpus[0].steps.count
    assert (first, second) == (count * 42 * MS, count * 2 * MS)
    found = {finding.code: finding for finding in measures.findings}
    # Rank 1 hands in 39 ms later, as it computes longer: that rank 0 waits is told with it.
    cause = measures.findings[0]
    assert (cause.code, cause.gpu) == ("slow-gpu", 1) and "gradients-wait-for-ranks" not in found
    (told,) = cause.consequences
    assert (told.gpus, told.codes, told.cost_ns_per_step) == ([0], ["gradients-wait-for-ranks"], 39 * MS)
    # What remains of the launch idle is all that its own findings are paid for: of 42 ms 39 are another rank's.
    gpu = measures.gpus[0]
    agreeing = first - gpu.ledger_ns["idle_peers"]
    assert agreeing == count * 3 * MS
    assert found["python-in-the-loop"].evidence["idle_launch_ns"] == gpu.ledger_ns["idle_launch"] - agreeing


def test_ranks_that_wait_alike_are_told_of_the_exchange_and_of_no_rank() -> None:
    finding = next(f for f in run(ready_ms=(20, 20)).findings if f.code == "gradients-wait-for-ranks")
    assert "rank" not in finding.text
    assert "HOROVOD_CYCLE_TIME" in finding.change


def test_a_launch_of_something_else_waits_for_nobody() -> None:
    measures = run(extra=True)
    # From the end of the late kernel, 31 ms after the step's start, to the all-reduce's launch at 62 ms.
    assert measures.gpus[0].collectives.negotiation_ns == measures.gpus[0].steps.count * 31 * MS


def test_without_horovods_ranges_it_is_unknown_and_so_in_a_run_without_collectives() -> None:
    assert [gpu.collectives.negotiation_ns for gpu in run(told=False).gpus] == [None, None]
    alone = read(DATA / "vgg16-1gpu-device.rank0.sqlite.xz")
    assert profiles.analyse([alone]).measures.gpus[0].collectives.negotiation_ns is None


@pytest.mark.parametrize(
    ("name", "rank"),
    few(product(["dense41m-2gpu-pinned", "vgg16-2gpu-pinned", "resnet50-2gpu-device"], [0, 1])),
)
def test_of_real_recordings_it_is_that_of_plain_loops(name: str, rank: int) -> None:
    path = DATA / f"{name}.rank{rank}.sqlite.xz"
    timeline = read(path)
    (gpu,) = gather([timeline])
    steps = find(gpu, [timeline], [0])
    window = (int(steps.start_ns[0]), int(steps.end_ns[-1]))
    found = profiles.analyse([timeline]).measures.gpus[0].collectives.negotiation_ns
    brute = BruteForce([timeline], list(gpu.places), steps, window)
    sql = """SELECT start, "end" FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId
             WHERE coalesce(text, s.value) LIKE 'Horovod%' AND "end" NOT NULL AND eventType IN (59, 60)"""
    told = rows(path, sql)
    spans, reach, before = set(), [], None
    for op in brute.ops:
        reach.append(before)
        before = op.end if before is None else max(before, op.end)
    following = {}
    for op, dry in zip(reversed(brute.ops), reversed(reach), strict=True):
        if op.owner == "collective":
            following[op.stream] = op
        exchange = following.get(op.stream)
        if dry is None or op.call is None or exchange is None or exchange.call is None:
            continue
        if op is not exchange and op.kernel:
            continue
        holding = [start for start, end in told if start <= exchange.call[0] < end]
        if holding and (op is exchange or max(holding) <= op.call[0]):
            spans.add((max(dry, max(holding)), op.start))
    expected = sum(brute.ledger((max(a, window[0]), min(b, window[1])))["idle_launch"] for a, b in spans if a < b)
    assert len(spans) >= 5 and found == expected
    if name == "dense41m-2gpu-pinned":
        assert found > 0
