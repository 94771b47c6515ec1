"""Real recordings, ours and other people's: the ledger of every GPU equals plain Python loops to the nanosecond."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import cycle
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from profiles import read
from profiles.gpus.gather import gather
from profiles.gpus.merged import told_apart
from profiles.ground import intervals
from profiles.ground.errors import UnreadableRecording
from profiles.ledger.account import account, exposed_inputs
from profiles.ledger.window import Window, of_steps
from profiles.model.tables import COLUMNS
from profiles.steps.find import find
from tests.made.bruteforce import CLASS_NAMES, BruteForce
from tests.recordings import ROOT
from tests.recordings import timeline as timeline_of
from tests.tiers import few

SHARED = ROOT.parent / "shared" / "recordings"
OURS = sorted((ROOT / "tests" / "data").glob("*.sqlite.xz"))
# Not third/hostile, which is there to be refused: tests/readers holds that.
THEIRS = sorted(
    path
    for path in SHARED.glob("*/**/*")
    if path.is_file() and path.suffix != ".md" and "hostile" not in path.relative_to(SHARED).parts
)
# What tells of no GPU's timeline at all; refused by the reader, which its own tests hold.
REFUSED = (
    *("no-gpu-work", "visual-profiler-xml", "nsys-api-sum", "nsys-kern-sum", "nsys-mem-time-sum", "api-trace"),
    *("k_none", "nccl_profiler", "nccl_inspector"),
)


LARGE_BYTES = 1 << 20  # of which plain loops take seconds


def cases() -> list[Any]:
    """Each seventh in `make test`, where it is not large; of those that are, each fifth in `.ci/run`."""
    every = [*OURS, *THEIRS]
    large = [path.stat().st_size > LARGE_BYTES for path in every]
    found = zip(every, few(every, 7), large, strict=True)
    marks = cycle([pytest.mark.ci, *[pytest.mark.exhaustive] * 4])
    return [pytest.param(path, marks=next(marks)) if is_large else case for path, case, is_large in found]


@lru_cache(maxsize=1)
def loops_of(path: Path):
    """(GPU, its steps, {name of a window: window}, what plain loops make of all windows together) of each GPU."""
    found, timeline = [], told_apart(timeline_of(path))
    for gpu in gather([timeline]):
        steps = find(gpu, [timeline], [0])
        windows = {"capture": (int(gpu.operations.start_ns.min()), int(gpu.operations.end_ns.max()))}
        if steps.count:
            windows["steps"] = (int(steps.start_ns[0]), int(steps.end_ns[-1]))
        both = min(start for start, _ in windows.values()), max(end for _, end in windows.values())
        brute = BruteForce([timeline], list(gpu.places), steps, both, off_clock=bool(gpu.off_clock))
        found.append((gpu, steps, windows, brute))
    return found


@pytest.mark.parametrize("window_of", ["steps", "capture"])
@pytest.mark.parametrize("path", cases(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_ledger_of_a_real_recording_is_that_of_plain_loops(path: Path, window_of: str):
    if any(name in path.name for name in REFUSED):
        with pytest.raises(UnreadableRecording):
            read(path)
        return
    timeline = told_apart(timeline_of(path))
    assert loops_of(path)
    for gpu, steps, windows, brute in loops_of(path):
        if window_of not in windows:
            continue
        window = windows[window_of]
        books = account([timeline], [0], gpu, steps, Window(*window))
        expected, busy, breaks = brute.ledger(window), brute.busy(window), intervals.EMPTY
        if window_of == "steps":
            whole = of_steps(steps)
            books, breaks = account([timeline], [0], gpu, steps, whole), whole.breaks
        for one in zip(breaks.start.tolist(), breaks.end.tolist(), strict=True):
            expected = {name: ns - brute.ledger(one)[name] for name, ns in expected.items()}
            busy = {name: ns - brute.busy(one)[name] for name, ns in busy.items()}
        known = {name: ns for name, ns in books.ledger_ns.items() if ns is not None}
        if books.ledger_ns["idle_launch"] is None:  # without API rows, or kernels, all idle time is of unknown cause
            idle = sum(ns for name, ns in expected.items() if name.startswith("idle") and name != "idle_pause")
            expected = {name: expected[name] for name in [*CLASS_NAMES, "idle_pause"]} | {"idle_unknown": idle}
        assert known == {name: expected[name] for name in known}
        assert sum(known.values()) == window[1] - window[0] - breaks.total
        assert {name: ns for name, ns in books.busy_ns.items() if ns is not None} == {
            name: ns for name, ns in busy.items() if books.busy_ns[name] is not None
        }
        if not len(breaks):
            assert tuple(one.total for one in exposed_inputs(books)) == brute.exposed_inputs(window)


@pytest.mark.parametrize("ahead, fed", [(0, True), (1, False), pytest.param(2, False, marks=pytest.mark.exhaustive)])
def test_batches_marked_in_a_real_recording_say_which_copies_the_steps_wait_for(ahead: int, fed: bool):
    """The copies due in each batch gap, marked as the batch of the next step, or of one that comes `ahead` later."""
    timeline = timeline_of(ROOT / "tests" / "data" / "resnet50-2gpu-prefetch.rank0.sqlite.xz")
    steps = timeline.marks[timeline.marks["name"].astype(str).str.fullmatch(r"step \d+")].sort_values("start_ns")
    api = timeline.api.set_index("correlation")
    copies = timeline.copies[(timeline.copies["kind"] == "h2d") & (timeline.copies["bytes"] > 1 << 20)]
    calls = api.loc[copies["correlation"]].sort_values("start_ns")
    first = int(str(steps["name"].iloc[0]).removeprefix("step ")) - int(
        (calls["start_ns"] < steps["start_ns"].iloc[0]).sum()
    )
    rows = [
        {"start_ns": call.start_ns - 9, "end_ns": call.end_ns + 9, "open": False, "pid": call.pid, "tid": call.tid}
        | {"domain": "ringscope", "name": f"batch {first + place + ahead}"}
        for place, call in enumerate(calls.itertuples())
    ]
    marks = pd.concat([timeline.marks.astype({"domain": str, "name": str}), pd.DataFrame(rows)])
    marked = replace(timeline, marks=marks.astype(dict(COLUMNS["marks"])))
    (gpu,) = gather([marked])
    found = find(gpu, [marked], [0])
    window = (int(found.start_ns[0]), int(found.end_ns[-1]))
    books = account([marked], [0], gpu, found, Window(*window))
    brute = BruteForce([marked], list(gpu.places), found, window)
    assert books.ledger_ns == brute.ledger() and books.inputs is not None and books.inputs.certain
    assert tuple(one.total for one in exposed_inputs(books)) == brute.exposed_inputs()
    assert bool(books.ledger_ns["idle_feed"]) == fed


@pytest.mark.skipif(SHARED.exists(), reason="the shared recordings are here: they are tested above")
def test_other_peoples_recordings_are_not_here():
    pytest.skip(f"{SHARED} is absent: other people's recordings are not tested")
