"""Data classes for the collectives that NCCL's Inspector or profiler plugin logged, and their JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Final

from .timeline import Doubt

SCHEMA: Final = "ringscope.collectives/1"


@dataclass(slots=True)
class LoggedRank:
    """The calls of one kind of collective by one rank. None in waiting_ns and arrived_last: no call was matched."""

    rank: int  # rank in the communicator
    process: int  # index into Logged.processes
    count: int
    lasted_ns: int
    matched_ns: int  # sum of the lengths of the matched calls
    waiting_ns: int | None
    arrived_last: int | None


@dataclass(slots=True)
class LoggedKind:
    """The collectives of one kind in one communicator, or the messages of one direction."""

    communicator: str  # NCCL's number of the communicator
    name: str | None
    ranks: int  # number of ranks in the communicator
    nodes: int | None  # None: the logs do not tell it
    kind: str  # AllReduce, ..., Send or Recv
    count: int  # number of calls; a call of all ranks counts once
    matched: int  # number of calls that all ranks with a log have logged, so that waiting is known
    bytes: int  # sum over the calls of the bytes that one rank passes in; of ReduceScatter: that it gets
    lasted_ns: int  # sum over calls and ranks, with waiting
    transfer_ns: int | None  # sum over matched calls from the last rank's arrival on; None: see `why`
    bus_gb_per_s: float | None  # bus bandwidth over transfer_ns
    lasting_gb_per_s: float | None  # bus bandwidth over lasted_ns, with waiting, as the Inspector computes it
    why: str  # reason if transfer_ns is None; else ""
    each: list[LoggedRank]


@dataclass(slots=True)
class LoggedProcess:
    """One process: totals over all of its communicators."""

    host: str  # empty if the logs do not tell it
    pid: int
    rank: int | None  # rank in the largest communicator; None if the process is in none of that size
    count: int
    lasted_ns: int
    waiting_ns: int | None
    waiting_share: float | None  # waiting_ns / time of the matched calls
    arrived_last_share: float | None  # share of the matched calls at which it arrived last


@dataclass(slots=True)
class Logged:
    """Collectives in logs of NCCL. `kinds`: the kind with most time first; `processes`: by rank."""

    files: list[str]
    kinds: list[LoggedKind]
    processes: list[LoggedProcess]
    doubts: list[Doubt] = field(default_factory=list)
    schema: str = SCHEMA


def dumps(logged: Logged) -> str:
    return json.dumps({"schema": logged.schema} | asdict(logged), indent=1, ensure_ascii=False) + "\n"
