"""Traces of PyTorch's that somebody took events out of are known by the holes in the profiler's numbers."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from profiles import analyse, read
from profiles.model.measures import Measures
from tests.recordings import SHARED

Event = dict[str, Any]
OPERATORS = 600
NEWEST = ("Ev Idx", "External id")


def whole(numbers: tuple[str, ...] = NEWEST) -> list[Event]:
    """An operator each 100 us, its launch and its kernel, which the host is well ahead of."""
    events: list[Event] = []
    for number in range(1, OPERATORS + 1):
        at = 100.0 * number
        ids = dict.fromkeys(numbers, number)
        parts = (
            ("cpu_op", "aten::mm", at, 40.0, 7, ids),
            ("cuda_runtime", "cudaLaunchKernel", at + 10, 5.0, 7, {"correlation": number}),
            ("kernel", "gemm", at + 500, 95.0, 9, {"correlation": number, "device": 0, "stream": 9}),
        )
        for category, name, ts, dur, tid, args in parts:
            head = {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur}
            events.append(head | {"args": args})
    return events


def measured(tmp_path: Path, events: list[Event]) -> Measures:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return analyse([path]).measures


def some(share: float) -> Callable[[list[Event]], list[Event]]:
    chance = random.Random(3)
    return lambda events: [one for one in events if chance.random() < share]


def bursts(events: list[Event]) -> list[Event]:
    """Of each ten operators the first three, with all that belongs to them."""
    return [one for at, one in enumerate(events) if at // 3 % 10 < 3]


@pytest.mark.parametrize("numbers", [NEWEST, ("External id",), ("external id",)])
@pytest.mark.parametrize(("left", "least"), [(some(0.5), 0.4), (some(0.8), 0.1), (bursts, 0.3)])
def test_a_trace_with_holes_has_no_causes_and_no_finding(
    tmp_path: Path, left: Callable[[list[Event]], list[Event]], least: float, numbers: tuple[str, ...]
) -> None:
    measures = measured(tmp_path, left(whole(numbers)))
    (gpu,) = measures.gpus
    assert gpu.launches is not None and gpu.launches.thinned >= least * gpu.launches.count
    assert gpu.ledger_ns["idle_launch"] is None and gpu.ledger_ns["idle_unknown"]
    assert {one.code for one in measures.findings} <= {"loss-not-judged"}
    (doubt,) = [one for one in measures.doubts if one.code == "events-left-out"]
    assert all(doubt.next == one.change for one in measures.findings)


def slice_of_time(events: list[Event]) -> list[Event]:
    return [one for one in events if 10_000 <= one["ts"] < 50_000]


def without_python(events: list[Event]) -> list[Event]:
    """As where the calls of Python were left out, which have `Ev Idx` too."""
    return [one | {"args": _spread(one["args"])} for one in events]


def _spread(args: Event) -> Event:
    return args | ({"Ev Idx": 7 * args["Ev Idx"]} if "Ev Idx" in args else {})


def apart(events: list[Event]) -> list[Event]:
    """The numbers of a second thread's operators go on elsewhere: one hole, as wide as it may be."""
    later = {"Ev Idx": 10**9, "External id": 10**8}
    return [
        one | {"args": {key: value + (later.get(key, 0) if at > 900 else 0) for key, value in one["args"].items()}}
        for at, one in enumerate(events)
    ]


@pytest.mark.parametrize("made", [list, slice_of_time, without_python, apart, some(0.95)])
def test_a_whole_trace_or_a_slice_of_one_is_not_taken_for_thinned(
    tmp_path: Path, made: Callable[[list[Event]], list[Event]]
) -> None:
    measures = measured(tmp_path, made(whole()))
    assert not any(one.code == "events-left-out" for one in measures.doubts)
    launches = measures.gpus[0].launches
    assert launches is not None and launches.thinned == 0


SAMPLED = SHARED / "public" / "kineto"


@pytest.mark.skipif(not SAMPLED.is_dir(), reason="no recordings of others in ../shared/recordings/public")
@pytest.mark.parametrize("rank", [0, 1])
def test_a_real_trace_with_one_event_in_a_hundred_is_told(rank: int) -> None:
    assert 0.6 < read(SAMPLED / f"rank{rank}-of-128.json.gz").thinned < 0.7
