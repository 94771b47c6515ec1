"""The trace.json that XLA's profiler writes beside its XPlane holds what the XPlane does, and is read alike."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from profiles import analyse, readers
from profiles.ground.errors import UnreadableRecording
from profiles.readers import xplane
from tests import recordings
from tests.readers.test_xplane import CPU, GPUS, gpu_space

# What XLA leaves out of its trace (tsl/profiler/utils/xplane_schema.cc, IsInternalStat).
LEFT_OUT = {"kernel_details", "flops", "program_id", "symbol_id", "is_root", "_pt", "_p", "_ct", "_c"}


def micros(ps: int) -> float:
    return float(f"{ps / 1e6:.17g}")


def as_trace(space: Any) -> dict[str, Any]:
    """An XSpace as XLA's TraceContainerToJson writes it."""
    events: list[dict[str, Any]] = []
    number = 0
    for plane in space.planes:
        if not (plane.name == "/host:CPU" or plane.name.startswith("/device:")):
            continue
        number = 701 if plane.name == "/host:CPU" else 1 + plane.id
        events.append({"ph": "M", "pid": number, "name": "process_name", "args": {"name": plane.name}})
        stats = {key: entry.name for key, entry in plane.stat_metadata.items()}
        for line in plane.lines:
            where = {"pid": number, "tid": line.id & 0xFFFFFFFF}
            events.append({"ph": "M", **where, "name": "thread_name", "args": {"name": line.name}})
            for event in line.events:
                told = {stats[one.metadata_id]: value_of(one, stats) for one in event.stats}
                args = {key: str(value) for key, value in sorted(told.items()) if key not in LEFT_OUT}
                entry = plane.event_metadata[event.metadata_id]
                name = entry.display_name or entry.name
                if entry.display_name:
                    args["long_name"] = entry.name
                times = {
                    "ts": micros(line.timestamp_ns * 1000 + event.offset_ps),
                    "dur": micros(max(event.duration_ps, 1)),
                }
                events.append({"ph": "X", **where, **times, "name": name, **({"args": args} if args else {})})
    head = {"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}}
    return {**head, "traceEvents": [*sorted(events, key=lambda one: one["ph"]), {}]}


def value_of(stat: Any, names: dict[int, str]) -> Any:
    kind = stat.WhichOneof("value")
    return names[stat.ref_value] if kind == "ref_value" else getattr(stat, kind)


def rows(path: Path, table: str, without: tuple[str, ...] = ()) -> pd.DataFrame:
    frame = getattr(readers.read(path), table).drop(columns=list(without))
    texts = {name: frame[name].astype(str) for name in frame if isinstance(frame[name].dtype, pd.CategoricalDtype)}
    frame = frame.assign(tid=frame["tid"] & 0xFFFFFFFF) if "tid" in frame else frame  # 32 bits of it in the trace
    return frame.assign(**texts).sort_values(list(frame.columns), ignore_index=True)


def traced(space: Any, path: Path) -> Path:
    path.write_bytes(gzip.compress(json.dumps(as_trace(space)).encode()))
    return path


@pytest.mark.parametrize("recording", [GPUS, CPU], ids=lambda path: path.name)
def test_a_real_profile_is_the_same_table_by_table(recording: Path, tmp_path: Path) -> None:
    space = xplane.message().FromString(recording.read_bytes())
    merged = [plane for plane in space.planes if plane.name == "/host:CUPTI"]
    path = traced(space, tmp_path / "trace.json.gz")
    for table in ("kernels", "copies", "memsets", "graphs", "marks", *(() if merged else ("api",))):
        # of the programs and of kernels' launches, which the trace does not hold
        without = ("work", "operator", "blocks") if table == "kernels" else ()
        pd.testing.assert_frame_equal(rows(path, table, without), rows(recording, table, without))
    assert len(readers.read(path).marks)


def test_kernels_copies_calls_and_steps_of_a_built_profile_are_those_of_the_xplane(tmp_path: Path) -> None:
    space = gpu_space()
    whole = tmp_path / "host.xplane.pb"
    whole.write_bytes(space.SerializeToString())
    path = traced(space, tmp_path / "trace.json.gz")
    for table in ("kernels", "copies", "memsets", "graphs"):
        without = ("blocks",) if table == "kernels" else ()
        pd.testing.assert_frame_equal(rows(path, table, without), rows(whole, table, without))


def test_what_the_trace_of_jax_holds_is_measured() -> None:
    measures = analyse([recordings.DATA / "made" / "jax.trace.json.gz"]).measures
    (gpu,) = measures.gpus
    events = json.loads(gzip.decompress((recordings.DATA / "made" / "jax.trace.json.gz").read_bytes()))["traceEvents"]
    kernels = [event for event in events if event.get("ph") == "X" and event["pid"] == 1]
    first = min(event["ts"] for event in kernels)
    last = max(event["ts"] + event["dur"] for event in kernels)
    assert gpu.span_ns == round(1000 * (last - first)) and gpu.kernels.count == len(kernels) == 300
    assert gpu.busy_ns["compute"] == sum(round(1000 * event["dur"]) for event in kernels)
    assert gpu.ledger_ns["idle_unknown"] == gpu.span_ns - gpu.busy_ns["compute"]


def made(*events: dict[str, Any], plane: str = "/device:GPU:0") -> str:
    names = [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": plane}},
        {"ph": "M", "pid": 1, "tid": 2, "name": "thread_name", "args": {"name": "Stream #7(Compute)"}},
    ]
    return json.dumps({"displayTimeUnit": "ns", "traceEvents": [*names, *events, {}]})


@pytest.mark.parametrize(
    ("broken", "left_out"),
    [
        ({"ts": "1e400", "dur": 1}, "without times"),
        ({"ts": "1e1000000", "dur": 1}, "without times"),
        ({"ts": None, "dur": 1}, "without times"),
        ({"ts": 5, "dur": float("inf")}, "without times"),
        ({"ts": 5, "dur": 1, "pid": [1]}, "not an event"),
    ],
)
def test_an_event_that_cannot_be_is_left_out_and_counted(broken: dict[str, Any], left_out: str, tmp_path: Path) -> None:
    event = {"ph": "X", "pid": 1, "tid": 2, "name": "fusion", "ts": 1.000_5, "dur": 2}
    path = tmp_path / "trace.json"
    path.write_text(made(event, {**event, **broken}))
    timeline = readers.read(path)
    assert timeline.left_out[left_out] == 1
    assert timeline.kernels[["start_ns", "end_ns", "stream"]].to_numpy().tolist() == [[1000, 3000, 7]]


def test_a_trace_as_long_as_xla_writes_says_that_more_may_be_lost(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("profiles.readers.xla_trace._MOST", 3)
    path = tmp_path / "trace.json"
    events = [{"ph": "X", "pid": 1, "tid": 2, "name": "fusion", "ts": 5 * at, "dur": 2} for at in range(3)]
    for kept, codes in ((events[:2], set()), (events, {"dropped-events"})):
        path.write_text(made(*kept))
        assert {doubt.code for doubt in readers.read(path).doubts} == codes


def test_a_profile_of_a_tpu_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(made({"ph": "X", "pid": 1, "tid": 2, "name": "op", "ts": 1, "dur": 2}, plane="/device:TPU:0"))
    with pytest.raises(UnreadableRecording, match="a TPU"):
        readers.read(path)
