"""Launches that come after a small copy: on a real recording against plain loops over its rows."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

import profiles
from profiles import read
from profiles.gpus.gather import gather
from profiles.ledger.account import account
from profiles.ledger.window import Window
from profiles.metrics.held_launches import held_launches
from profiles.model.tables import COLUMNS
from profiles.steps.find import find
from tests.made.bruteforce import BruteForce
from tests.made.training import MS, training
from tests.recordings import DATA


@pytest.mark.parametrize(
    "name, held",
    [("resnet50-4gpu-compiled.rank0", True), ("gru-1gpu.rank0", True), ("resnet50-2gpu-device.rank0", False)],
)
def test_held_launches_of_a_real_recording_are_those_of_plain_loops(name: str, held: bool) -> None:
    timeline = read(DATA / f"{name}.sqlite.xz")
    (gpu,) = gather([timeline])
    steps = find(gpu, [timeline], [0])
    window = (int(steps.start_ns[0]), int(steps.end_ns[-1]))
    found = held_launches(account([timeline], [0], gpu, steps, Window(*window)), steps)
    brute = BruteForce([timeline], list(gpu.places), steps, window)
    gaps, sizes, idle = 0, [], 0
    for before, start in zip(steps.prev_last_kernel_end_ns.tolist(), steps.start_ns.tolist(), strict=True):
        if not window[0] <= before < start:
            continue
        gaps += 1
        for op in brute.ops:
            if op.owner != "h2d" or op.size >= 65536 or not before <= op.start < start:
                continue
            if op.start - max((other.end for other in brute.ops if other.start < op.start), default=op.start) > 50_000:
                continue
            first = next(kernel for kernel in brute.ops if kernel.kernel and kernel.start >= start)
            ended_by = next(owner for a, b, owner in brute.pieces if a < start <= b)
            if first.call is not None and op.end <= first.call[0] and ended_by == "idle_launch":
                sizes.append(op.size)
                idle += brute.ledger((op.end, start))["idle_launch"]
            break
    expected = {"gaps": gaps, "count": len(sizes), "idle_launch_ns": idle}
    assert found is not None and {key: found[key] for key in expected} == expected
    assert bool(sizes) == held and (not held or found["bytes"] == sorted(sizes)[len(sizes) // 2])


@pytest.mark.parametrize("marked", [False, True])
def test_a_small_copy_that_brings_a_batch_holds_no_launch(marked: bool) -> None:
    timeline = training(late_ns=MS, small_copy=1024)
    calls = timeline.api[timeline.api["correlation"].isin(timeline.copies["correlation"])]
    ranges = calls.drop(columns="correlation").assign(
        domain="ringscope", open=False, name=[f"batch {number}" for number in range(len(calls))]
    )
    if marked:
        marks = pd.concat([timeline.marks.astype({"domain": str, "name": str}), ranges])
        timeline = replace(timeline, marks=marks.astype(dict(COLUMNS["marks"])))
    (gpu,) = profiles.measure(timeline).gpus
    assert gpu.held_launches is not None
    assert gpu.held_launches["count"] == (0 if marked else 7)
