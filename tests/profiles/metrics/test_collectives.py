"""Collectives across ranks against a plain search for each call's partners."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from profiles.gpus.gather import gather
from profiles.measuring.analysis import measure
from profiles.metrics import collectives, message_sizes
from profiles.model.timeline import Timeline
from tests.made.build import Build

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
TRANSFER = 400_000


def made(ranks: int, calls: int, *, late: dict[int, range] | None = None, seed: int = 0):
    """A run's ranks, and of each call who arrived when and when it ended, on the true clock.

    late: rank -> the calls at which it is 5 ms behind the others.
    """
    chance = random.Random(seed)
    builds = [Build(pid=number + 1, device=number, rank=number, origin_utc_ns=1000) for number in range(ranks)]
    known = []
    for call in range(calls):
        began = 10_000_000 + call * 100_000_000
        arrived = [began + chance.randint(0, 2_000_000) for _ in range(ranks)]
        for number, when in (late or {}).items():
            arrived[number] += 5_000_000 if call in when else 0
        end = max(arrived) + TRANSFER
        known.append((arrived, end))
        for number, build in enumerate(builds):
            build.kernel(began - 50_000_000, arrived[number] - 1_000, "forward")
            build.kernel(arrived[number], end, ALL_REDUCE)
    return builds, known


def run(ranks: int, calls: int, **more):
    """Recordings of a run, and what is known of its calls."""
    builds, known = made(ranks, calls, **more)
    return [build.timeline() for build in builds], known


def matched(timelines: list[Timeline], residual_ns: int = 0):
    shifts = [0] * len(timelines)
    gpus = gather(timelines, shifts)
    moved = [message_sizes.moved(timelines, shifts, gpu, collectives.of(gpu)) for gpu in gpus]
    return gpus, collectives.Matched(list(map(collectives.own, gpus, moved)), shifts, residual_ns).calls()


def found_straggler(timelines: list[Timeline]):
    gpus, calls = matched(timelines)
    return collectives.straggler([gpu.rank for gpu in gpus], calls)


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_a_call_parts_into_waiting_for_the_last_rank_and_the_transfer(ranks):
    timelines, known = run(ranks, 20)
    _, calls = matched(timelines)
    for number, own in enumerate(calls):
        assert own.start_ns.tolist() == [arrived[number] for arrived, _ in known]
        assert own.skew_ns.tolist() == [max(arrived) - arrived[number] for arrived, _ in known]
        assert own.waiting_ns.tolist() == own.skew_ns.tolist()
        assert set(own.transfer_ns.tolist()) == {TRANSFER}
        assert own.is_last.tolist() == [arrived[number] == max(arrived) for arrived, _ in known]
        assert set(own.ranks.tolist()) == {ranks}


def test_measures_of_all_ranks_hold_what_a_plain_sum_over_the_calls_gives():
    timelines, known = run(3, 15)
    measures = measure(timelines, window="capture")
    for number, gpu in enumerate(measures.gpus):
        waited = [max(arrived) - arrived[number] for arrived, _ in known]
        found = gpu.collectives
        assert found.count == 15
        assert found.waiting_ns == sum(waited)
        assert found.transfer_ns == 15 * TRANSFER
        assert found.waiting_ns + found.transfer_ns == found.busy_ns
        assert found.skew_ns == {"p50": sorted(waited)[7], "max": max(waited)}
        assert found.arrived_last_share == sum(wait == 0 for wait in waited) / 15
        assert found.bytes_per_step is None
        assert found.bus_gb_per_s is None
    assert measures.clock["residual_ns"] == 0
    assert "collective-bytes-unknown" in {doubt.code for doubt in measures.doubts}
    assert sum(gpu.collectives.arrived_last_share for gpu in measures.gpus) == pytest.approx(1)


def test_nobody_is_last_by_less_than_the_clocks_residual():
    timelines, known = run(2, 20)
    residual = 900_000
    _, calls = matched(timelines, residual)
    for number, own in enumerate(calls):
        expected = [arrived[number] - arrived[1 - number] > residual for arrived, _ in known]
        assert own.is_last.tolist() == expected


@pytest.mark.parametrize("given", [2, 3, 4])
def test_ranks_whose_recordings_are_missing_are_doubted(given):
    builds, _ = made(4, 12)
    for number, build in enumerate(builds):
        build.mark(f"rank {number} of 4", 0, 10)
    measures = measure([build.timeline() for build in builds[:given]])
    doubted = [doubt for doubt in measures.doubts if doubt.code == "ranks-missing"]
    assert len(doubted) == (given < 4)
    assert all(f"{given} of 4" in doubt.text for doubt in doubted)


@pytest.mark.parametrize("told", [None, 2, 4])
def test_a_rank_alone_is_told_that_others_are_missing(told):
    builds, _ = made(2, 12)
    if told:
        builds[0].mark(f"rank 0 of {told}", 0, 10)
    measures = measure([builds[0].timeline()])
    (doubt,) = (doubt for doubt in measures.doubts if doubt.code == "ranks-missing")
    assert ("1 of" in doubt.text) == bool(told)
    assert "/gpus/0/collectives/waiting_ns" in doubt.where
    assert measures.gpus[0].collectives.waiting_ns is None
    assert "ranks-missing" not in {doubt.code for doubt in measure([one.timeline() for one in made(2, 12)[0]]).doubts}


@pytest.mark.parametrize("given", [1, 2, 4])
def test_ranks_that_only_the_formats_field_tells_are_missed_too(given):
    """As PyTorch's profiler writes it."""
    timelines = [build.timeline() for build in made(4, 12)[0][:given]]
    measures = measure([replace(one, recording=replace(one.recording, ranks=4)) for one in timelines])
    doubted = [doubt for doubt in measures.doubts if doubt.code == "ranks-missing"]
    assert [f"recordings of {given} of 4 ranks" in doubt.text for doubt in doubted] == [True] * (given < 4)


def test_marks_of_ranks_lead_over_the_formats_field():
    builds, _ = made(2, 12)
    for number, build in enumerate(builds):
        build.mark(f"rank {number} of 2", 0, 10)
    timelines = [build.timeline() for build in builds]
    measures = measure([replace(one, recording=replace(one.recording, ranks=4)) for one in timelines])
    assert "ranks-missing" not in {doubt.code for doubt in measures.doubts}


@pytest.mark.parametrize("marked", [False, True])
def test_ranks_that_were_recorded_at_different_times_are_not_called_missing(marked):
    builds, _ = made(2, 12)
    later, _ = made(2, 12, seed=1)
    for number, build in enumerate((builds[0], later[1])):
        if marked:
            build.mark(f"rank {number} of 2", 0, 10)
    first, second = builds[0].timeline(), later[1].timeline()
    measures = measure([first, replace(second, recording=replace(second.recording, origin_utc_ns=10**13))])
    (doubt,) = (doubt for doubt in measures.doubts if doubt.code == "ranks-missing")
    assert doubt.text.startswith("no other GPU's collectives end at the same times (")
    assert "at the same time" in doubt.next


@pytest.mark.parametrize(("apart", "doubted"), [(0, False), (40_000, False), (150_000, True)])
def test_ranks_on_clocks_that_do_not_agree_are_doubted(apart, doubted):
    builds, _ = made(2, 12)
    first = builds[0].timeline()
    recording = replace(first.recording, origin_utc_ns=first.recording.origin_utc_ns + apart)
    measures = measure([replace(first, recording=recording), builds[1].timeline()])
    assert ("clock-residual" in {doubt.code for doubt in measures.doubts}) == doubted
    assert measures.clock["method"] == ("collectives" if doubted else "utc")


def test_one_rank_alone_tells_nothing_of_waiting():
    timelines, _ = run(1, 5)
    (gpu,) = measure(timelines).gpus
    assert gpu.collectives.count == 5
    assert gpu.collectives.waiting_ns is None
    assert gpu.collectives.arrived_last_share is None


def test_a_call_that_only_some_ranks_recorded_is_left_aside():
    timelines, known = run(2, 12)
    cut = timelines[1].kernels[timelines[1].kernels["start_ns"] < known[8][0][1]]
    _, calls = matched([timelines[0], replace(timelines[1], kernels=cut)])
    assert len(calls[0].start_ns) == len(calls[1].start_ns) == 8


def test_the_straggler_is_named_with_the_call_it_began_at():
    timelines, known = run(4, 60, late={2: range(25, 60)})
    gpus, calls = matched(timelines)
    found = collectives.straggler([gpu.rank for gpu in gpus], calls)
    assert (found.gpu, found.rank, found.calls) == (2, 2, 35 + _before(known, 2, 25))
    assert found.since_ns == known[60 - found.calls][0][2]
    assert found.arrived_last_share == 1


def _before(known, rank: int, call: int) -> int:
    """Calls just before `call` at which the rank happened to be last as well."""
    count = 0
    while max(known[call - count - 1][0]) == known[call - count - 1][0][rank]:
        count += 1
    return count


def test_ranks_that_take_turns_have_no_straggler():
    timelines, _ = run(4, 60)
    assert found_straggler(timelines) is None


def test_a_rank_that_was_late_and_is_no_longer_is_no_straggler():
    timelines, _ = run(4, 60, late={1: range(30)})
    assert found_straggler(timelines) is None


@pytest.mark.parametrize(("residual_ns", "last"), [(99, [False, True]), (100, [False, False]), (0, [False, True])])
def test_who_comes_last_by_no_more_than_the_clocks_tell_is_not_called_last(residual_ns, last):
    """Two GPUs in one collective, of which the second comes 100 ns later."""
    builds = [Build(pid=number + 1, device=number, rank=number) for number in range(2)]
    for number, build in enumerate(builds):
        build.kernel(1_000 + 100 * number, 3_000, ALL_REDUCE)
    _, found = matched([build.timeline() for build in builds], residual_ns)
    assert [call.is_last.tolist() for call in found] == [[one] for one in last]
