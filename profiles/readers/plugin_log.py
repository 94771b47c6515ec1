"""Read what the example of a profiler plugin in NCCL's sources writes: the collectives of one rank and communicator.

plugins/profiler/example/print_event.cc of github.com/NVIDIA/nccl writes a Chrome trace when the communicator ends. Its
COLL and P2P events last as long as the call on the host. From NCCL 2.27 on each holds events KernelCh, one per channel,
with the GPU's clock in ns when the kernel's block began and ended: the longest of them is the time of the call, as in
NCCL's Inspector (inspector.cc, calculateMaxKernelExecTimeUsecs). An event's memory is used again, so that a call may
be followed by channels of an earlier call, which ended before the call's own channels began.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import msgspec
import pandas as pd

from ..ground.errors import UnreadableRecording
from . import opening
from .inspector_log import NUMBERS, ON_GPU, TEXTS, Large, Log, Small

# Bytes of an element of NCCL's types (ncclDataType_t, and src/misc/utils.cc for their names).
_BYTES: Final = {
    "ncclInt8": 1,
    "ncclUint8": 1,
    "ncclFloat8e4m3": 1,
    "ncclFloat8e5m2": 1,
    "ncclFloat16": 2,
    "ncclBfloat16": 2,
    "ncclInt32": 4,
    "ncclUint32": 4,
    "ncclFloat32": 4,
    "ncclInt64": 8,
    "ncclUint64": 8,
    "ncclFloat64": 8,
}
_MOST: Final = 1 << 53  # bytes of a call, ns that a call takes
NO_KERNELS: Final = (
    "a log of NCCL's profiler plugin without a time of the GPU, so how long each collective took is unknown",
    "run again with NCCL_PROFILE_EVENT_MASK=66, which adds the kernels (NCCL 2.27 and later)",
)
NO_ENDS: Final = (
    "a log of NCCL's profiler plugin whose kernels have no end, so how long each call took is unknown",
    "give the logs of all communicators of the run; send and receive have an end in the logs of NCCL's Inspector",
)

Clock: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]  # ns
Hash: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]


class Arguments(msgspec.Struct, rename="pascal"):
    comm_hash: Hash = 0
    rank: Small = 0
    seq_num: Large = 0
    count: Large = 0
    datatype: str = ""
    start_gpu_clk: Clock = 0
    stop_gpu_clk: Clock = 0


class Event(msgspec.Struct):
    name: Annotated[str, msgspec.Meta(max_length=1024)] = ""
    cat: str = ""
    ph: str = ""
    pid: Small = 0
    args: Arguments = msgspec.field(default_factory=Arguments)


def read(path: Path) -> Log:
    """Read a log. Raises UnreadableRecording if it is cut off, or has no kernels. `calls` is empty if none is timed."""
    try:
        events = msgspec.json.decode(opening.whole(path, b'"'), type=list[Event])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        problem = "a log of NCCL's profiler plugin that is damaged, or that does not have its last line"
        raise UnreadableRecording(
            path, problem, "copy it again, or run again and let the program end by itself"
        ) from error
    rows, untimed = [], 0
    sent: Counter[str] = Counter()
    calls = _calls(events)
    if not any(channels for _, channels in calls):
        raise UnreadableRecording(path, *NO_KERNELS)
    for call, channels in calls:
        number = call.args.seq_num if call.cat == "COLL" else sent[call.name]
        sent[call.name] += 1  # messages have no number of their own
        lasted, size = _lasted(channels), call.args.count * _BYTES.get(call.args.datatype, 0)
        if lasted is None or not 0 < size < _MOST:
            untimed += 1
            continue
        texts = (f"{call.args.comm_hash:#x}", "unknown", "", call.name, ON_GPU)
        rows.append((*texts, call.args.rank, 0, 0, call.pid, number, size, lasted))
    table = pd.DataFrame(rows, columns=[*TEXTS, *NUMBERS]).rename(columns={"lasted_us": "lasted_ns"})
    return Log(table, 0, untimed, _absent(events))


def _absent(events: list[Event]) -> int:
    """The number of collectives before the last logged one of each kind that are missing: NCCL numbers a communicator's
    calls of a kind from 0."""
    numbers = defaultdict[tuple[int, str], set[int]](set)
    for event in events:
        if event.cat == "COLL" and event.ph == "b":
            numbers[event.args.comm_hash, event.name].add(event.args.seq_num)
    return sum(max(one) + 1 - len(one) for one in numbers.values())


def _calls(events: list[Event]) -> list[tuple[Event, list[Arguments]]]:
    """Each collective or message, with its channels on the GPU: they stand between its begin and its end."""
    found: list[tuple[Event, list[Arguments]]] = []
    inside = False
    for event in events:
        if event.cat in ("COLL", "P2P"):
            inside = event.ph == "b"
            if inside:
                found.append((event, []))
        elif inside and event.cat == "GPU" and event.ph == "b":
            found[-1][1].append(event.args)
    return found


def _lasted(channels: list[Arguments]) -> int | None:
    """The ns of the longest channel; None if no channel tells its begin and end."""
    begun = max((one.start_gpu_clk for one in channels), default=0)
    lasted = (
        one.stop_gpu_clk - one.start_gpu_clk for one in channels if one.start_gpu_clk and one.stop_gpu_clk > begun
    )
    longest = max(lasted, default=0)
    return longest if 0 < longest < _MOST else None
