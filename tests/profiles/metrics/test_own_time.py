"""Idle time after a wait is the wait's for as long as the host waited; what is longer is the host's own work."""

from __future__ import annotations

import random

import pytest

from profiles import analyse, read
from profiles.model.measures import Finding, GpuMeasures
from profiles.steps.found import FoundSteps
from profiles.verdicts import host_idle
from profiles.verdicts.case import Case, Context
from tests.made.bruteforce import BruteForce, idle_spans
from tests.made.build import Build
from tests.profiles.verdicts.test_people import MS, US, findings
from tests.recordings import PUBLIC, needs_shared

ROUNDS = 12
NO_STEPS = FoundSteps(refused="none")


def rounds(
    *, wait_us: int, own_us: int, item: bool = False, allocating_us: int = 0, allocates: str = "cudaMalloc"
) -> Build:
    """Each round: two kernels, a wait for them, and the host by itself until it launches on, some of it in cudaMalloc.

    item: as `.item()` waits, most of the time within the call of a copy from pageable memory."""
    made, now = Build(), 10 * MS
    for _ in range(ROUNDS):
        begun, end = now - 3 * US, now + (wait_us - 4) * US
        made.kernel(now, end - 10 * US, call=(begun, begun + US))
        made.kernel(end - 10 * US, end, "last", call=(begun + US, begun + 2 * US))
        if item:
            made.copy("d2h", end, end + US, 4, call=(begun + 2 * US, end + 2 * US))
            made.api("cudaStreamSynchronize_v3020", end + US // 2, end + 3 * US)
            end += US
        else:
            made.api("cudaDeviceSynchronize_v3020", begun + 2 * US, end + US)
        if allocating_us:
            made.api(allocates, end + 10 * US, end + (10 + allocating_us) * US)
        now = end + own_us * US
    made.kernel(now, now + MS, call=(now - 3 * US, now - 2 * US))
    return made


def measured(made: Build) -> GpuMeasures:
    return analyse([made.timeline()]).measures.gpus[0]


def stays_ns(gpu: GpuMeasures) -> int:
    """The sync idle that no wait is priced by."""
    return sum(host_idle.after_waits_ns(Case.of(0, gpu, Context(), "nsys-sqlite")))


@pytest.mark.parametrize("item", [False, True])
@pytest.mark.parametrize(("wait_us", "own_us"), [(200, 150), (200, 1000), (100, 2000)])
def test_the_wait_is_priced_by_its_length_and_the_rest_is_the_hosts(wait_us: int, own_us: int, item: bool) -> None:
    made = rounds(wait_us=wait_us, own_us=own_us, item=item)
    gpu, found = measured(made), findings(made)
    waits = (wait_us if item else wait_us - 2) * US  # the call that waits; or of a copy, and from its begin on
    own = (own_us - (5 if item else 4)) * US
    idle, stays = ROUNDS * own_us * US, ROUNDS * max(0, own_us * US - waits)
    (wait,) = gpu.host_waits
    assert (wait["ns"], wait["own_ns"], wait["waited_ns"]) == (idle, ROUNDS * own, ROUNDS * waits)
    assert gpu.ledger_ns["idle_sync"] == idle
    if stays:
        assert found["host-synchronises"].saved_ns["idle_sync"] == idle - stays
        assert found["python-in-the-loop"].saved_ns == {"idle_sync": min(stays, ROUNDS * own)}
        assert "launch-bound" not in found  # nearly all of it is the host's own
    else:
        assert found["host-synchronises"].saved_ns == {"idle_sync": idle} and "python-in-the-loop" not in found


def first_of(made: Build) -> Finding:
    return analyse([made.timeline()]).measures.findings[0]


def test_a_host_that_computes_for_longer_than_it_waits_is_not_told_to_wait_less() -> None:
    assert first_of(rounds(wait_us=300, own_us=200)).code == "host-synchronises"
    first = first_of(rounds(wait_us=300, own_us=3000))
    assert first.code == "python-in-the-loop" and "ynchron" not in first.change


def test_memory_that_is_allocated_after_the_wait_is_the_allocators_and_the_rest_stays() -> None:
    """Of 2 ms the host allocates for 1.2, waits for 0.1, and is by itself for 0.8."""
    made = rounds(wait_us=100, own_us=2000, allocating_us=1200)
    found, (wait,) = findings(made), measured(made).host_waits
    assert wait["allocating_ns"] == ROUNDS * 1200 * US and wait["own_ns"] == ROUNDS * 796 * US
    assert found["memory-allocated-in-the-loop"].saved_ns == {"idle_sync": ROUNDS * 1200 * US}
    assert next(iter(found)) == "memory-allocated-in-the-loop"
    assert found["host-synchronises"].saved_ns == {"idle_sync": ROUNDS * 98 * US}
    assert found["python-in-the-loop"].saved_ns == {"idle_sync": ROUNDS * (2000 - 1200 - 98) * US}


@pytest.mark.parametrize(("call", "lasts_us"), [("cudaMallocAsync", 5), ("cudaMemGetInfo", 1200)])
def test_other_calls_after_the_wait_stay_as_well_and_are_no_time_of_the_hosts_own(call: str, lasts_us: int) -> None:
    made = rounds(wait_us=100, own_us=2000, allocating_us=lasts_us, allocates=call)
    found, (wait,) = findings(made), measured(made).host_waits
    assert wait["allocating_ns"] == 0 and wait["own_ns"] == ROUNDS * (1996 - lasts_us) * US
    assert found["host-synchronises"].saved_ns == {"idle_sync": ROUNDS * 98 * US}
    assert "memory-allocated-in-the-loop" not in found


def test_memory_that_is_allocated_in_one_part_of_the_recording_is_no_loops() -> None:
    made = rounds(wait_us=100, own_us=2000)
    made.api("cudaMalloc", 11 * MS, 12 * MS)
    (wait,) = measured(made).host_waits
    assert wait["allocating_ns"] == 0 and "memory-allocated-in-the-loop" not in findings(made)


def test_a_call_that_launches_and_returns_is_no_wait() -> None:
    """Rounds of an OpenACC program: a small copy in a call of 8 us, a wait of 5 us, and 36 us until the next kernel."""
    made, now = Build(), 10 * MS
    for _ in range(200):
        made.kernel(now, now + 2 * US, call=(now - 12 * US, now - US))
        made.copy(
            "h2d", now + 12 * US, now + 13 * US, 1024, call=(now + 2 * US, now + 10 * US), api="cuMemcpyHtoDAsync"
        )
        made.api("cuStreamSynchronize", now + 11 * US, now + 16 * US)
        made.api("cuMemAlloc_v2", now + 26 * US, now + 32 * US)
        now += 49 * US
    made.kernel(now, now + MS, call=(now - 12 * US, now - US))
    (wait,), found = measured(made).host_waits, findings(made)
    assert (wait["ns"], wait["waited_ns"]) == (200 * 36 * US, 200 * 5 * US)
    assert found["host-synchronises"].saved_ns["idle_sync"] == 200 * 5 * US and next(iter(found)) == "launch-bound"


def test_long_waits_before_short_idle_time_pay_for_short_waits_before_long() -> None:
    """Without any wait the host would be ahead by all of them together."""
    made, now = Build(), 10 * MS
    for number in range(20):
        waits, idle = ((2000, 100), (100, 1500))[number % 2]
        made.kernel(now, now + waits * US, call=(now - 3 * US, now - 2 * US))
        made.api("cudaDeviceSynchronize_v3020", now - 2 * US, now + waits * US + US)
        now += (waits + idle) * US
    made.kernel(now, now + MS, call=(now - 3 * US, now - 2 * US))
    assert stays_ns(measured(made)) == 0 and "python-in-the-loop" not in findings(made)


def random_rounds(chance: random.Random, call: str = "cudaMemGetInfo", most: int = 20) -> Build:
    made, now = Build(), MS
    for _ in range(chance.randrange(3, most)):
        length = chance.randrange(20, 300) * US
        called = now - chance.randrange(1, 30) * US
        made.kernel(now, now + length, call=(called, called + US))
        if chance.random() < 0.8:
            begun = now + chance.randrange(length)
            made.api("cudaDeviceSynchronize_v3020", begun, now + length + chance.randrange(1, 40) * US)
        now += length + chance.choice((30, 50, 400, 2000)) * US
        if chance.random() < 0.5:
            made.api(call, now - chance.randrange(60, 200) * US, now - chance.randrange(31, 60) * US)
    return made


def allocating_by_loops(made: Build) -> tuple[int, int]:
    """ns in cudaMalloc, where it comes all along: of launch idle, and of sync idle until the next launch begins. All
    times are whole us."""
    timeline = made.timeline()
    kernels, calls = timeline.kernels.to_dict("records"), timeline.api.to_dict("records")
    first, last = kernels[0]["start_ns"], kernels[-1]["end_ns"]
    books = BruteForce([timeline], [(0, 0)], NO_STEPS, (first, last))
    long = [row for row in calls if row["name"] == "cudaMalloc" and row["end_ns"] - row["start_ns"] >= 20 * US]
    asked = {at for row in long for at in range(row["start_ns"], row["end_ns"], US)}
    launch = {at for start, end, owner in books.pieces if owner == "idle_launch" for at in range(start, end, US)}
    sync = {at for start, end, owner in books.pieces if owner == "idle_sync" for at in range(start, end, US)}
    tenths = [0] * 10
    for at in asked & (launch | sync):
        tenths[10 * (at - first) // (last - first)] += 1
    if sum(map(bool, tenths)) <= 5 or 2 * max(tenths) >= sum(tenths):
        return 0, 0
    late = {at for op in books.ops for at in range(op.call[0], op.start, US)}
    return len(asked & launch) * US, len(asked & sync - late) * US


@pytest.mark.parametrize("seed", range(20))
def test_memory_that_is_allocated_at_random_is_what_plain_loops_say(seed: int) -> None:
    made = random_rounds(random.Random(seed), "cudaMalloc", 60)
    gpu = analyse([made.timeline()], window="capture").measures.gpus[0]
    after = sum(one["allocating_ns"] for one in gpu.host_waits)
    assert (gpu.allocating_ns, after) == allocating_by_loops(made)


def test_most_random_memory_is_allocated_after_waits() -> None:
    found = [allocating_by_loops(random_rounds(random.Random(seed), "cudaMalloc", 60)) for seed in range(20)]
    assert sum(after > 0 for _, after in found) >= 8 and sum(launch > 0 for launch, _ in found) >= 4


def by_loops(made: Build) -> int:
    """The same by plain loops."""
    timeline = made.timeline()
    kernels, calls = timeline.kernels.to_dict("records"), timeline.api.to_dict("records")
    books = BruteForce([timeline], [(0, 0)], NO_STEPS, (kernels[0]["start_ns"], kernels[-1]["end_ns"]))
    waited = idle = own = 0
    busy = sum(end - start for start, end, owner in books.pieces if owner == "compute")
    for dry, end in idle_spans(books.ops, *books.window):
        if {owner for start, _, owner in books.pieces if dry <= start < end} != {"idle_sync"}:
            continue
        until = next(op for op in books.ops if op.start == end).call[0]
        under_way = [row for row in calls if "Sync" in row["name"] and row["start_ns"] <= dry < row["end_ns"] <= until]
        wait = max(under_way, key=lambda row: row["start_ns"])
        waited += wait["end_ns"] - wait["start_ns"]
        idle += end - dry
        edges = sorted({wait["end_ns"], until, *(row[edge] for row in calls for edge in ("start_ns", "end_ns"))})
        edges = [edge for edge in edges if wait["end_ns"] <= edge <= until]
        for first, last in zip(edges, edges[1:], strict=False):
            if not any(row["start_ns"] <= first < row["end_ns"] for row in calls):
                own += last - first
    return max(0, idle - waited, own - busy)


@pytest.mark.parametrize("seed", range(20))
def test_random_waits_leave_the_host_what_plain_loops_say(seed: int) -> None:
    made = random_rounds(random.Random(seed))
    gpu = analyse([made.timeline()], window="capture").measures.gpus[0]
    assert stays_ns(gpu) == by_loops(made)


def test_most_random_waits_leave_some() -> None:
    assert sum(by_loops(random_rounds(random.Random(seed))) > 0 for seed in range(20)) >= 8


@needs_shared
def test_a_program_that_makes_its_numbers_between_the_waits_is_told_so() -> None:
    """OpenMP fills and checks arrays for 175 to 195 ms after each cudaMemcpy, in which the host waits for 38."""
    measures = analyse([read(PUBLIC / "nsys-sqlite/saxpy-mpi.sqlite")]).measures
    first = measures.findings[0]
    assert first.code == "python-in-the-loop" and first.saved_ns["idle_sync"] > 0.5 * measures.gpus[0].span_ns
    (wait,) = (one for one in measures.findings if one.code == "host-synchronises")
    assert wait.saved_ns["idle_sync"] < 0.2 * measures.gpus[0].span_ns
