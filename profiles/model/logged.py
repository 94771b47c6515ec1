"""Results for collectives that NCCL's Inspector logged, and their JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Final

from .timeline import Doubt

SCHEMA: Final = "ringscope.collectives/1"


@dataclass(slots=True)
class LoggedRank:
    """A rank's part in one kind of collective; waiting_ns, arrived_last: over the matched calls, None without any."""

    rank: int  # in the communicator
    process: int  # index into Logged.processes
    count: int
    lasted_ns: int
    matched_ns: int  # how long its matched calls lasted
    waiting_ns: int | None
    arrived_last: int | None


@dataclass(slots=True)
class LoggedKind:
    """The collectives of one kind of one communicator, or the messages of one direction."""

    communicator: str  # NCCL's number of it
    name: str | None
    ranks: int  # of the communicator
    nodes: int
    kind: str  # AllReduce, ..., Send, Recv
    count: int  # calls, each once for all of its ranks
    matched: int  # of these, by how many ranks waited for each other: all ranks whose logs are here tell of them
    bytes: int  # of the calls, as one rank hands them over
    lasted_ns: int  # over all ranks, waiting included
    transfer_ns: int | None  # of the matched calls, once the last rank was there; None: `why`
    bus_gb_per_s: float | None  # of the transfers
    lasting_gb_per_s: float | None  # bus bandwidth over the calls' lengths, waiting included, as the Inspector has it
    why: str  # why the transfer is unknown; empty where it is known
    each: list[LoggedRank]


@dataclass(slots=True)
class LoggedProcess:
    """A process and what it did in all of its communicators."""

    host: str
    pid: int
    rank: int | None  # in the largest communicator; None: it is in none that large
    count: int
    lasted_ns: int
    waiting_ns: int | None
    waiting_share: float | None  # of the time of its matched calls
    arrived_last_share: float | None  # of its matched calls


@dataclass(slots=True)
class Logged:
    """Collectives in the logs of NCCL's Inspector. `kinds`: what took most time first; `processes`: by rank."""

    files: list[str]
    kinds: list[LoggedKind]
    processes: list[LoggedProcess]
    doubts: list[Doubt] = field(default_factory=list)
    schema: str = SCHEMA


def dumps(logged: Logged) -> str:
    return json.dumps({"schema": logged.schema} | asdict(logged), indent=1, ensure_ascii=False) + "\n"
