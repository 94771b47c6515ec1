"""Read the trace.json(.gz) that XLA's profiler (JAX, TensorFlow) writes beside its .xplane.pb, for trace viewers.

XLA's `trace_events_to_json` writes the events of the GPUs and of the host, with times as decimal microseconds down to
the picosecond, and statistics as texts. The file lacks compiled programs, names of GPUs, launch parameters of kernels,
and all but the first million events.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation, Overflow
from pathlib import Path
from typing import Any, Final

import msgspec

from ..doubts.recordings import capped_trace
from ..model.timeline import WITHOUT_TIMES, Timeline
from . import planes, xplane
from .chrome import events as chrome
from .programs import Programs
from .tables.gathering import Device

_NAMED: Final = re.compile(rb'"name"\s*:\s*"/(?:device:[GT]PU:\d+|host:CPU)"')
_INTEGER: Final = re.compile(r"-?[0-9]{1,18}")
_LONGEST: Final = 40  # longest text of a time, in characters
_MOST: Final = 1_000_000  # XLA writes at most this many events
_BESIDE: Final = "give the .xplane.pb beside this file (plugins/profile/DATE/HOST.xplane.pb)"

Thread = tuple[Any, Any]  # (pid, tid): the number of a plane, and of a line in the plane


class _Event(msgspec.Struct, gc=False):
    ph: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = msgspec.Raw(b"")
    dur: msgspec.Raw = msgspec.Raw(b"")
    args: dict[str, Any] | None = None


def detects(head: bytes, path: Path) -> bool:
    """True for trace events in which a process has the name of a plane in an XSpace, and that Kineto did not write."""
    return chrome.holds_events(head) and b'"schemaVersion"' not in head and _NAMED.search(head) is not None


def read(path: Path) -> Timeline:
    """Read the Timeline of the .xplane.pb beside the trace, without the parts that the trace lacks. Raises
    UnreadableRecording for broken JSON, and if there is neither GPU work nor a range of the host."""
    document, unfinished = chrome.trace(path, chrome.Document)
    found = xplane.Found(Programs({}))
    names: dict[Thread, str] = {}
    rows: dict[Thread, list[planes.Row]] = defaultdict(list)
    count = 0
    for events, damaged in chrome.events(document.raw, _Event):
        found.left_out["not an event"] += damaged
        for event in events:
            if not all(isinstance(one, (int, str, type(None))) for one in (event.pid, event.tid)):
                found.left_out["not an event"] += 1
            elif event.ph == "M" and event.args:
                _name(names, event)
            elif event.ph == "X":
                count += 1
                if (row := _row(event)) is None:
                    found.left_out[WITHOUT_TIMES] += 1
                else:
                    rows[event.pid, event.tid].append(row)
    document.raw = []
    if any(name.startswith("/device:TPU") for name in names.values()) and not any(map(_gpu, names.values())):
        raise xplane.of_a_tpu(path)
    for (pid, tid), chosen in rows.items():
        _add(found, names.get((pid, None), ""), names.get((pid, tid), ""), tid, chosen)
    doubts = (*unfinished, *xplane.doubted(found))
    return xplane.timeline(path, found, None, (*doubts, *([capped_trace(count, _BESIDE)] if count >= _MOST else ())))


def _name(names: dict[Thread, str], event: _Event) -> None:
    name = (event.args or {}).get("name")
    if isinstance(name, str) and event.name in ("process_name", "thread_name"):
        names[event.pid, event.tid if event.name == "thread_name" else None] = name


def _gpu(plane: str) -> int | None:
    match = xplane.GPU.fullmatch(plane)
    return int(match[1]) if match else None


def _add(found: xplane.Found, plane: str, line: str, tid: Any, rows: list[planes.Row]) -> None:
    device, stream = _gpu(plane), xplane.STREAM.match(line)
    if device is not None:
        found.gpus.setdefault(device, Device())
        found.known |= set(xplane.OPERATIONS)
    if device is not None and stream:
        found.add_stream(device, int(stream[1]), rows)
    elif plane in xplane.HOST_PLANES:
        found.known.add("marks")
        found.add_thread(plane, tid if type(tid) is int and abs(tid) < 1 << 63 else -1, rows, xplane.HOST_PLANES[plane])
    else:
        found.left_out[f"line {line or tid}"] += len(rows)


def _row(event: _Event) -> planes.Row | None:
    """The row of an event; None if the event has no usable times."""
    start, lasted = _picoseconds(event.ts), _picoseconds(event.dur)
    if start is None or lasted is None:
        return None
    stats = dict(_values(event.args or {}))
    name = stats.pop("long_name", event.name)
    if "cuda_graph_node_id" in stats:
        # XLA leaves this key out; without it `by_table` takes a kernel in a graph for the graph itself.
        stats.setdefault("kernel_details", "")
    if lasted == 1:
        lasted = 0  # XLA writes 1 ps for an event without duration
    return planes.Row(start // 1000, (start + lasted) // 1000, name if isinstance(name, str) else "", stats)


def _picoseconds(text: msgspec.Raw) -> int | None:
    raw = bytes(text).strip(b'" \t')
    try:
        value = Decimal(raw.decode("ascii")) * 10**6 if 0 < len(raw) <= _LONGEST else Decimal("nan")
        return round(value) if value.is_finite() and abs(value) < xplane.LIMIT * 1000 else None
    except (InvalidOperation, Overflow, UnicodeDecodeError):
        return None


def _values(args: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The statistics of an event, with texts of digits turned into integers."""
    for key, value in args.items():
        is_integer = isinstance(value, str) and _INTEGER.fullmatch(value)
        yield key, int(value) if is_integer else value
