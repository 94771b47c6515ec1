"""Steps that take far longer than the others: left out of all numbers, and told apart by what the host did."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import profiles
from profiles.model.measures import Measures
from profiles.model.measures_json import from_json, to_json
from tests.made.build import Build
from tests.recordings import ROOT

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
MS = 1_000_000
STEPS, STEP_MS, LONG = 16, 20, 9
PLANTED = ROOT.parent / "shared" / "recordings" / "third" / "planted"


def hiccup(made: Build, at: int) -> int:
    """The host is away for 50 ms, in nothing that is recorded."""
    return 50 * MS


def checkpoint(made: Build, at: int) -> int:
    """30 tensors are copied to the host, one by one."""
    for one in range(30):
        begun = at + one * 3 * MS
        made.copy("d2h", begun + MS, begun + 2 * MS, 4 << 20, call=(begun, begun + 2 * MS), api="cudaMemcpy_v3020")
    return 100 * MS


def pages(made: Build, at: int) -> int:
    """The host reads 30 pages of managed memory, which the driver moves one by one."""
    for one in range(30):
        begun = at + one * 3 * MS
        made.copy("d2h", begun + MS, begun + 2 * MS, 4 << 10, dst_kind="managed")
    return 100 * MS


def evaluation(made: Build, at: int) -> int:
    """Forward passes alone, and what they give is fetched."""
    for one in range(40):
        begun = at + one * 2 * MS
        made.kernel(begun, begun + MS, "forward", call=(begun - 2000, begun - 1000))
        made.copy("d2h", begun + MS, begun + MS + 900, 4, call=(begun, begun + MS + 950))
    return 90 * MS


def reading(made: Build, at: int) -> int:
    """The host waits for a batch."""
    made.mark("wait input", at + MS, at + 58 * MS)
    return 60 * MS


def trained(by_rank: dict[int, Callable[[Build, int], int]], steps: int = STEPS) -> Measures:
    """Two ranks that meet in each step's all-reduce; what is done in rank k's step LONG, and its rest waits for it."""
    timelines = []
    for rank in range(2):
        made = Build(pid=rank + 1, device=rank, rank=rank, path=f"rank{rank}.sqlite", origin_utc_ns=0)
        made.device(rank, uuid=f"GPU-{rank}")
        at = 10 * MS
        for step in range(steps):
            begun, late = at - 6 * MS, 0
            if step == LONG:
                late = max([0, *(do(made if one == rank else Build(), at + 3 * MS) for one, do in by_rank.items())])
            own = late if rank in by_rank else 0
            called = at + 3 * MS + own - 4000 if own else begun + 60_000
            for place in range(3):
                start = at + place * MS
                made.kernel(
                    start, start + MS - 1000, "forward", call=(begun + place * 1000, begun + place * 1000 + 500)
                )
            made.kernel(at + 3 * MS + own, at + 17 * MS + own, "backward", call=(called, called + 500))
            meet, end = at + 17 * MS + own, at + 19 * MS + late
            made.kernel(meet, end, ALL_REDUCE, call=(called + 600, called + 900))
            lasts = (STEP_MS * MS if step < steps - 1 else 2 * STEP_MS * MS) + late
            made.mark(f"step {step}", begun - 2000, begun + lasts - 3000)
            at += STEP_MS * MS + late
        timelines.append(made.timeline())
    return profiles.analyse(timelines).measures


@pytest.mark.parametrize(
    "done, cause",
    [
        (hiccup, "host"),
        (checkpoint, "checkpoint"),
        (pages, "host"),
        (evaluation, "more-work"),
        (reading, "input"),
    ],
)
def test_a_break_is_told_by_what_the_host_did_and_by_who_waited(done: Callable[[Build, int], int], cause: str) -> None:
    measures = trained({1: done})
    (told,) = measures.breaks
    assert (told.gpu, told.step, told.cause, told.count, told.waits) == (1, LONG, cause, 1, [0])
    gpu = measures.gpus[1]
    (one,) = gpu.breaks
    lost = one.end_ns - one.start_ns - STEP_MS * MS
    assert told.share_if_as_often == pytest.approx(lost / (gpu.span_ns + one.end_ns - one.start_ns))
    assert one.fetched == {"checkpoint": 30, "evaluation": 40}.get(done.__name__, 0)


def test_no_number_and_no_price_holds_a_break() -> None:
    """But for what the break itself would cost, a run with one has the numbers of a run without."""
    without, withs = trained({}, STEPS - 1), [trained({1: done}) for done in (hiccup, evaluation, reading)]
    usual = {one.code: one.at_most_gain for one in without.findings}
    for measures in withs:
        assert {one.code: one.at_most_gain for one in measures.findings} == pytest.approx(usual)
        for gpu, plain in zip(measures.gpus, without.gpus, strict=True):
            assert (gpu.steps.count, gpu.steps.breaks, gpu.span_ns) == (plain.steps.count, 1, plain.span_ns)
            assert gpu.ledger_ns == plain.ledger_ns and sum(ns or 0 for ns in gpu.ledger_ns.values()) == gpu.span_ns
            lasted = [one.end_ns - one.start_ns for one in gpu.breaks]
            assert gpu.window_ns[1] - gpu.window_ns[0] == gpu.span_ns + sum(lasted)
            assert [sum(ns or 0 for ns in one.ledger_ns.values()) for one in gpu.breaks] == lasted
            assert gpu.kernels.count == plain.kernels.count and gpu.copies["d2h"].count == 0
            assert gpu.collectives.waiting_ns == plain.collectives.waiting_ns
        assert "breaks-inside-window" not in {doubt.code for doubt in measures.doubts}


def test_a_checkpoint_has_a_price_if_it_comes_as_often_and_is_no_fetched_loss() -> None:
    measures = trained({1: checkpoint})
    first = measures.findings[0]
    assert (first.code, first.gpu) == ("checkpoint-in-the-loop", 1)
    share = measures.breaks[0].share_if_as_often
    assert first.at_most_gain == pytest.approx(share / (1 - share))
    assert [one.gpus for one in first.consequences] == [[0]]
    assert "loss-fetched-every-step" not in {one.code for one in measures.findings}


def test_ranks_that_do_the_same_at_once_are_told_once() -> None:
    (told,) = trained({0: evaluation, 1: evaluation}).breaks
    assert told.cause == "more-work" and told.waits == []


def test_a_break_after_the_last_measured_step_is_told_and_lies_in_no_window() -> None:
    measures = trained({1: hiccup}, LONG + 1)
    (told,) = measures.breaks
    assert told.step == LONG
    for gpu in measures.gpus:
        assert gpu.window_ns[1] - gpu.window_ns[0] == gpu.span_ns and gpu.breaks[0].start_ns >= gpu.window_ns[1]


@pytest.mark.parametrize("steps", [STEPS, LONG + 1])
def test_measures_with_breaks_are_read_back_as_they_were(steps: int) -> None:
    measures = trained({1: hiccup}, steps)
    assert measures.breaks and from_json(to_json(measures)) == measures


@pytest.mark.skipif(not PLANTED.exists(), reason="the shared recordings are not here")
def test_recordings_with_one_planted_break_tell_it_apart() -> None:
    good, saved = (profiles.measure(sorted(PLANTED.glob(f"{name}.rank*"))) for name in ("good", "ckpt"))
    assert all((one.at_most_gain or 0) < 0.05 for one in good.findings)
    (told,) = good.breaks
    assert told.step == 36 and told.length_ns > 60 * MS
    assert saved.findings[0].code == "checkpoint-in-the-loop" and saved.findings[0].gpu == 0
    assert "loss-fetched-every-step" not in {one.code for one in saved.findings}
    assert [(one.gpu, one.cause) for one in saved.breaks] == [(0, "checkpoint"), (1, "peers")]
    (waits,) = saved.findings[0].consequences
    assert waits.gpus == [1]
