"""Horovod's own timeline beside one rank's recording tells how long that rank waited for the others."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from profiles import analyse, read
from profiles.ledger.negotiated import Negotiated
from profiles.measuring import partial_file
from profiles.measuring.one_recording import Asked, gather_unit, measure
from profiles.model.measures import GpuMeasures
from profiles.model.timeline import Timeline
from tests.made.build import Build

US, MS = 1_000, 1_000_000
UTC = 1_700_000_000 * 10**9
STEPS, STEP = 12, 100 * MS
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def recording(rank: int, *, ranges: bool, late: int = 60, origin_ns: int = 0) -> Timeline:
    """A rank that computes for 10 ms of a step, has its gradients ready at 12 (rank 1: `late`), and launches their
    exchange at 61 ms."""
    made = Build(rank=rank, device=rank, path=f"rank{rank}", origin_utc_ns=UTC + origin_ns)
    made.device(rank, uuid=f"GPU-{rank}")
    ready = late if rank else 12
    for step in range(STEPS):
        at = step * STEP - origin_ns
        made.mark(f"step {step}", at, at + STEP, domain="ringscope")
        made.kernel(at + US, at + (ready - 2) * MS, "backward", call=(at, at + US // 2))
        made.kernel(at + 61 * MS + 9 * US, at + 63 * MS, ALL_REDUCE, call=(at + 61 * MS, at + 61 * MS + US), tid=9)
        if ranges:
            made.exchange("HorovodAllreduce", at + ready * MS, at + 64 * MS, 1 << 20)
    return made.timeline()


def horovods(path: Path, *, late: int = 60, ranks: int = 2, tensors: int = 2, epoch: bool = True) -> Timeline:
    """The timeline that the coordinator writes; tensors are exchanged together."""
    events: list[dict[str, object]] = []
    for tensor in range(1, tensors + 1):
        origin = {"start_time_since_epoch_in_micros": UTC // US} if epoch else {}
        events.append({"ph": "M", "name": "process_name", "pid": tensor, "args": {"name": f"g{tensor}", **origin}})
    for step in range(STEPS):
        at = step * STEP / US
        for tensor in range(1, tensors + 1):
            events.append({"ph": "B", "pid": tensor, "name": "NEGOTIATE_ALLREDUCE", "ts": at + 11_000})
            for rank in range(ranks):
                ready = (late if rank else 12) * 1000 - (tensors - tensor)
                events.append({"ph": "X", "pid": tensor, "name": str(rank), "ts": at + ready, "dur": 0})
            events.append({"ph": "E", "pid": tensor, "ts": at + 60_500})
            events.append({"ph": "B", "pid": tensor, "name": "ALLREDUCE", "ts": at + 60_700})
            events.append({"ph": "B", "pid": tensor, "name": "NCCL_ALLREDUCE", "ts": at + 60_900})
            events += [{"ph": "E", "pid": tensor, "ts": at + 63_000}, {"ph": "E", "pid": tensor, "ts": at + 63_100}]
    path.write_text(json.dumps(events))
    return read(path)


def first(*recordings: Timeline) -> GpuMeasures:
    return analyse(recordings, window="capture").measures.gpus[0]


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("origin_ns", [0, 7 * MS + 13])
def test_one_recording_and_horovods_timeline_tell_what_all_recordings_do(
    ranges: bool, origin_ns: int, tmp_path: Path
) -> None:
    """With Horovod's ranges, and as of Kineto without: then the timeline tells when this rank was ready, too."""
    both = first(recording(0, ranges=True, origin_ns=origin_ns), recording(1, ranges=True))
    alone = first(recording(0, ranges=ranges, origin_ns=origin_ns))
    with_it = first(recording(0, ranges=ranges, origin_ns=origin_ns), horovods(tmp_path / "timeline.json"))
    assert alone.ledger_ns["idle_peers"] is None and both.ledger_ns["idle_peers"] == STEPS * 48 * MS
    assert with_it.ledger_ns == both.ledger_ns
    assert with_it.collectives.peers_or_launch_ns == 0 < alone.collectives.peers_or_launch_ns


def test_what_the_host_took_after_the_last_rank_was_ready_stays_launch(tmp_path: Path) -> None:
    gpu = first(recording(0, ranges=True), horovods(tmp_path / "timeline.json", late=30))
    assert gpu.ledger_ns["idle_peers"] == STEPS * 18 * MS
    assert gpu.ledger_ns["idle_launch"] >= STEPS * 31 * MS


def test_a_timeline_that_does_not_say_when_it_was_made_or_of_no_other_rank_tells_nothing(tmp_path: Path) -> None:
    for said in ({"epoch": False}, {"ranks": 1}):
        gpu = first(recording(0, ranges=True), horovods(tmp_path / "timeline.json", **said))
        assert gpu.ledger_ns["idle_peers"] is None
    unknown = recording(0, ranges=True)
    unknown = replace(unknown, recording=replace(unknown.recording, rank=None))
    assert first(unknown, horovods(tmp_path / "timeline.json")).ledger_ns["idle_peers"] is None


def test_a_partial_file_keeps_what_the_timeline_tells(tmp_path: Path) -> None:
    unit = gather_unit([horovods(tmp_path / "timeline.json")], (0,), (0,), Asked())
    measure(unit, {}, Asked())
    with partial_file.written(tmp_path / "one.partial", [unit], [], Asked()):
        pass
    (again,) = partial_file.read(tmp_path / "one.partial", Asked())
    told, kept = unit.recordings[0].negotiated, again.recordings[0].negotiated
    assert told is not None and kept is not None and len(told.of) == STEPS * 2 * 2
    assert all((getattr(told, name) == getattr(kept, name)).all() for name in Negotiated.__slots__)
