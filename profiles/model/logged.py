"""Measures of collectives that NCCL's Inspector logged, and their JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Final

from .timeline import Doubt

SCHEMA: Final = "ringscope.collectives/1"


@dataclass(slots=True)
class LoggedRank:
    """One rank's calls of one kind of collective. waiting_ns and arrived_last are sums over matched calls; None
    without."""

    rank: int  # in the communicator
    process: int  # index into Logged.processes
    count: int
    lasted_ns: int
    matched_ns: int  # sum of the lengths of its matched calls
    waiting_ns: int | None
    arrived_last: int | None


@dataclass(slots=True)
class LoggedKind:
    """The collectives of one kind of one communicator, or the messages of one direction."""

    communicator: str  # NCCL's number of the communicator
    name: str | None
    ranks: int  # of the communicator
    nodes: int
    kind: str  # AllReduce, ..., Send, Recv
    count: int  # calls, each once for all of its ranks
    matched: int  # calls that all ranks with a log here have logged, so that waiting is known
    bytes: int  # sum over the calls of the bytes that one rank passes in
    lasted_ns: int  # sum over all ranks, waiting included
    transfer_ns: int | None  # of the matched calls, from the last rank's arrival on; None: see `why`
    bus_gb_per_s: float | None  # bus bandwidth over transfer_ns
    lasting_gb_per_s: float | None  # bus bandwidth over the calls' lengths, waiting included, as the Inspector has it
    why: str  # why transfer_ns is None; else ""
    each: list[LoggedRank]


@dataclass(slots=True)
class LoggedProcess:
    """One process: its totals over all of its communicators."""

    host: str
    pid: int
    rank: int | None  # in the largest communicator; None: the process is not in one of that size
    count: int
    lasted_ns: int
    waiting_ns: int | None
    waiting_share: float | None  # of the time of its matched calls
    arrived_last_share: float | None  # of its matched calls


@dataclass(slots=True)
class Logged:
    """Collectives in the logs of NCCL's Inspector. `kinds`: the most time first; `processes`: by rank."""

    files: list[str]
    kinds: list[LoggedKind]
    processes: list[LoggedProcess]
    doubts: list[Doubt] = field(default_factory=list)
    schema: str = SCHEMA


def dumps(logged: Logged) -> str:
    return json.dumps({"schema": logged.schema} | asdict(logged), indent=1, ensure_ascii=False) + "\n"
