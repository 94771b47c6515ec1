"""Collectives that NCCL's Inspector logged, on a terminal: by communicator and kind, then by process."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType

from ...ground import numbers
from ...model.logged import Logged, LoggedKind, LoggedProcess
from ..tables.logged import last_arrivals
from . import recording as terminal
from .widths import Column, Fitted, Prose

MOST_KINDS = 20
_KINDS = ("calls", "moved", "waiting", "transfer", "bus bandwidth", "with waiting")
_PROCESSES = ("rank", "calls", "in collectives", "waiting", "of its time", "arrived last")


def show(logged: Logged, to: Console) -> None:
    to.print(Group(*_page(logged)))


def _page(logged: Logged) -> Iterator[RenderableType]:
    files = "1 log" if len(logged.files) == 1 else f"{len(logged.files)} logs"
    yield Prose(f"{files} of NCCL's Inspector, {len(logged.processes)} processes\n", "bold")
    kinds = logged.kinds[:MOST_KINDS]
    columns = [Column("collective"), *(Column(title, right=True) for title in _KINDS)]
    yield Fitted(columns, [_of_kind(one) for one in kinds], style="dim")
    yield from _more(len(logged.kinds) - len(kinds), "rows of kinds that took less time")
    for why in dict.fromkeys(one.why for one in kinds if one.why):
        yield Prose(f"{numbers.UNKNOWN}: {', '.join(_name(one) for one in kinds if one.why == why)}: {why}", "dim")
    shown = last_arrivals(logged.processes, [one.arrived_last_share for one in logged.processes])
    yield Prose("")
    columns = [Column("process"), *(Column(title, right=True) for title in _PROCESSES)]
    yield Fitted(columns, [_of_process(one) for _, one in shown], style="dim")
    yield from _more(len(logged.processes) - len(shown), "rows of processes that arrived last less often")
    yield from terminal.doubts(logged.doubts)


def _more(count: int, what: str) -> Iterator[RenderableType]:
    if count > 0:
        yield Prose(f"... and {count:,} {what} (--json FILE has all)", "dim")


def _name(one: LoggedKind) -> str:
    return f"{one.kind}, {one.name or one.communicator}, {one.ranks} ranks"


def _of_kind(one: LoggedKind) -> tuple[str, ...]:
    waiting = [rank.waiting_ns for rank in one.each if rank.waiting_ns is not None]
    return (
        _name(one),
        numbers.count(one.count),
        numbers.size(one.bytes),
        numbers.duration(sum(waiting) if waiting else None),
        numbers.duration(one.transfer_ns),
        numbers.gb_per_s(one.bus_gb_per_s),
        numbers.gb_per_s(one.lasting_gb_per_s),
    )


def _of_process(one: LoggedProcess) -> tuple[str, ...]:
    return (
        f"{one.host} {one.pid}",
        numbers.count(one.rank),
        numbers.count(one.count),
        numbers.duration(one.lasted_ns),
        numbers.duration(one.waiting_ns),
        numbers.share(one.waiting_share),
        numbers.share(one.arrived_last_share),
    )
