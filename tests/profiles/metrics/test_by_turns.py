"""Ranks that wait for each other by turns, against what the steps' lengths and their parts say by themselves."""

from __future__ import annotations

import numpy as np
import pytest

import profiles
from profiles.model.findings import Finding
from profiles.model.measures import Measures
from profiles.model.timeline import Timeline
from tests.made.build import Build

MS, US = 1_000_000, 1_000
SUM = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def _ranks(work_ns: np.ndarray, transfer_ns: int = 100 * US, name: str = SUM) -> list[Timeline]:
    """A timeline of each rank. work_ns: (steps, meetings, ranks), computed before each collective of a step."""
    timelines = []
    for rank in range(work_ns.shape[2]):
        made = Build(
            device=rank, pid=100 + rank, path=f"rank{rank}.sqlite", rank=rank, rank_source="marks", origin_utc_ns=0
        )
        made.device(rank, uuid=f"GPU-{rank}", name="NVIDIA H100")
        now = 10 * MS
        for step, parts in enumerate(work_ns.tolist()):
            made.mark(f"rank {rank} of {work_ns.shape[2]}", 0, 1)
            begun = now
            for each in parts:
                made.kernel(now, now + each[rank], "sgemm", call=(now - 30 * US, now - 29 * US))
                arrived, met = now + each[rank], now + max(each)
                made.kernel(arrived, met + transfer_ns, name, call=(arrived - 20 * US, arrived - 19 * US))
                now = met + transfer_ns
            made.mark(f"step {step}", begun - 40 * US, now - 50 * US)
        timelines.append(made.timeline())
    return timelines


def _measured(work_ns: np.ndarray, **options: str) -> Measures:
    return profiles.analyse(_ranks(work_ns, **options)).measures


def _finding(measured: Measures) -> Finding | None:
    return next((one for one in measured.findings if one.code == "ranks-wait-by-turns"), None)


@pytest.mark.parametrize(("ranks", "meetings"), [(2, 1), (2, 2), (2, 5), (4, 3), (8, 4)])
def test_it_is_what_a_step_would_be_shorter_by_if_its_ranks_met_once(ranks: int, meetings: int) -> None:
    work = np.random.default_rng(10 * ranks + meetings).integers(MS, 5 * MS, (9, meetings, ranks))
    takes, would_take = work.max(axis=2).sum(axis=1), work.sum(axis=1).max(axis=1)
    measured = _measured(work)
    # The first and the last of the steps that are found are warm-up and partial: those that were measured say which.
    steps = [row.step for row in measured.gpus[0].steps.rows]
    assert len(steps) >= 6
    expected = int((takes - would_take)[steps].sum()) // len(steps)
    assert {gpu.collectives.by_turns_ns for gpu in measured.gpus} == {expected}
    assert (expected == 0) == (meetings == 1)


def test_one_that_is_slower_at_every_meeting_is_no_turn() -> None:
    work = np.full((8, 3, 2), 2 * MS)
    work[:, :, 1] += MS
    measured = _measured(work)
    assert measured.gpus[0].collectives.by_turns_ns == 0 and _finding(measured) is None
    assert "straggler" in {one.code for one in measured.findings}


def test_the_documentations_example_has_its_time_and_its_finding() -> None:
    work = np.array([[[2 * MS, 8 * MS], [8 * MS, 2 * MS]]] * 8)
    measured = _measured(work)
    assert [gpu.collectives.by_turns_ns for gpu in measured.gpus] == [6 * MS, 6 * MS]
    found = _finding(measured)
    assert found is not None and found.gpu is None and found.cost_ns_per_step == 6 * MS
    step_ns = 16 * MS + 2 * 100 * US
    assert found.at_most_gain == pytest.approx(step_ns / (step_ns - 6 * MS) - 1)
    codes = [one.code for one in measured.findings]
    assert codes.index("ranks-wait-by-turns") < codes.index("all-reduce-exposed")


def test_stages_of_a_pipeline_wait_by_their_nature() -> None:
    work = np.array([[[2 * MS, 8 * MS], [8 * MS, 2 * MS]]] * 8)
    measured = _measured(work, name="ncclDevKernel_SendRecv")
    assert measured.gpus[0].collectives.by_turns_ns == 6 * MS and _finding(measured) is None


def test_it_takes_the_recordings_of_several_ranks_and_steps_in_common() -> None:
    work = np.array([[[2 * MS, 8 * MS], [8 * MS, 2 * MS]]] * 8)
    alone = profiles.analyse(_ranks(work)[:1]).measures
    assert alone.gpus[0].collectives.by_turns_ns is None
    assert any("/gpus/0/collectives/by_turns_ns" in doubt.where for doubt in alone.doubts)
