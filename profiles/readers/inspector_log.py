"""Read logs of NCCL's Inspector: each line is a JSON object with one collective of one rank, without its start time.

plugins/profiler/inspector/inspector_json.cc of github.com/NVIDIA/nccl writes one file per process (format v4.0,
NCCL 2.28 to 2.30). Durations are whole microseconds of the GPU's clock, rounded down (inspector.cc,
calculateKernelGpuExecTimeUsecs). The last line is cut short if the process was killed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import msgspec
import pandas as pd

from ..ground.errors import UnreadableRecording
from . import opening

TEXTS: Final = ("communicator", "name", "host", "kind", "timed_by")
NUMBERS: Final = ("rank", "ranks", "nodes", "pid", "sequence", "bytes", "lasted_us")
ON_GPU: Final = "kernel_gpu"  # value of timed_by for a collective that the GPU's clock timed
_US: Final = 1_000  # ns

Small: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
Large: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
Time: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 43)]  # in µs: up to a hundred days
Word: TypeAlias = Annotated[str, msgspec.Meta(max_length=1024)]


class Header(msgspec.Struct):
    id: Word
    rank: Small
    n_ranks: Annotated[int, msgspec.Meta(ge=1, lt=1 << 31)]
    nnodes: Small = 0
    comm_name: Word = "unknown"


class Metadata(msgspec.Struct):
    hostname: Word = ""
    pid: Small = 0


class Collective(msgspec.Struct):
    coll: Word
    coll_sn: Large
    coll_msg_size_bytes: Large
    coll_exec_time_us: Time
    coll_timing_source: Word = ""


class PointToPoint(msgspec.Struct):
    p2p: Word
    p2p_sn: Large
    p2p_msg_size_bytes: Large
    p2p_exec_time_us: Time
    p2p_timing_source: Word = ""


class Line(msgspec.Struct):
    header: Header
    metadata: Metadata
    coll_perf: Collective | None = None
    p2p_perf: PointToPoint | None = None


@dataclass(frozen=True, slots=True)
class Log:
    """The valid calls of a log. `calls`: one row per call, with the columns TEXTS and NUMBERS (int64; lasted_ns in
    place of lasted_us; ranks and nodes are 0 if the log does not tell them). `damaged`: number of lines that were left
    out because they are not valid; `untimed`: number of calls that were left out because their time is unknown;
    `absent`: number of calls that are missing, by gaps in the calls' numbers."""

    calls: pd.DataFrame
    damaged: int
    untimed: int = 0
    absent: int = 0


def read(path: Path) -> Log:
    """Read a log. Raises UnreadableRecording if it has no valid line."""
    decode = msgspec.json.Decoder(Line).decode
    rows: list[tuple[str | int, ...]] = []
    words: dict[str, str] = {}  # holds each distinct text once: a million lines have about a hundred
    damaged = 0
    for line in opening.whole(path, b"\n").split(b"\n"):
        if not line.strip():
            continue
        try:
            row = _row(decode(line), words)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            row = None
        if row is None:
            damaged += 1
        else:
            rows.append(row)
    if not rows:
        problem = "a log of NCCL's Inspector without a complete line"
        raise UnreadableRecording(path, problem, "copy it again, or run again and let the program end by itself")
    calls = pd.DataFrame(rows, columns=[*TEXTS, *NUMBERS])
    calls["lasted_ns"] = calls.pop("lasted_us") * _US
    return Log(calls, damaged)


def _row(line: Line, known: dict[str, str]) -> tuple[str | int, ...] | None:
    """The values of a line; None if it holds no collective, or a rank that is not in the communicator."""
    header, process = line.header, line.metadata
    if header.rank >= header.n_ranks:
        return None
    if (call := line.coll_perf) is not None:
        told = call.coll, call.coll_timing_source, call.coll_sn, call.coll_msg_size_bytes, call.coll_exec_time_us
    elif (sent := line.p2p_perf) is not None:
        told = sent.p2p, sent.p2p_timing_source, sent.p2p_sn, sent.p2p_msg_size_bytes, sent.p2p_exec_time_us
    else:
        return None
    kind, timed_by, *numbers = told
    words = (header.id, header.comm_name, process.hostname, kind, timed_by)
    return (
        *(known.setdefault(word, word) for word in words),
        header.rank,
        header.n_ranks,
        header.nnodes,
        process.pid,
        *numbers,
    )
