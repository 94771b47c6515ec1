"""Metrics of the collectives that NCCL's Inspector or profiler plugin logged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..model.logged import Logged, LoggedKind, LoggedProcess

BUS, WAITING = "bus_gb_per_s", "waiting_share"
LOGGED: Final = (BUS, WAITING)
Known = Mapping[str, tuple[float | None, str]]


def values(logged: Logged | None) -> Known:
    """Each metric's value and the worst communicator or rank, or None and the reason. Each kind of collective also has
    a metric of its own, such as `bus_gb_per_s[AllReduce]`."""
    if logged is None:
        return dict.fromkeys(LOGGED, (None, "no logs of NCCL's Inspector: record with NCCL_INSPECTOR_ENABLE=1"))
    rates = [one for one in logged.kinds if one.bus_gb_per_s is not None]
    none = next(
        (one.why for one in logged.kinds if one.why), "there is no formula for the bus bandwidth of these collectives"
    )
    found = {f"{BUS}[{kind}]": _slowest([one for one in rates if one.kind == kind], none) for kind in _kinds(logged)}
    return {**found, BUS: _slowest(rates, none), WAITING: _waits(logged)}


def ranks(logged: Logged) -> int:
    """The number of ranks of the largest communicator."""
    return max(one.ranks for one in logged.kinds)


def _kinds(logged: Logged) -> list[str]:
    return sorted({one.kind for one in logged.kinds})


def _slowest(kinds: list[LoggedKind], none: str) -> tuple[float | None, str]:
    if not kinds:
        return None, none
    worst = min(kinds, key=lambda one: one.bus_gb_per_s or 0.0)
    return worst.bus_gb_per_s, f"{worst.kind} of communicator {worst.name or worst.communicator}"


def _waits(logged: Logged) -> tuple[float | None, str]:
    """The largest waiting share of a process, and words that name that process and the one that arrives last."""
    known = [one for one in logged.processes if one.waiting_share is not None]
    if not known:
        return None, "no call is in the logs of all its ranks"
    worst = max(known, key=lambda one: one.waiting_share or 0.0)
    late = max(known, key=lambda one: one.arrived_last_share or 0.0)
    return worst.waiting_share, f"{_named(worst)}; {_named(late)} arrives last most often"


def _named(one: LoggedProcess) -> str:
    return f"rank {one.rank}" if one.rank is not None else f"process {one.pid} of {one.host}"
