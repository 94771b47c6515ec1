"""Collectives that NCCL logged: which ranks waited, and how fast the transfers were.

A log says how long a collective's kernel ran on each rank, but not when. If every rank needs data of every other rank,
the kernels of all ranks end within microseconds of each other. So the rank with the shortest kernel arrived last. The
time of that kernel is the transfer, and the extra time of the other ranks is waiting. If one rank only sends or only
receives (Broadcast, Reduce, Send, Recv), kernels may end at different times, so transfer and waiting of these
collectives are None.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Final

import numpy as np

from ..doubts import logged as doubts
from ..model.logged import Logged, LoggedKind, LoggedProcess, LoggedRank
from ..model.timeline import Doubt
from ..readers.inspector_log import ON_GPU

if TYPE_CHECKING:
    import pandas as pd

# Collectives in which every rank needs data of every other rank.
_TOGETHER: Final = ("AllReduce", "AllGather", "AllGatherV", "ReduceScatter", "All2All")
_RESOLUTION_NS: Final = 1_000  # the Inspector rounds times down to multiples of this
_CALL: Final = ["communicator", "kind", "sequence"]


def bus_factor(kind: str, ranks: int) -> Fraction | None:
    """The factor by which nccl-tests (doc/PERFORMANCE.md) multiplies logged bytes to get bus bandwidth; None if it has
    no formula for this kind.

    For gathers and scatters the Inspector logs one rank's share of the bytes."""
    if kind == "AllReduce":
        return Fraction(2 * (ranks - 1), ranks)
    if kind in ("AllGather", "AllGatherV", "ReduceScatter"):
        return Fraction(ranks - 1)
    return Fraction(1) if kind in ("Broadcast", "Reduce", "Send", "Recv", "SendRecv") else None


def measured(calls: pd.DataFrame, files: Sequence[str], damaged: int = 0, untimed: int = 0, absent: int = 0) -> Logged:
    """Measures of the collectives in the logs, with their doubts.

    `calls`: the rows of all logs (`readers.inspector_log.Log`); `damaged`: the number of lines that could not be read;
    `untimed`: the number of calls whose time the logs do not tell; `absent`: the number of calls that are missing, by
    gaps in the calls' numbers."""
    twice = calls.duplicated([*_CALL, "rank"])
    found = [doubts.damaged_lines(damaged)] if damaged else []
    if untimed:
        found.append(doubts.untimed_calls(untimed, untimed + len(calls)))
    if (calls["ranks"] == 0).any():
        calls = calls.assign(ranks=_ranks_seen(calls))
        found += [doubts.ranks_not_told(int(calls["ranks"].max())), doubts.calls_not_kept(absent)]
    if twice.any():
        found.append(doubts.called_twice(int(twice.sum())))
        calls = calls[~twice]
    on_host = (calls["timed_by"] != ON_GPU) & (calls["timed_by"] != "")
    if on_host.any():
        found.append(doubts.timed_on_host(int(on_host.sum()), len(calls)))
    calls = calls.assign(process=calls.groupby(["host", "pid"], sort=False).ngroup())
    groups = calls.groupby(["communicator", "kind"], sort=False)
    kinds = [_kind(rows) for _, rows in groups]
    found += _of_ranks(calls)
    partly = sum(one.count - one.matched for one in kinds if one.transfer_ns is not None)
    if partly:
        found.append(doubts.calls_not_logged(partly, sum(one.count for one in kinds)))
    kinds.sort(key=lambda one: -one.lasted_ns)
    processes = _processes(calls, kinds)
    order = sorted(range(len(processes)), key=lambda place: (_rank(processes[place]), place))
    places = {place: index for index, place in enumerate(order)}
    for one in (rank for kind in kinds for rank in kind.each):
        one.process = places[one.process]
    return Logged(list(files), kinds, [processes[place] for place in order], found)


def _ranks_seen(calls: pd.DataFrame) -> pd.Series:
    """For each row the number of ranks of its communicator; else the highest rank in the logs plus one."""
    groups = calls.groupby("communicator")
    told = groups["ranks"].transform("max")
    return told.where(told > 0, groups["rank"].transform("max") + 1)


def _rank(process: LoggedProcess) -> int:
    return 1 << 31 if process.rank is None else process.rank


def _kind(rows: pd.DataFrame) -> LoggedKind:
    """Measures of the collectives of one kind on one communicator; `rows`: a row per call and rank."""
    first = rows.iloc[0]
    kind, ranks, there = str(first["kind"]), int(rows["ranks"].max()), rows["rank"].nunique()
    calls = rows.groupby("sequence", sort=False)
    length = rows["lasted_ns"].to_numpy()
    shortest = calls["lasted_ns"].transform("min").to_numpy()
    why = _why(kind, ranks, there)
    everyone = np.full(len(rows), not why) & (calls["rank"].transform("size").to_numpy() == there)
    if not why and not everyone.any():
        why, everyone = "no call is in the logs of all its ranks", np.zeros(len(rows), bool)
    # One rank alone arrived last only if all others took longer by more than the rounding of the logged times.
    alone = (_second_shortest(rows) - length > _RESOLUTION_NS).to_numpy()
    whole = rows.assign(
        waiting=np.where(everyone, length - shortest, 0),
        matched_ns=np.where(everyone, length, 0),
        matched=everyone,
        last=everyone & (length == shortest) & alone,
    )
    sizes = whole.groupby("sequence")[["bytes", "lasted_ns", "matched"]].agg(
        {"bytes": "max", "lasted_ns": "min", "matched": "max"}
    )
    matched = sizes[sizes["matched"]]
    transfer = None if why else int(matched["lasted_ns"].sum())
    factor = bus_factor(kind, ranks)
    return LoggedKind(
        communicator=str(first["communicator"]),
        name=None if first["name"] == "unknown" else str(first["name"]),
        ranks=ranks,
        nodes=int(first["nodes"]) or None,
        kind=kind,
        count=len(sizes),
        matched=len(matched),
        bytes=int(sizes["bytes"].sum()),
        lasted_ns=int(length.sum()),
        transfer_ns=transfer,
        bus_gb_per_s=_rate(factor, int(matched["bytes"].sum()), transfer),
        lasting_gb_per_s=_rate(factor, int(rows["bytes"].sum()), int(length.sum())),
        why=why,
        each=list(_each(whole, known=not why)),
    )


def _why(kind: str, ranks: int, there: int) -> str:
    """The reason why transfer and waiting are not known; empty if they are."""
    if kind not in _TOGETHER:
        return "one rank only sends or only receives, so the kernels may end at different times"
    if ranks < 2:
        return "a communicator of one rank"
    return "the logs of the other ranks are missing" if there < 2 else ""


def _second_shortest(rows: pd.DataFrame) -> pd.Series:
    """For each row the second shortest ns over the ranks of its call; NaN if only one rank logged the call."""
    ordered = rows.sort_values("lasted_ns", kind="stable")
    second = ordered[ordered.groupby("sequence").cumcount() == 1].set_index("sequence")["lasted_ns"]
    return rows["sequence"].map(second)


def _rate(factor: Fraction | None, count: int, ns: int | None) -> float | None:
    """Bandwidth in GB/s, which is bytes/ns; None if the factor or the time is not known."""
    return float(factor * count / ns) if factor is not None and ns else None


def _each(rows: pd.DataFrame, *, known: bool) -> Iterator[LoggedRank]:
    for rank, own in rows.groupby("rank"):
        yield LoggedRank(
            rank=int(rank),
            process=int(own["process"].iloc[0]),
            count=len(own),
            lasted_ns=int(own["lasted_ns"].sum()),
            matched_ns=int(own["matched_ns"].sum()),
            waiting_ns=int(own["waiting"].sum()) if known else None,
            arrived_last=int(own["last"].sum()) if known else None,
        )


def _of_ranks(calls: pd.DataFrame) -> Iterator[Doubt]:
    """A doubt for each communicator for which logs of some ranks are missing."""
    for communicator, rows in calls.groupby("communicator", sort=False):
        there, ranks = rows["rank"].nunique(), int(rows["ranks"].max())
        if there < ranks:
            yield doubts.ranks_not_logged(str(communicator), there, ranks)


def _processes(calls: pd.DataFrame, kinds: Sequence[LoggedKind]) -> list[LoggedProcess]:
    world = calls[calls["ranks"] == calls["ranks"].max()].groupby("process")["rank"].unique()
    found = []
    parts: dict[int, list[tuple[LoggedKind, LoggedRank]]] = defaultdict(list)
    for kind in kinds:
        for one in kind.each if not kind.why else ():
            parts[one.process].append((kind, one))
    for process, rows in calls.groupby("process"):
        told = world.get(process, ())
        of_it = parts[process]
        waiting = sum(one.waiting_ns or 0 for _, one in of_it)
        matched_ns, matched = sum(one.matched_ns for _, one in of_it), sum(kind.matched for kind, _ in of_it)
        last = sum(one.arrived_last or 0 for _, one in of_it)
        found.append(
            LoggedProcess(
                host=str(rows["host"].iloc[0]),
                pid=int(rows["pid"].iloc[0]),
                rank=int(told[0]) if len(told) == 1 else None,
                count=len(rows),
                lasted_ns=int(rows["lasted_ns"].sum()),
                waiting_ns=waiting if of_it else None,
                waiting_share=waiting / matched_ns if matched_ns else None,
                arrived_last_share=last / matched if matched else None,
            )
        )
    return found
