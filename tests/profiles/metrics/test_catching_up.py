"""Launch idle after a wait is the wait's, as long as the host would be ahead without it."""

from __future__ import annotations

import random

import pytest

from profiles import analyse
from profiles.model.measures import GpuMeasures
from profiles.steps.found import FoundSteps
from tests.made.bruteforce import BruteForce, idle_spans
from tests.made.build import Build
from tests.profiles.verdicts.test_people import MS, US, findings

BLOCKS = 20
NO_STEPS = FoundSteps(refused="none")


def waiting(
    *, wait_us: int, late: int = 20, tid: int = 1, returns_us: int = 1, call: str = "cudaStreamSynchronize_v3020"
):
    """Each block: the host launches 20 kernels of 10 us, each 20 us after the one before, then a long one, and waits
    for it: 10 us of launch idle before each short kernel."""
    made, now = Build(), MS
    for _ in range(BLOCKS):
        for _ in range(late):
            made.kernel(now, now + 10 * US, call=(now - 3 * US, now - 2 * US))
            now += 20 * US
        end = now + (wait_us + 5) * US
        made.kernel(now, end, call=(now - 3 * US, now - 2 * US))
        made.api(call, end - wait_us * US, end + returns_us * US, tid=tid)
        now = end + 10 * US
    made.kernel(now, now + MS, call=(now - 3 * US, now - 2 * US))
    return made


def measured(made: Build) -> GpuMeasures:
    return analyse([made.timeline()]).measures.gpus[0]


# Before the first block is no wait, after the last one no late launch but the end's.
@pytest.mark.parametrize(("wait_us", "each_us"), [(5000, 200), (200, 200), (150, 150), (20, 20)])
def test_the_wait_explains_as_much_launch_idle_as_it_lasts(wait_us: int, each_us: int) -> None:
    (wait,) = measured(waiting(wait_us=wait_us)).host_waits
    assert wait["call"] == "cudaStreamSynchronize_v3020" and wait["held_ns"] == 0
    assert wait["ns"] == BLOCKS * 10 * US
    assert wait["launch_ns"] == (BLOCKS - 1) * each_us * US


def test_a_host_whose_clock_is_some_us_ahead_waited_all_the_same() -> None:
    """The call returns before the kernel that it waits for ends, as the recording says."""
    gpu = measured(waiting(wait_us=500, returns_us=-5))
    (wait,) = gpu.host_waits
    assert gpu.ledger_ns["idle_sync"] == wait["ns"] == 0
    assert wait["launch_ns"] == (BLOCKS - 1) * (10 + 200) * US + 10 * US


@pytest.mark.parametrize("more", [{"tid": 2}, {"call": "cudaEventQuery_v3020"}, {"returns_us": -40}])
def test_what_does_not_hold_up_the_launching_thread_explains_nothing(more: dict) -> None:
    assert sum(one["launch_ns"] for one in measured(waiting(wait_us=500, **more)).host_waits) == 0


def test_the_finding_names_the_wait_and_the_launches_are_no_finding_beside_it() -> None:
    """The host needs 400 us to launch 1.5 ms of work, and waits for the rest."""
    made = waiting(wait_us=1500)
    gpu, found = measured(made), findings(made)
    assert {"launch-bound", "python-in-the-loop"} & set(found) == set()
    launch, sync = gpu.ledger_ns["idle_launch"], gpu.ledger_ns["idle_sync"]
    assert found["host-synchronises"].saved_ns == {"idle_sync": sync, "idle_launch": (BLOCKS - 1) * 200 * US}
    assert launch == BLOCKS * 200 * US


def test_a_host_that_is_never_ahead_is_launch_bound_though_it_waits() -> None:
    found = findings(waiting(wait_us=20))
    assert {"launch-bound", "python-in-the-loop"} & set(found)


def random_waits(chance: random.Random) -> Build:
    """Two threads that launch and wait, with kernels in order."""
    made, now = Build(), MS
    for _ in range(chance.randrange(3, 25)):
        length, called = chance.randrange(20, 300) * US, now - chance.randrange(1, 400) * US
        returned = called + chance.randrange(1, 60) * US
        made.kernel(now, now + length, call=(called, returned), tid=chance.choice((1, 1, 2)))
        if chance.random() < 0.5:
            begun = now + chance.randrange(length)
            tid = chance.choice((1, 2))
            made.api("cudaStreamSynchronize_v3020", begun, begun + chance.randrange(1, 400) * US, tid=tid)
        now += length + chance.choice((0, 50, 200, 700)) * US
    return made


def explained(made: Build) -> int:
    """The same by plain loops."""
    timeline = made.timeline()
    starts = [int(row["start_ns"]) for row in timeline.kernels.to_dict("records")]
    books = BruteForce([timeline], [(0, 0)], NO_STEPS, (min(starts), int(timeline.kernels["end_ns"].max())))
    waits = [row for row in timeline.api.to_dict("records") if "Synchronize" in row["name"]]
    dried, used = [], set()
    for dry, end in idle_spans(books.ops, *books.window):
        ender = next(op for op in books.ops if op.start == end)
        if not {owner for start, _, owner in books.pieces if dry <= start < end} & {"idle_launch", "idle_sync"}:
            continue
        over = [row for row in waits if row["tid"] == ender.thread and row["end_ns"] <= ender.call[0]]
        last = max(over, key=lambda row: row["end_ns"], default=None)
        if last and last["start_ns"] <= dry <= last["end_ns"] + 20_000 and id(last) not in used:
            used.add(id(last))
            dried.append((dry, min(dry, last["end_ns"]) - last["start_ns"]))
    total = 0
    for place, (dry, waited) in enumerate(dried):
        until = dried[place + 1][0] if place + 1 < len(dried) else float("inf")
        idle = sum(end - start for start, end, owner in books.pieces if owner == "idle_launch" and dry <= start < until)
        total += min(idle, waited)
    return total


@pytest.mark.parametrize("seed", range(20))
def test_random_waits_explain_what_plain_loops_say(seed: int) -> None:
    made = random_waits(random.Random(seed))
    gpu = analyse([made.timeline()], window="capture").measures.gpus[0]
    assert sum(one["launch_ns"] for one in gpu.host_waits) == explained(made)


def test_most_random_waits_explain_something() -> None:
    assert sum(explained(random_waits(random.Random(seed))) > 0 for seed in range(20)) >= 10


def test_work_that_was_launched_and_waits_on_the_gpu_is_no_fault_of_the_host() -> None:
    """The host returns from its wait after 1 us and launches, and 4 ms later the kernel starts."""
    made, now = Build(), MS
    for _ in range(20):
        made.kernel(now, now + 10 * MS, call=(now - 4 * MS, now - 4 * MS + 8 * US) if now > MS else (0, 9))
        made.api("cuStreamSynchronize", now - 3 * MS, now + 10 * MS + US)
        now += 14 * MS + 10 * US
    gpu, found = measured(made), findings(made)
    (wait,) = gpu.host_waits
    assert gpu.ledger_ns["idle_sync"] == wait["ns"] == 19 * (4 * MS + 10 * US)
    assert wait["held_ns"] == 19 * (4 * MS - 8 * US)
    assert found["launched-work-waits"].saved_ns == {"idle_sync": wait["held_ns"]}
    assert "host-synchronises" not in found
