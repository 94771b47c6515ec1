"""The measures of a generated run, written as each profiler would, against what its construction says."""

from __future__ import annotations

from pathlib import Path

import pytest

import profiles
from benchmarks.training import Shape, answers
from benchmarks.write import WRITERS

SHAPE = Shape(steps=12, kernels=60, gpus=2, processes=1)
CAUSES = (
    "idle_pause",
    "idle_feed",
    "idle_peers",
    "idle_sync",
    "idle_launch",
    "idle_turnaround",
    "idle_wait",
    "idle_unknown",
)


@pytest.mark.parametrize("kind", WRITERS)
def test_every_nanosecond_of_the_capture_has_the_owner_it_was_built_for(kind: str, tmp_path: Path) -> None:
    WRITERS[kind](SHAPE, tmp_path / "recording", None)
    measures = profiles.measure(profiles.read(tmp_path / "recording"), window="capture")
    assert len(measures.gpus) == SHAPE.gpus
    for number, gpu in enumerate(measures.gpus):
        expected = answers(SHAPE, number)
        assert gpu.span_ns == expected.span_ns
        ledger = {owner: time for owner, time in gpu.ledger_ns.items() if owner not in CAUSES}
        assert ledger == {owner: time for owner, time in expected.ledger_ns.items() if owner not in CAUSES}
        assert gpu.busy_ns == expected.busy_ns
        idle = {owner: time for owner, time in gpu.ledger_ns.items() if owner in CAUSES and time}
        if kind == "nvprof-csv":  # no calls are printed: nothing says why a GPU is idle
            assert idle == {"idle_unknown": expected.ledger_ns["idle_feed"] + expected.ledger_ns["idle_turnaround"]}
        else:
            assert idle == {cause: expected.ledger_ns[cause] for cause in ("idle_feed", "idle_turnaround")}
        assert gpu.kernels.count == expected.count["kernels"]
        assert {way: gpu.copies[way].count for way in ("h2d", "d2h", "p2p", "d2d")} == {
            way: expected.count[way] for way in ("h2d", "d2h", "p2p", "d2d")
        }


@pytest.mark.parametrize("kind", [kind for kind in WRITERS if kind != "nvprof-csv"])
def test_every_step_and_feed_gap_is_found(kind: str, tmp_path: Path) -> None:
    WRITERS[kind](SHAPE, tmp_path / "recording", None)
    measures = profiles.measure(profiles.read(tmp_path / "recording"), window="steps")
    for number, gpu in enumerate(measures.gpus):
        expected = answers(SHAPE, number)
        assert (gpu.steps.source, gpu.steps.count) == ("marks", SHAPE.steps)
        assert gpu.feed_gaps is not None
        assert (gpu.feed_gaps.count, gpu.feed_gaps.total_ns) == expected.feed_gaps
        assert gpu.feed_gaps.max_ns == int(SHAPE.feeds_ns()[1:].max())
