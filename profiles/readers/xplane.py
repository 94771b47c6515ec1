"""TensorFlow's profiler: an XSpace of planes (`*.xplane.pb`), one a GPU, one for the host, one for CUDA calls.

A line of a GPU's plane is a stream; what its events are, their statistics say. Times are nanoseconds of the line plus
picoseconds of the event, counted from the session's start, whose time of day the plane "Task Environment" has.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from .. import marks
from ..doubts.recordings import impossible_times, no_gpu, profiler_warnings
from ..errors import UnreadableRecording
from ..timeline import Doubt, Recording, Timeline, make
from . import hlo, messages
from .chrome import events as chrome
from .tables import printed

Array = np.ndarray

# The first plane's tag and length, its number or not, and the first letters of its name.
_HEAD: Final = re.compile(
    rb"\n[\x80-\xff]{0,5}[\x00-\x7f](?:\x08[\x80-\xff]{0,9}[\x00-\x7f])?\x12[\x01-\x7f]"
    rb"(?:/|Task Env|Host CPUs|Syscalls)",
    re.DOTALL,
)
_GPU: Final = re.compile(r"/device:GPU:(\d{1,9})")
_STREAM: Final = re.compile(r"Stream #(\d{1,9})")
_MEMORY: Final = {
    "pageable": "pageable", "host": "pageable", "pinned": "pinned", "host_pinned": "pinned", "device": "device",
    "array": "array", "managed": "managed", "device_static": "device", "managed_static": "managed",
}  # fmt: skip
_CALL: Final = re.compile(r"cu(da)?[A-Z]")
_WAYS: Final = {"MemcpyH2D": "HtoD", "MemcpyD2H": "DtoH", "MemcpyD2D": "DtoD", "MemcpyP2P": "Peer"}
_KINDS: Final = {"MemcpyH2D": "h2d", "MemcpyD2H": "d2h", "MemcpyD2D": "d2d", "MemcpyP2P": "p2p"}
_HOST_PLANES: Final = {"/host:CPU": "TSL", "/host:NVTX-CUPTI": "", "/host:python-tracer": "python"}
_CALLS_PLANE: Final = "/host:CUPTI"
_PROGRAMS_PLANE: Final = "/host:metadata"
_WANTED: Final = re.compile(
    r"^(?:(?:correlation|context|cuda_graph_exec|cuda_graph_node)_id|tf_op|name|hlo_op|hlo_module|program_id)$|_details$"
)
_LIMIT: Final = 1 << 60
_MOST_BYTES: Final = 1 << 31  # of protobuf
_RECORD: Final = "record again, and let the profiler stop before training ends"


def detects(head: bytes, path: Path) -> bool:
    """A protobuf message that begins with a plane of a name that profilers give."""
    return _HEAD.match(head) is not None


def message() -> type[Any]:
    """The class of XSpace."""
    return messages.message("xplane.desc", "tensorflow.profiler.XSpace")


def read(path: Path) -> Timeline:
    """GPU operations where a GPU was profiled, and the host's ranges as marks.

    Raises UnreadableRecording where the message is broken, or has neither.
    """
    from google.protobuf.message import DecodeError

    if path.stat().st_size > _MOST_BYTES:
        raise UnreadableRecording(path, "larger than 2 GiB, which no such profile can be", _RECORD)
    try:
        space = message().FromString(path.read_bytes())
    except (DecodeError, ValueError, RecursionError) as error:
        problem = f"looks like TensorFlow's profile, but breaks off or is damaged ({error})"
        raise UnreadableRecording(path, problem, _RECORD) from None
    found = _Found(programs=_programs(space))
    started_ns = None
    for plane in space.planes:
        if match := _GPU.fullmatch(plane.name):
            found.add_gpu(plane, int(match[1]))
        elif plane.name == _CALLS_PLANE:
            found.add_host(plane, "")
        elif plane.name in _HOST_PLANES:
            found.add_host(plane, _HOST_PLANES[plane.name])
        elif plane.name == "Task Environment":
            started_ns = {name: value for name, value in _stats(plane, plane.stats)}.get("profile_start_time")
    if not found.gpus and any(plane.name.startswith("/device:TPU") for plane in space.planes):
        problem = "a profile of a TPU: its operations are no kernels on streams, and are not read"
        raise UnreadableRecording(path, problem, "look at it with XProf (TensorBoard's profile plugin)")
    frames = {table: pd.concat(parts, ignore_index=True) for table, parts in found.parts.items() if parts}
    if not frames:
        raise UnreadableRecording(path, "a TensorFlow profile without GPU work and without ranges", _RECORD)
    tables = {table: _with_texts(frame) for table, frame in frames.items()}
    tables["devices"] = pd.DataFrame(
        {"device": list(found.gpus), "uuid": "", "bus_id": "", "name": list(found.gpus.values())}
    )
    started = started_ns if type(started_ns) is int and 0 < started_ns < _LIMIT * 4 else None
    origin = min(int(frame["start_ns"].min()) for frame in frames.values())
    # Later than 2001 the times are those of the epoch themselves.
    from_epoch = origin >= 10**18
    for frame in tables.values():
        if "start_ns" in frame and from_epoch:
            frame["start_ns"] -= origin
            frame["end_ns"] -= origin
    return make(
        Recording(
            path=str(path),
            format="xplane",
            tool="TensorFlow profiler",
            origin_ns=origin if from_epoch else 0,
            origin_utc_ns=origin if from_epoch else started,
        ),
        tables,
        known=frozenset({"devices", *found.known}),
        doubts=_doubts(found, space),
        left_out={reason: count for reason, count in found.left_out.items() if count},
        differentiates=found.programs.differentiate(),
    )


@dataclass(slots=True)
class _Found:
    """Frames by table, plane by plane; texts are still plain lists of objects."""

    programs: _Programs
    parts: dict[str, list[pd.DataFrame]] = field(default_factory=lambda: defaultdict(list))
    gpus: dict[int, str] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    left_out: Counter[str] = field(default_factory=Counter)

    def add_gpu(self, plane: Any, device: int) -> None:
        self.gpus[device] = next((str(v) for k, v in _stats(plane, plane.stats) if k == "gpu_device_name"), "")
        tables = {"kernels", "graphs", "copies", "memsets"}
        self.known |= tables
        events, stats = _metadata(plane)
        keep = {number for number, name in stats.items() if _WANTED.search(name)}
        for line in plane.lines:
            stream = _STREAM.match(line.name)
            if not stream:
                self.left_out[f"line {line.name or line.id}"] += len(line.events)
                continue
            rows = self._timed(line, events, stats, keep)
            place = {"device": np.int32(device), "stream": np.int32(stream[1])}
            for table, chosen in _by_table(rows).items():
                if table not in tables:
                    self.left_out[table] += len(chosen)
                    continue
                self.parts[table].append(_operations(table, chosen, self.programs).assign(**place))

    def add_host(self, plane: Any, domain: str) -> None:
        self.known.add("api" if plane.name == _CALLS_PLANE else "marks")
        events, stats = _metadata(plane)
        for line in plane.lines:
            rows = self._timed(line, events, stats, stats)
            calls = [row for row in rows if _is_call(row, plane.name)]
            marks = [row for row in rows if not _is_call(row, plane.name)]
            for table, chosen in (("api", calls), ("marks", marks)):
                if not chosen:
                    continue
                self.known.add(table)
                frame = _times(chosen).assign(tid=np.int64(line.id))
                if table == "api":
                    frame = frame.assign(
                        correlation=_integers(chosen, "correlation_id"), name=[_call_name(r) for r in chosen]
                    )
                else:
                    names = [_mark_name(row) for row in chosen]
                    frame = frame.assign(open=False, domain=domain, name=names)
                self.parts[table].append(frame)

    def _timed(self, line: Any, names: dict[int, str], stats: dict[int, str], keep: Container[int]) -> list[_Row]:
        """The events of a line with whole times; others are counted.

        names, stats: what the plane calls them. keep: the numbers of the statistics wanted, a few of a dozen.
        """
        rows = []
        for event in line.events:
            start = line.timestamp_ns * 1000 + event.offset_ps
            if event.duration_ps < 0:
                self.left_out["ends before it starts"] += 1
            elif abs(start) + event.duration_ps >= _LIMIT * 1000 or event.WhichOneof("data") == "num_occurrences":
                self.left_out["without times"] += 1
            else:
                values = {stats[s.metadata_id]: _value(s, stats) for s in event.stats if s.metadata_id in keep}
                end = (start + event.duration_ps) // 1000
                rows.append(_Row(start // 1000, end, names.get(event.metadata_id, ""), values))
        return rows


@dataclass(frozen=True, slots=True)
class _Row:
    start_ns: int
    end_ns: int
    name: str
    stats: dict[str, Any]


def _metadata(plane: Any) -> tuple[dict[int, str], dict[int, str]]:
    """Names of events and of statistics by their numbers."""
    events = {number: entry.name for number, entry in plane.event_metadata.items()}
    return events, {number: entry.name for number, entry in plane.stat_metadata.items()}


def _stats(plane: Any, stats: Iterable[Any]) -> Iterable[tuple[str, Any]]:
    names = _metadata(plane)[1]
    return [(names.get(stat.metadata_id, ""), _value(stat, names)) for stat in stats]


def _value(stat: Any, names: dict[int, str]) -> Any:
    kind = stat.WhichOneof("value")
    if kind == "ref_value":
        return names.get(stat.ref_value, "")
    return getattr(stat, kind) if kind else None


def _by_table(rows: list[_Row]) -> dict[str, list[_Row]]:
    """Rows of a stream by table, or by why they have none."""
    found: dict[str, list[_Row]] = defaultdict(list)
    for row in rows:
        if "memcpy_details" in row.stats or row.name in _KINDS or row.name == "MemcpyOther":
            found["copies"].append(row)
        elif "Memset_details" in row.stats or "memset_details" in row.stats or row.name == "Memset":
            found["memsets"].append(row)
        elif "kernel_details" in row.stats:
            found["kernels"].append(row)
        elif "cuda_graph_exec_id" in row.stats:
            found["graphs"].append(row)
        elif any(key.lower().endswith("_details") for key in row.stats):
            found["memory events"].append(row)
        else:
            found["kernels"].append(row)
    return found


def _times(rows: list[_Row]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "start_ns": np.array([row.start_ns for row in rows], dtype=np.int64),
            "end_ns": np.array([row.end_ns for row in rows], dtype=np.int64),
            "pid": np.int64(-1),
        }
    )


def _operations(table: str, rows: list[_Row], programs: _Programs) -> pd.DataFrame:
    frame = _times(rows).assign(correlation=_integers(rows, "correlation_id"))
    contexts = [str(row.stats.get("context_id", "")).lstrip("$") for row in rows]
    frame["context"] = chrome.integers(contexts, bits=32)
    if table == "graphs":
        return frame.assign(graph=_integers(rows, "cuda_graph_exec_id"))
    frame["graph_node"] = np.maximum(_integers(rows, "cuda_graph_node_id"), 0)
    if table == "kernels":
        texts = {"operator": [_operator(row) for row in rows], "work": [programs.work(row) for row in rows]}
        return frame.assign(name=[row.name for row in rows], **texts)
    key = "memcpy_details" if table == "copies" else "Memset_details"
    details = [_details(row.stats.get(key) or row.stats.get(key.lower())) for row in rows]
    sizes = chrome.integers(detail.get("size", detail.get("num_bytes")) for detail in details)
    frame["bytes"] = np.maximum(sizes, 0)
    if table == "memsets":
        return frame
    peer = np.array([row.name == "MemcpyP2P" for row in rows], dtype=bool)
    target = chrome.integers((detail.get("dest") for detail in details), bits=32)
    return frame.assign(
        kind=[_KINDS.get(row.name, "other") for row in rows],
        src_kind=[_MEMORY.get(detail.get("kind_src", ""), "unknown") for detail in details],
        dst_kind=[_MEMORY.get(detail.get("kind_dst", ""), "unknown") for detail in details],
        src_device=np.int32(-1),
        dst_device=np.where(peer, target, np.int32(-1)),
    )


def _details(text: Any) -> dict[str, str]:
    """`kind_src:pageable kind_dst:device size:4 dest:0 async:1` by key."""
    pairs = (part.partition(":") for part in text.split(" ")) if isinstance(text, str) else ()
    return {key: value for key, colon, value in pairs if colon}


def _integers(rows: list[_Row], key: str) -> Array:
    return chrome.integers(row.stats.get(key) for row in rows)


def _operator(row: _Row) -> str:
    """What a kernel belongs to: the framework's path, else the instruction of the compiler; "" where nothing is said.

    A CUDA graph that the compiler made has many instructions in it: its kernels are called as these are.
    """
    told = [str(row.stats.get(key) or "") for key in ("name", "tf_op", "hlo_op")]
    path, operation, instruction = (text.rstrip(":") for text in told)
    if instruction.startswith("command_buffer"):
        instruction = row.name
    if "/" in path:
        return path
    return operation if operation and operation != "XlaModule" else instruction


class _Programs:
    """The compiled programs of a profile, each read when a kernel is of it."""

    def __init__(self, serialized: dict[str, bytes]) -> None:
        self._serialized = serialized
        self._read: dict[str, hlo.Program | None] = {}

    def work(self, row: _Row) -> str:
        """What a kernel was launched to compute, as readers.hlo writes it; "" where it is not known."""
        instruction, module = row.stats.get("hlo_op"), row.stats.get("hlo_module")
        if not isinstance(instruction, str) or not isinstance(module, str):
            return ""
        name = f"{module}({row.stats.get('program_id')})"
        if name not in self._read:
            serialized = self._serialized.get(name) or self._serialized.get(module)
            self._read[name] = hlo.program(serialized) if serialized else None
        program = self._read[name]
        return program.of_kernel(instruction, row.name) if program else ""

    def differentiate(self) -> bool | None:
        """Whether any program that ran holds a derivative; None where nothing tells."""
        told = {program.differentiates for program in self._read.values() if program}
        if True in told:
            return True
        return False if False in told and None not in told else None


def _programs(space: Any) -> _Programs:
    found = {}
    for plane in space.planes:
        if plane.name == _PROGRAMS_PLANE:
            stats = _metadata(plane)[1]
            for entry in plane.event_metadata.values():
                for stat in entry.stats:
                    if stats.get(stat.metadata_id, "").lower().replace(" ", "_") == "hlo_proto":
                        found[entry.name] = stat.bytes_value
    return _Programs(found)


def _is_call(row: _Row, plane: str) -> bool:
    """CUDA calls have a plane of their own, or lie among the host's ranges when planes were merged."""
    return plane == _CALLS_PLANE or "correlation_id" in row.stats or _CALL.match(row.name) is not None


def _call_name(row: _Row) -> str:
    """The driver's name of a call: the profiler calls it by what it launches, a copy's way or a kernel's name."""
    if _CALL.match(row.name):
        return row.name.partition(" (CudaGraph:")[0]
    details = _details(row.stats.get("memcpy_details") or row.stats.get("Memset_details"))
    waits = "" if details.get("async") == "0" else "Async"
    if row.name.startswith("Memcpy"):
        return f"cuMemcpy{_WAYS.get(row.name, '')}{waits}"
    return f"cuMemset{waits}" if row.name == "Memset" else "cuLaunchKernel"


def _mark_name(row: _Row) -> str:
    """As the same range is called in an NVTX recording.

    Arguments are kept apart from names here: those of a range without a name are put back, `#edge_name=ret_0#`, and a
    step that `tf.profiler.experimental.Trace("train", step_num=3)` marks is `step 3`; one called `eval` keeps its name,
    `eval#step_num=3#`.
    """
    step = row.stats.get("step_num")
    if type(step) is int:
        training = "#" in row.name or row.name.lower().startswith(("train", "step"))
        return marks.step(step) if training or not row.name else f"{row.name}#step_num={step}#"
    if row.name:
        return row.name.removeprefix("NVTX:")
    return "#" + ",".join(f"{key}={value}" for key, value in row.stats.items()) + "#"


def _with_texts(frame: pd.DataFrame) -> pd.DataFrame:
    for column in ("name", "domain", "kind", "src_kind", "dst_kind", "operator", "work"):
        if column in frame:
            codes, texts = pd.factorize(frame[column])
            frame[column] = printed.categorical(codes, list(texts))
    return frame


def _doubts(found: _Found, space: Any) -> tuple[Doubt, ...]:
    doubts = []
    if not found.gpus:
        doubts.append(no_gpu())
    said = [*space.errors, *space.warnings]
    if said:
        doubts.append(profiler_warnings(said[0][:200], len(said) - 1))
    if damaged := found.left_out["without times"] + found.left_out["ends before it starts"]:
        doubts.append(impossible_times(f"{damaged} events", _RECORD))
    return tuple(doubts)
