"""Horovod's timelines: two real ones (two ranks on CPUs, Gloo with cycles marked, and MPI), cut anywhere."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from profiles import readers
from profiles.ground.errors import UnreadableRecording
from profiles.readers.chrome import horovod
from tests import recordings

DATA = recordings.DATA / "horovod"
REAL = ["gloo-2-ranks.json", "mpi-2-ranks.json"]


def plain_phases(path: Path) -> list[tuple[int, int, str, str, int]]:
    """With a stack a tensor, event by event."""
    names: dict[int, str] = {}
    stacks: dict[int, list[tuple[int, str]]] = {}
    found = []
    for event in json.loads(path.read_text()):
        owner = event.get("pid", -1)
        if event["ph"] == "M" and event["name"] == "process_name" and "name" in event["args"]:
            names[owner] = event["args"]["name"]
        elif event["ph"] == "B":
            stacks.setdefault(owner, []).append((event["ts"] * 1000, event["name"]))
        elif event["ph"] == "E":
            start, name = stacks[owner].pop()
            found.append((start, event["ts"] * 1000, names[owner], name, 0))
        elif event["ph"] == "X":
            at = event["ts"] * 1000
            found.append((at, at, names[owner], "READY", int(event["name"])))
        elif event["ph"] == "i":
            found.append((event["ts"] * 1000, event["ts"] * 1000, "", event["name"], 0))
    return sorted(found)


@pytest.mark.parametrize("name", REAL)
def test_the_phases_are_those_a_stack_finds(name: str) -> None:
    found = readers.read(DATA / name)
    rows = found.phases.astype({"tensor": str, "name": str}).itertuples(index=False, name=None)
    assert sorted(rows) == plain_phases(DATA / name)
    assert found.known == {"phases"}
    # One all-reduce of the loss had not begun when the run ended.
    assert found.left_out == {"phases without an end": 1}
    assert found.doubts == ()


@pytest.mark.parametrize("name", REAL)
def test_it_is_on_the_clock_of_rank_0_and_of_utc(name: str) -> None:
    recording = readers.read(DATA / name).recording
    epoch_us = json.loads((DATA / name).read_text())[0]["args"]["start_time_since_epoch_in_micros"]
    assert (recording.rank, recording.rank_source, recording.origin_utc_ns) == (0, "format", epoch_us * 1000)


def test_each_negotiation_tells_when_each_rank_was_ready() -> None:
    """A tensor that Horovod remembers is negotiated without ranks announcing themselves."""
    phases = readers.read(DATA / "mpi-2-ranks.json").phases
    first = phases[phases["tensor"] == "HorovodBroadcast"].iloc[:3]
    assert first["name"].tolist() == ["NEGOTIATE_BROADCAST", horovod.READY, horovod.READY]
    assert first["rank"].tolist() == [0, 0, 1]
    negotiation, own, other = first[["start_ns", "end_ns"]].values.tolist()
    assert negotiation[0] <= own[0] < other[0] <= negotiation[1]


MPI = (DATA / "mpi-2-ranks.json").read_bytes()


@settings(deadline=None)
@example(MPI.index(b"[]", 1500) + 2)  # the bracket at its end closes no array of events
@given(st.integers(1500, len(MPI) - 1))
def test_a_timeline_cut_anywhere_has_the_phases_that_had_ended(cut: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "timeline.json")
        path.write_bytes(MPI[:cut])
        try:
            found = readers.read(path)
        except UnreadableRecording as error:
            assert "no collective ends" in error.problem
            return
    expected = {tuple(row) for row in plain_phases(DATA / "mpi-2-ranks.json")}
    rows = set(found.phases.astype({"tensor": str, "name": str}).itertuples(index=False, name=None))
    # A name is known only once its own event is in.
    assert rows <= expected
    assert [doubt.code for doubt in found.doubts] == ["unfinished-recording"]


def test_a_trailing_comma_and_no_end_is_how_horovod_leaves_it(tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    path.write_text(
        '[\n{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "grad"}},\n'
        '{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 10, "pid": 1},\n{"ph": "E", "ts": 25, "pid": 1},\n'
        '{"ph": "B", "name": "ALLREDUCE", "ts": 25, "pid": 1},\n'
    )
    found = readers.read(path)
    assert found.phases.values.tolist() == [[10_000, 25_000, "grad", "NEGOTIATE_ALLREDUCE", 0]]
    assert found.left_out == {"phases without an end": 1}


def test_a_name_of_no_process_names_nothing(tmp_path: Path) -> None:
    """Its number is a list, or an object."""
    path = tmp_path / "timeline.json"
    named = '{"name": "process_name", "ph": "M", "pid": %s, "args": {"name": "grad"}}'
    phase = '{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 10, "pid": 1}, {"ph": "E", "ts": 25, "pid": 1}'
    path.write_text(f"[{named % '[[]]'}, {named % '{}'}, {phase}]")
    assert readers.read(path).phases["tensor"].tolist() == [""]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 1, "pid": 1}]', "no collective ends"),
        ('[{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", oops, "ts": 1}, ' * 200, "damaged before its end"),
    ],
)
def test_what_holds_no_phase_is_refused(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    path.write_text(text)
    with pytest.raises(UnreadableRecording, match=said):
        readers.read(path)
