"""Idle time that waits for other ranks: against plain loops over random runs, and case by case."""

from __future__ import annotations

import random
from typing import Any

import pytest

import profiles
from profiles import read
from profiles.gpus.gather import gather
from profiles.model.measures import Measures
from profiles.model.timeline import Timeline
from profiles.steps.find import find
from profiles.steps.found import FoundSteps
from tests.made.bruteforce import BruteForce
from tests.made.build import Build
from tests.recordings import DATA
from tests.tiers import few

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
US, MS = 1_000, 1_000_000
STEPS, STEP_MS = 12, 100


def random_run(seed: int) -> list[Timeline]:
    """Two or three ranks whose collectives Horovod launches some time after the last one has handed over."""
    chance = random.Random(seed)
    ranks = chance.randint(2, 3)
    made = [Build(pid=rank + 1, device=rank, rank=rank, path=f"r{rank}", origin_utc_ns=0) for rank in range(ranks)]
    for rank, one in enumerate(made):
        one.device(rank, uuid=f"GPU-{rank}")
    at = 10 * MS
    for step in range(8):
        plain = step == 0  # rank 0 waits for the others, and nothing else is in the way
        handed = [at + chance.randint(-MS, 30 * MS) for _ in made]
        launched = max(handed) + chance.choice([0, 200 * US, 2 * MS])
        computed = [at + chance.randint(MS, 40 * MS) for _ in made]
        if plain:
            handed[0], handed[1], launched, computed[0] = at, at + 30 * MS, at + 31 * MS, at + MS
        starts = [max(computed[rank], launched) + chance.randint(20 * US, 100 * US) for rank in range(ranks)]
        end = max(starts) + chance.randint(MS, 5 * MS)
        for rank, one in enumerate(made):
            one.kernel(at, computed[rank], "backward", call=(at - 90 * US, at - 80 * US))
            call = (launched, launched + 10 * US)
            told = "Horovod" if plain else chance.choice(["Horovod"] * 4 + ["XLA", "nobody"])
            if told == "Horovod":
                one.exchange("HorovodAllreduce", handed[rank], end + chance.randint(0, MS), 1 << 20)
            elif told == "XLA":
                one.mark("Thunk:#hlo_op=all-reduce-start.1#", handed[rank], end, domain="TSL", tid=3)
            into = starts[rank]
            if not plain and chance.random() < 0.4:  # copied into one buffer first, on the same stream
                one.copy("d2d", into, into + 10 * US, 1 << 10, call=call, tid=9, stream=20)
                into, call = into + 12 * US, (call[0] + 10 * US, call[0] + 15 * US)
            one.kernel(into, end, ALL_REDUCE, call=call, tid=9, stream=20)
            if not plain and chance.random() < 0.3:
                one.api("cudaStreamSynchronize_v3020", at, computed[rank] + chance.randint(0, MS), tid=4)
            if not plain and chance.random() < 0.3:
                one.mark("wait input", computed[rank] - MS, computed[rank] + chance.randint(MS, 20 * MS), tid=9)
            if not plain and chance.random() < 0.3:
                there = computed[rank] + chance.randint(0, 9 * MS)
                one.copy("h2d", there, there + 50 * US, 1 << 20, call=(there - 9 * US, there + 50 * US), stream=14)
        at = end + chance.randint(100 * US, 5 * MS)
    return [one.timeline() for one in made]


def of_plain_loops(timelines: list[Timeline], measures: Measures, found: bool = False) -> list[BruteForce]:
    """Of each rank, with what the others say of the k-th collective. `found`: with the steps as they are found."""
    shifts = (measures.clock or {})["shifts"]
    windows = [tuple(gpu.window_ns) for gpu in measures.gpus]
    steps = [FoundSteps() for _ in timelines]
    if found:
        steps = [find(gather([one])[0], [one], [0]) for one in timelines]
    each_rank = [
        ([one], [(0, gpu.device)], of, window)
        for one, gpu, of, window in zip(timelines, measures.gpus, steps, windows, strict=True)
    ]
    alone = [BruteForce(*one) for one in each_rank]
    handed = [
        [None if (when := one.handed_over(op)[0]) is None else when + shift for op in one.collectives]
        for one, shift in zip(alone, shifts, strict=True)
    ]
    others = []
    for rank in range(len(timelines)):
        of_each = zip(*(one for other, one in enumerate(handed) if other != rank), strict=True)
        others.append([None if None in each else max(each) - shifts[rank] for each in of_each])
    return [BruteForce(*one, others=each) for one, each in zip(each_rank, others, strict=True)]


@pytest.mark.parametrize("seed", few(range(40), 4))
def test_random_runs_wait_for_other_ranks_as_plain_loops_say(seed: int) -> None:
    timelines = random_run(seed)
    measures = profiles.measure(timelines, window="capture")
    waited = 0
    for gpu, brute in zip(measures.gpus, of_plain_loops(timelines, measures), strict=True):
        expected = brute.ledger()
        waited += expected["idle_peers"]
        known = {name: ns for name, ns in gpu.ledger_ns.items() if ns is not None}
        assert known == {name: expected[name] for name in known} and sum(known.values()) == gpu.span_ns
        assert all(expected[name] == 0 for name in expected if gpu.ledger_ns[name] is None)
    assert waited > 0


def run(
    *,
    ready_ms: tuple[int, ...] = (20, 60),
    told: str = "Horovod",
    given: tuple[int, ...] | None = None,
    inside: bool = False,
    size: int | None = None,
) -> Measures:
    """Steps in which rank k hands its gradients over at ready_ms[k]; all launch their all-reduce at 62 ms. `inside`: at
    once, and wait in it. `given`: the recordings that are measured. `size`: ranks there are, as marks say."""
    timelines = []
    for rank, ready in enumerate(ready_ms):
        made = Build(pid=rank + 1, device=rank, rank=rank, path=f"rank{rank}.sqlite", origin_utc_ns=0)
        made.device(rank, uuid=f"GPU-{rank}")
        if size:
            made.mark(f"rank {rank} of {size}", 0, 0)
        for step in range(STEPS):
            at = (10 + step * STEP_MS) * MS
            made.mark(f"step {step}", at - MS, at + (STEP_MS - 1) * MS)
            made.kernel(at, at + ready * MS, "backward", call=(at - MS + 9, at - MS + 99))
            handed, called = at + (ready - 1) * MS, at + 62 * MS
            started = at + ready * MS + 5 * US if inside else called
            if inside:
                called = started - 4 * US
            if told == "Horovod":
                made.exchange("HorovodAllreduce", handed, at + 71 * MS, 10**6)
            elif told == "XLA":
                made.mark("Thunk:#name=XlaCallModule,hlo_op=custom-call.7#", handed, at + 71 * MS, domain="TSL", tid=5)
            elif told == "NCCL":
                made.exchange("ncclAllReduce", handed, at + 71 * MS, 10**6, library="NCCL", tid=9)
            made.kernel(started, at + 70 * MS, ALL_REDUCE, call=(called - 8, called - 1), tid=9, stream=20)
            made.kernel(at + 70 * MS, at + 98 * MS, "update", call=(at - MS + 9, at - MS + 99))
        timelines.append(made.timeline())
    chosen = timelines if given is None else [timelines[rank] for rank in given]
    return profiles.analyse(chosen).measures


def per_step(measures: Measures, owner: str) -> list[int | None]:
    return [None if (ns := gpu.ledger_ns[owner]) is None else ns // gpu.steps.count for gpu in measures.gpus]


@pytest.mark.parametrize("told", ["Horovod", "XLA", "NCCL"])
def test_a_rank_that_handed_over_waits_for_the_last_one_and_then_for_the_launch(told: str) -> None:
    measures = run(told=told)
    assert per_step(measures, "idle_peers") == [39 * MS, 0]  # rank 1 hands over at 59 ms
    # Rank 0 waits for the launch from 59 to 62 ms, rank 1 from when its GPU ran dry, at 60.
    first, second = per_step(measures, "idle_launch")
    assert first is not None and second is not None and first - second == MS
    for gpu in measures.gpus:
        assert sum(ns or 0 for ns in gpu.ledger_ns.values()) == gpu.span_ns
        rows = gpu.steps.rows
        assert sum(row.ledger_ns["idle_peers"] or 0 for row in rows) == gpu.ledger_ns["idle_peers"]
    assert not {"peers-or-launch"} & {doubt.code for doubt in measures.doubts}


def test_one_recording_alone_has_launch_idle_and_says_what_it_may_be() -> None:
    alone = run(given=(0,))
    assert per_step(alone, "idle_peers") == [None]
    assert (per_step(alone, "idle_launch")[0] or 0) >= 42 * MS
    (doubt,) = [one for one in alone.doubts if one.code == "peers-or-launch"]
    assert "42.0 %" in doubt.text
    # Who hands over says so, or nobody does: the other rank's part is not known either way.
    assert per_step(run(told="nobody"), "idle_peers") == [None, None]


def test_of_some_of_the_ranks_what_the_recorded_ones_waited_is_told_and_the_rest_doubted() -> None:
    measures = run(size=3)
    assert per_step(measures, "idle_peers") == [39 * MS, 0]
    assert "peers-or-launch" in {doubt.code for doubt in measures.doubts}  # until 62 ms the third may have been late


def test_a_gpu_without_collectives_waits_for_nobody() -> None:
    made = Build()
    for at in range(0, 40 * MS, 10 * MS):
        made.kernel(at, at + 5 * MS, call=(at - 20 * US, at - 10 * US))
    (gpu,) = profiles.measure([made.timeline()], window="capture").gpus
    assert gpu.ledger_ns["idle_peers"] == 0


def harm(measures: Measures) -> dict[str, Any]:
    """Whom the others wait for, and what it costs a step."""
    first = measures.findings[0]
    return {"code": first.code, "gpu": first.gpu, "ns": first.cost_ns_per_step, "waits": first.consequences[0].gpus}


def test_a_stragglers_harm_is_one_number_wherever_the_others_wait() -> None:
    """PyTorch waits inside of NCCL's kernel, Horovod in XLA's program before it is launched."""
    before, within = run(told="Horovod"), run(told="NCCL", inside=True)
    assert all((ns or 0) < US for ns in per_step(within, "idle_peers"))  # from handing over to the call
    (one, _), (other, _) = ([gpu.waiting_for_ranks_ns // gpu.steps.count for gpu in m.gpus] for m in (before, within))
    assert abs(one - other) <= MS + 10 * US  # handed over 1 ms before its last kernel ends
    assert [gpu.collectives.arrived_last_share for gpu in before.gpus] == [0, 1]
    assert [gpu.collectives.arrived_last_share for gpu in within.gpus] == [0, 1]
    told, same = harm(before), harm(within)
    assert {**told, "ns": 0} == {**same, "ns": 0} and (told["gpu"], told["waits"]) == (1, [0])


def test_of_real_recordings_too_and_as_plain_loops_say() -> None:
    paths = [DATA / f"dense41m-2gpu-pinned.rank{rank}.sqlite.xz" for rank in range(2)]
    timelines = [read(path) for path in paths]
    measures = profiles.measure(timelines, window="capture")
    for gpu, brute in zip(measures.gpus, of_plain_loops(timelines, measures, True), strict=True):
        expected = brute.ledger()
        assert gpu.ledger_ns == {name: expected[name] for name in gpu.ledger_ns}
    assert (measures.gpus[0].ledger_ns["idle_peers"] or 0) > 0


def test_an_input_that_all_lack_and_one_lacks_most_comes_before_the_others_waiting() -> None:
    """Both ranks of dense41m wait for batches, rank 1 for 21 ms and rank 0 for 5; and rank 0 waits for rank 1."""
    measures = profiles.measure(DATA / "dense41m-2gpu-pinned.rank*.sqlite.xz")
    first = measures.findings[0]
    assert (first.code, first.gpu) == ("input-pipeline-slow", None)
    (told,) = first.consequences
    assert told.gpus == [0] and {"straggler", "gradients-wait-for-ranks"} <= set(told.codes)
    assert told.cost_ns_per_step == measures.gpus[0].waiting_for_ranks_ns // measures.gpus[0].steps.count
