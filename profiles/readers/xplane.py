"""Read profiles of TensorFlow and JAX (`*.xplane.pb`): an XSpace with a plane per GPU, for the host and for CUDA calls.

Each line of a GPU's plane is a stream, and the statistics of an event tell its kind. The start of an event is the
line's timestamp (ns) plus the event's offset (ps), since the session's start; the plane "Task Environment" has the time
of day of that start.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from ..doubts.recordings import no_gpu, profiler_warnings, python_traced
from ..ground.errors import UnreadableRecording
from ..ground.files import open_regular
from ..model import xla_names
from ..model.timeline import WITHOUT_TIMES, Doubt, Recording, Timeline, make
from . import messages, planes, programs
from .chrome import events as chrome
from .programs import Programs
from .tables import printed
from .tables.gathering import Device, blocks, gpus, multiprocessors

# The first bytes of an XSpace: tag and length of the first plane, the plane's id (optional), and the start of its
# name.
_HEAD: Final = re.compile(
    rb"\n[\x80-\xff]{0,5}[\x00-\x7f](?:\x08[\x80-\xff]{0,9}[\x00-\x7f])?\x12[\x01-\x7f]"
    rb"(?:/|Task Env|Host CPUs|Syscalls)",
    re.DOTALL,
)
GPU: Final = re.compile(r"/device:GPU:(\d{1,9})")
STREAM: Final = re.compile(r"Stream #(\d{1,9})")
_MEMORY: Final = {
    "pageable": "pageable", "host": "pageable", "pinned": "pinned", "host_pinned": "pinned", "device": "device",
    "array": "array", "managed": "managed", "device_static": "device", "managed_static": "managed",
}  # fmt: skip
_PYTHON: Final = "$"  # names of Python calls begin with this
HOST_PLANES: Final = {"/host:CPU": "TSL", "/host:NVTX-CUPTI": "", "/host:python-tracer": "python"}
_WANTED: Final = re.compile(
    r"^(?:(?:correlation|context|cuda_graph_exec|cuda_graph_node)_id|tf_op|name|hlo_op|hlo_module|program_id)$|_details$"
)
OPERATIONS: Final = ("kernels", "graphs", "copies", "memsets")
LIMIT: Final = 1 << 60
_DIGITS: Final = 11  # a grid's extent has at most ten
_MOST_BYTES: Final = 1 << 31  # protobuf's limit for the bytes of a message
_RECORD: Final = "record again, and let the profiler stop before training ends"


def detects(head: bytes, path: Path) -> bool:
    """True if the file begins with a plane that has a profiler's plane name."""
    return _HEAD.match(head) is not None


def message() -> type[Any]:
    """The class of XSpace."""
    return messages.message("xplane.desc", "tensorflow.profiler.XSpace")


def read(path: Path) -> Timeline:
    """Read the GPU operations, and the host's ranges as marks. Raises UnreadableRecording if the file is damaged, or
    has neither operations nor ranges."""
    from google.protobuf.message import DecodeError

    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > _MOST_BYTES:
            raise UnreadableRecording(path, "larger than 2 GiB, the limit of this format", _RECORD)
        try:
            space = message().FromString(file.read())
        except (DecodeError, ValueError, RecursionError) as error:
            problem = f"looks like TensorFlow's profile, but is cut short or damaged ({error})"
            raise UnreadableRecording(path, problem, _RECORD) from None
    found = Found(programs=programs.of_profile(space))
    started_ns = None
    for plane in space.planes:
        if match := GPU.fullmatch(plane.name):
            found.add_gpu(plane, int(match[1]))
        elif plane.name == planes.CALLS:
            found.add_host(plane, "")
        elif plane.name in HOST_PLANES:
            found.add_host(plane, HOST_PLANES[plane.name])
        elif plane.name == "Task Environment":
            started_ns = {name: value for name, value in planes.statistics(plane, plane.stats)}.get(
                "profile_start_time"
            )
    if not found.gpus and any(plane.name.startswith("/device:TPU") for plane in space.planes):
        raise of_a_tpu(path)
    started = started_ns if type(started_ns) is int and 0 < started_ns < LIMIT * 4 else None
    return timeline(path, found, started, doubted(found, [*space.errors, *space.warnings]))


def of_a_tpu(path: Path) -> UnreadableRecording:
    problem = "a profile of a TPU: its operations are not kernels on streams, and ringscope does not read them"
    return UnreadableRecording(path, problem, "look at it with XProf (TensorBoard's profile plugin)")


def timeline(path: Path, found: Found, started: int | None, doubts: tuple[Doubt, ...]) -> Timeline:
    """Make a Timeline of `found`. `started`: time 0 in ns of UTC, None if unknown. Raises UnreadableRecording if
    `found` has no rows with possible times."""
    frames = {table: pd.concat(parts, ignore_index=True) for table, parts in found.parts.items() if parts}
    if not frames:
        raise UnreadableRecording(path, "a TensorFlow profile without GPU work and without ranges", _RECORD)
    tables = {table: _with_texts(frame) for table, frame in frames.items()}
    tables["devices"] = gpus(found.gpus, tables)
    # Times of 10^18 ns or more are UTC already: they lie in 2001 or later.
    from_epoch = np.median(np.concatenate([frame["start_ns"].to_numpy() for frame in frames.values()])) >= 10**18
    made = make(
        Recording(
            path=str(path),
            format="xplane",
            tool="TensorFlow profiler",
            origin_utc_ns=0 if from_epoch else started,
        ),
        tables,
        known=frozenset({"devices", *found.known}),
        from_first=tuple(frames) if from_epoch else (),
        doubts=doubts,
        left_out=found.left_out,
        differentiates=found.programs.differentiate(),
    )
    if not any(len(getattr(made, table)) for table in frames):
        problem = "a TensorFlow profile in which no operation and no range has a possible time"
        raise UnreadableRecording(path, problem, _RECORD)
    return made


@dataclass(slots=True)
class Found:
    """The rows found so far: for each table one frame per plane or more. Text columns are not yet categorical."""

    programs: Programs
    parts: dict[str, list[pd.DataFrame]] = field(default_factory=lambda: defaultdict(list))
    gpus: dict[int, Device] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    left_out: Counter[str] = field(default_factory=Counter)

    def add_gpu(self, plane: Any, device: int) -> None:
        told = dict(planes.statistics(plane, plane.stats))
        name, cores = str(told.get("gpu_device_name", "")), multiprocessors(told.get("core_count"))
        self.gpus[device] = Device(name=name, multiprocessors=cores)
        self.known |= set(OPERATIONS)
        events, stats = planes.metadata(plane)
        keep = {number for number, name in stats.items() if _WANTED.search(name)}
        for line in plane.lines:
            stream = STREAM.match(line.name)
            if not stream:
                self.left_out[f"line {line.name or line.id}"] += len(line.events)
                continue
            self.add_stream(device, int(stream[1]), self._timed(line, events, stats, keep))

    def add_stream(self, device: int, stream: int, rows: list[planes.Row]) -> None:
        for table, chosen in planes.by_table(rows).items():
            if table not in OPERATIONS:
                self.left_out[table] += len(chosen)
                continue
            place = {"device": np.int32(device), "stream": np.int32(stream)}
            self.parts[table].append(_operations(table, chosen, self.programs).assign(**place))

    def add_host(self, plane: Any, domain: str) -> None:
        self.known.add("api" if plane.name == planes.CALLS else "marks")
        events, stats = planes.metadata(plane)
        for line in plane.lines:
            self.add_thread(plane.name, line.id, self._timed(line, events, stats, stats), domain)

    def add_thread(self, plane: str, tid: int, rows: list[planes.Row], domain: str) -> None:
        calls = [row for row in rows if planes.is_call(row, plane)]
        marks = [row for row in rows if not planes.is_call(row, plane)]
        for table, chosen in (("api", calls), ("marks", marks)):
            if not chosen:
                continue
            self.known.add(table)
            frame = planes.times(chosen).assign(tid=np.int64(tid))
            if table == "api":
                frame = frame.assign(
                    correlation=planes.integers(chosen, "correlation_id"),
                    name=_objects(planes.call_name(r) for r in chosen),
                )
            else:
                names = _objects(planes.mark_name(row) for row in chosen)
                frame = frame.assign(open=False, domain=domain, name=names)
            self.parts[table].append(frame)

    def _timed(self, line: Any, names: dict[int, str], stats: dict[int, str], keep: Container[int]) -> list[planes.Row]:
        """The events of a line that have a start and a duration in range; other events are counted in `left_out`.

        `names`, `stats`: the plane's names of events and of statistics, by id. `keep`: ids of the statistics to read.
        """
        rows = []
        for event in line.events:
            start = line.timestamp_ns * 1000 + event.offset_ps
            if abs(start) + abs(event.duration_ps) >= LIMIT * 1000 or event.WhichOneof("data") == "num_occurrences":
                self.left_out[WITHOUT_TIMES] += 1
            else:
                values = {stats[s.metadata_id]: planes.value(s, stats) for s in event.stats if s.metadata_id in keep}
                end = (start + event.duration_ps) // 1000
                rows.append(planes.Row(start // 1000, end, names.get(event.metadata_id, ""), values))
        return rows


def _operations(table: str, rows: list[planes.Row], programs: Programs) -> pd.DataFrame:
    frame = planes.times(rows).assign(correlation=planes.integers(rows, "correlation_id"))
    contexts = [str(row.stats.get("context_id", "")).lstrip("$") for row in rows]
    frame["context"] = chrome.integers(contexts, bits=32)
    if table == "graphs":
        return frame.assign(graph=planes.integers(rows, "cuda_graph_exec_id"))
    frame["graph_node"] = np.maximum(planes.integers(rows, "cuda_graph_node_id"), 0)
    if table == "kernels":
        return frame.assign(
            name=_objects(row.name for row in rows),
            operator=_objects(_operator(row, programs) for row in rows),
            work=_objects(programs.work(row) for row in rows),
            blocks=np.array([_blocks(row) for row in rows], dtype=np.int16),
        )
    key = "memcpy_details" if table == "copies" else "Memset_details"
    details = [planes.details(row.stats.get(key) or row.stats.get(key.lower())) for row in rows]
    sizes = chrome.integers(detail.get("size", detail.get("num_bytes")) for detail in details)
    frame["bytes"] = np.maximum(sizes, 0)
    if table == "memsets":
        return frame
    peer = np.array([row.name == "MemcpyP2P" for row in rows], dtype=bool)
    target = chrome.integers((detail.get("dest") for detail in details), bits=32)
    return frame.assign(
        kind=[planes.KINDS.get(row.name, "other") for row in rows],
        src_kind=[_MEMORY.get(detail.get("kind_src", ""), "unknown") for detail in details],
        dst_kind=[_MEMORY.get(detail.get("kind_dst", ""), "unknown") for detail in details],
        src_device=np.int32(-1),
        dst_device=np.where(peer, target, np.int32(-1)),
    )


def _blocks(row: planes.Row) -> int:
    """The blocks of a kernel's grid, which its details name as `grid:256,1,1`; 0: not known."""
    extents = planes.details(row.stats.get("kernel_details")).get("grid", "").split(",")
    return blocks([int(one) if one.isdecimal() and len(one) < _DIGITS else 0 for one in extents])


def _objects(texts: Iterable[str]) -> pd.Series:
    """A column of Python strings. Equal rows share one object, while pandas's str dtype would copy it for each row."""
    return pd.Series(list(texts), dtype=object)


def _operator(row: planes.Row, programs: Programs) -> str:
    """The operator of a kernel; "" if none is known.

    It is the framework's path in the event, else its operation name, else the path in the XLA program, else the
    XLA instruction. For a kernel in a CUDA graph the event names only the launch; a kernel that XLA compiled has
    its instruction's name.
    """
    told = [str(row.stats.get(key) or "") for key in ("name", "tf_op", "hlo_op")]
    path, operation, instruction = (text.rstrip(":") for text in told)
    if instruction.startswith(xla_names.COMMAND_BUFFER):
        instruction = xla_names.compiled(row.name)
    if "/" in path:
        return path
    if operation and operation != "XlaModule":
        return operation
    return programs.path(row) or instruction


def _with_texts(frame: pd.DataFrame) -> pd.DataFrame:
    for column in ("name", "domain", "kind", "src_kind", "dst_kind", "operator", "work"):
        if column in frame:
            codes, texts = pd.factorize(frame[column])
            frame[column] = printed.categorical(codes, list(texts))
    return frame


def doubted(found: Found, said: Sequence[str] = ()) -> tuple[Doubt, ...]:
    """Doubts about the profile. `said`: errors and warnings that the profiler wrote into it."""
    doubts = []
    if not found.gpus:
        doubts.append(no_gpu())
    if said:
        doubts.append(profiler_warnings(said[0][:200], len(said) - 1))
    traced = sum(str(name).startswith(_PYTHON) for part in found.parts["marks"] for name in part["name"])
    operations = sum(len(part) for table in ("kernels", "copies", "memsets") for part in found.parts[table])
    remedy = "record with python_tracer_level=0 for measures (ProfileOptions of JAX, ProfilerOptions of TensorFlow)"
    return (*doubts, *(python_traced(traced, operations, remedy) if operations else ()))
