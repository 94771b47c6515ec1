"""The generator's answers, against every nanosecond of a small run painted into an array."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.tables import COLLECTIVE, timeline
from benchmarks.training import Shape, answers

SHAPE = Shape(steps=3, kernels=20, gpus=2, processes=2, feed_ns=150_000)
ONE_SLOW = replace(SHAPE, slow_gpus=(1,), late_ns=123_457)
ONE_LINK = replace(SHAPE, slow_links=(0,), late_ns=123_457)
FROM_STEP_2 = replace(ONE_SLOW, late_from=2)


@pytest.mark.parametrize("gpu", [0, 1])
@pytest.mark.parametrize(
    "shape", [SHAPE, ONE_SLOW, ONE_LINK, FROM_STEP_2], ids=["alike", "one slow", "one link", "from step 2"]
)
def test_the_answers_are_what_a_bitmap_of_the_run_says(shape: Shape, gpu: int) -> None:
    run = timeline(shape, range(gpu, gpu + 1))
    collective = run.kernels["name"] == COLLECTIVE
    operations = {
        "compute": run.kernels[~collective],
        "collective": run.kernels[collective],
        **{kind: run.copies[run.copies["kind"] == kind] for kind in ("h2d", "d2h", "p2p", "d2d")},
        "memset": run.memsets,
    }
    first = min(int(rows["start_ns"].min()) for rows in operations.values())
    last = max(int(rows["end_ns"].max()) for rows in operations.values())
    owner = np.full(last - first, "idle", dtype="U10")
    busy = {}
    for kind in reversed(operations):
        mine = np.zeros(last - first, dtype=bool)
        for start, end in zip(operations[kind]["start_ns"] - first, operations[kind]["end_ns"] - first, strict=True):
            mine[start:end] = True
        busy[kind] = int(mine.sum())
        owner[mine] = kind
    expected = answers(shape, gpu)
    assert expected.span_ns == last - first
    assert dict(expected.busy_ns) == busy
    assert {kind: expected.ledger_ns[kind] for kind in operations} == {
        kind: int((owner == kind).sum()) for kind in operations
    }
    assert expected.ledger_ns["idle_feed"] + expected.ledger_ns["idle_turnaround"] == int((owner == "idle").sum())
    assert expected.ledger_ns["idle_feed"] == sum(150_000 + step * 104_729 % 1_009 * 100 for step in (1, 2))
    assert expected.count["kernels"] == len(run.kernels)


def test_every_launch_call_precedes_its_operation_and_none_overlap_on_a_thread() -> None:
    run = timeline(SHAPE)
    for _, calls in run.api.groupby("tid"):
        ordered = calls.sort_values("start_ns")
        assert (ordered["start_ns"].to_numpy()[1:] >= ordered["end_ns"].to_numpy()[:-1]).all()
    for rows in (run.kernels, run.copies, run.memsets):
        joined = rows.merge(run.api, on=["pid", "correlation"], suffixes=("", "_call"), validate="one_to_one")
        assert len(joined) == len(rows)
        assert (joined["start_ns_call"] < joined["start_ns"]).all()


def test_a_shape_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="multiple"):
        Shape(gpus=3, processes=2)
