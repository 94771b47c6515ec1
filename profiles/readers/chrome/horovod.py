"""Read Horovod's own timeline (HOROVOD_TIMELINE): the phases of each tensor's collectives, on the clock of rank 0.

It is a JSON array of Chrome trace events, without an end if the training was killed. Each tensor is a "process"
of the trace, whose begin and end events nest: NEGOTIATE_ALLREDUCE, then ALLREDUCE, which holds NCCL_ALLREDUCE,
MEMCPY_IN_FUSION_BUFFER and so on. During negotiation, each rank that becomes ready is an event without a length,
named by the rank's number.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from ...doubts.recordings import unfinished_recording
from ...ground.errors import UnreadableRecording
from ...model.timeline import Recording, Timeline, make
from ..opening import whole
from ..tables import printed
from . import events as chrome

Array = np.ndarray

READY: Final = "READY"  # name for the instant (start_ns == end_ns) at which a rank has the tensor ready
_SIGNS: Final = (b"NEGOTIATE_", b"CYCLE_START", b'"start_time_since_epoch_in_micros"')
_RECORD: Final = "record again with `horovodrun --timeline-filename FILE`"


def detects(head: bytes, path: Path) -> bool:
    """True for an array of trace events with one of Horovod's names in the head."""
    return chrome.begins(head) == b"[" and chrome.holds_events(head) and any(sign in head for sign in _SIGNS)


def read(path: Path) -> Timeline:
    """Read a timeline with the table `phases` only. Raises UnreadableRecording if no collective has begun and ended."""
    try:
        raw, ended = chrome.array(whole(path, b'"'))
    except ValueError:
        raise UnreadableRecording(path, "a Horovod timeline that is damaged before its end", _RECORD) from None
    events: list[chrome.Event] = []
    damaged = 0
    for piece, bad in chrome.events(raw):
        events += piece
        damaged += bad
    names = {}
    epoch_us = None
    for event in events:
        if event.ph == "M" and event.name == "process_name" and event.args:
            if isinstance(event.args.name, str) and _hashable(event.pid):
                names[event.pid] = event.args.name
            epoch_us = event.args.epoch_us if type(event.args.epoch_us) is int else epoch_us
    timed = [event for event in events if event.ph in ("B", "E", "X", "i")]
    at, good = chrome.nanoseconds([event.ts for event in timed])
    good &= np.abs(at) < 1 << 61
    damaged += int((~good).sum())
    kept = np.flatnonzero(good)
    timed = [timed[row] for row in kept.tolist()]
    phases, unfinished = _phases(timed, at[kept], names)
    if phases.empty:
        raise UnreadableRecording(path, "a Horovod timeline in which no collective ends", _RECORD)
    doubts = []
    if not ended:
        doubts.append(unfinished_recording(unfinished))
    return make(
        Recording(
            path=str(path),
            format="horovod",
            tool="Horovod",
            rank=0,
            rank_source="format",
            origin_utc_ns=epoch_us * 1000 if epoch_us is not None and 0 < epoch_us < 1 << 52 else None,
        ),
        {"phases": phases},
        doubts=tuple(doubts),
        left_out={k: v for k, v in {"not an event": damaged, "phases without an end": unfinished}.items() if v},
    )


def _phases(events: list[chrome.Event], at: Array, names: dict[Any, str]) -> tuple[pd.DataFrame, int]:
    """The phases by start, and how many phases began and did not end. A begin event belongs to the tensor's next end
    event at the same nesting depth."""
    tensors = [names.get(event.pid, "") if _hashable(event.pid) else "" for event in events]
    labels = [event.name if isinstance(event.name, str) else "" for event in events]
    kind = np.array([event.ph for event in events], dtype="U1")
    table = pd.DataFrame({"at": at, "kind": kind, "owner": [str(event.pid) for event in events]})
    # dtype object: all events of a tensor share one string of its name
    table = table.assign(tensor=pd.Series(tensors, dtype=object), label=pd.Series(labels, dtype=object))
    nested = table[(table["kind"] == "B") | (table["kind"] == "E")].copy()
    begins = (nested["kind"] == "B").to_numpy()
    depth = pd.Series(np.where(begins, 1, -1), index=nested.index).groupby(nested["owner"]).cumsum()
    nested["level"] = depth + np.where(begins, 0, 1)
    nested = nested.sort_values(["owner", "level"], kind="stable")
    following = nested.shift(-1)
    same = (nested["owner"] == following["owner"]) & (nested["level"] == following["level"])
    paired = (nested["kind"] == "B") & (following["kind"] == "E") & same & (following["at"] >= nested["at"])
    whole = nested[paired].assign(end=following.loc[paired, "at"].astype(np.int64), rank=0)
    points = table[table["kind"].isin(["X", "i"])]
    points = points.assign(end=points["at"], rank=0)
    ready = (points["kind"] == "X") & points["label"].str.fullmatch(r"[0-9]{1,9}")
    points.loc[ready, "rank"] = points.loc[ready, "label"].astype(np.int64)
    points.loc[ready, "label"] = READY
    found = pd.concat([whole, points]).sort_values(["at", "end"], kind="stable", ignore_index=True)
    frame = pd.DataFrame(
        {
            "start_ns": found["at"],
            "end_ns": found["end"],
            "tensor": _categorical(found["tensor"]),
            "name": _categorical(found["label"]),
            "rank": found["rank"].astype(np.int32),
        }
    )
    return frame if len(whole) else frame[:0], int(begins.sum() - len(whole))


def _hashable(value: Any) -> bool:
    return isinstance(value, (int, str))


def _categorical(texts: pd.Series) -> pd.Categorical:
    codes, distinct = pd.factorize(texts)
    return printed.categorical(codes, list(distinct))
