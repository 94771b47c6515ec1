"""Find GPUs that are slower than the others, since which step, and whether they share a host or a rail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from ..ground import numbers
from ..ground.stats import lasting
from ..model.measures import Measures
from ..model.steps import StepRow
from .case import Case

# If a GPU becomes slow during the window, it must stay slow for at least this many steps, to the end.
LEAST_STEPS = 10


@dataclass(frozen=True, slots=True)
class Slower:
    """A GPU that takes longer than the median of the other GPUs. `ns` and `others_ns` are ns per step over the slow
    steps, `lost_ns` is the lost time in the window, and `since` is the first slow step (None: slow in the whole
    window)."""

    case: Case
    ns: float
    others_ns: float
    lost_ns: int
    since: StepRow | None = None


@dataclass(frozen=True, slots=True)
class Whose:
    """The slow part of the cluster. `scope` is gpu, gpus, host, or rail (the GPU with the same index on every host),
    `name` is the part's name in the singular, and `hosts` are the hosts of the slow GPUs."""

    scope: str
    name: str
    hosts: tuple[str, ...]


def slower(cases: Sequence[Case], owner: str, times: float) -> list[Slower]:
    """The GPUs on which this owner of the ledger takes at least `times` as long as the median of the others."""
    rows = [{row.step: row for row in case.gpu.steps.rows} for case in cases]
    steps = sorted(set.intersection(*map(set, rows))) if rows else []
    told = [[row[step].ledger_ns.get(owner) for step in steps] for row in rows]
    whole = all(case.gpu.window == "steps" and case.gpu.steps.count == len(steps) for case in cases)
    if not steps or not whole or any(ns is None for of_gpu in told for ns in of_gpu):
        table = np.array([[case.ns(owner) / case.steps] for case in cases])
    else:
        table = np.array(told, dtype=float)
    found = []
    for place, (case, mine, others) in enumerate(zip(cases, table, _of_others(table), strict=True)):
        first = lasting(mine >= times * others)
        if first is None or (first and table.shape[1] - first < LEAST_STEPS):
            first = 0
        own, usual = float(mine[first:].mean()), float(others[first:].mean())
        if usual and own >= times * usual:
            weight = case.steps if table.shape[1] == 1 else 1
            lost = int((mine[first:] - others[first:]).sum() * weight)
            found.append(Slower(case, own, usual, lost, rows[place][steps[first]] if first else None))
    return found


def _of_others(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Median over the other GPUs, for each GPU (first axis) and step (second axis)."""
    count = len(table)
    if count < 2:
        return np.zeros_like(table)
    ordered = np.sort(table, axis=0)
    rank = np.argsort(np.argsort(table, axis=0, kind="stable"), axis=0, kind="stable")

    def nth(middle: int) -> NDArray[np.float64]:
        """For each GPU, the value at index `middle` of the sorted values of all other GPUs."""
        return np.take_along_axis(ordered, np.where(middle < rank, middle, middle + 1), axis=0)

    return (nth((count - 2) // 2) + nth((count - 1) // 2)) / 2


def whose(slow: Sequence[Case], cases: Sequence[Case], measures: Measures) -> Whose:
    """Name the slow part: hosts if all their GPUs are slow, a rail if the same GPU of each host is, else the GPUs."""
    hosts = [measures.recordings[case.gpu.recordings[0]].host for case in cases]
    index = {case.index for case in slow}
    on = {host: [case for case, own in zip(cases, hosts, strict=True) if own == host] for host in hosts if host}
    theirs = {host: [case.index in index for case in members] for host, members in on.items()}
    slow_hosts = tuple(host for host, flags in theirs.items() if any(flags))
    ranks = _ranks(slow)
    if len(on) > 1 and all(hosts):
        if all(all(theirs[host]) for host in slow_hosts) and len(slow) > len(slow_hosts):
            one = len(slow_hosts) == 1
            names = f"host {slow_hosts[0]}" if one else f"hosts {', '.join(slow_hosts)}"
            return Whose("host", f"every GPU of {names} ({ranks})", slow_hosts)
        place = [flags.index(True) for flags in theirs.values() if sum(flags) == 1]
        if len(place) == len(on) and len(set(place)) == 1 and len({len(flags) for flags in theirs.values()}) == 1:
            return Whose("rail", f"GPU {place[0]} of every host ({ranks})", slow_hosts)
    if len(slow) > 1:
        return Whose("gpus", f"each of {ranks}", slow_hosts)
    where = f" on host {slow_hosts[0]}" if len(on) > 1 and slow_hosts else ""
    return Whose("gpu", f"{slow[0].gpu.title}{where}", slow_hosts)


def _ranks(cases: Sequence[Case]) -> str:
    known = [case.gpu.rank for case in cases if case.gpu.rank is not None]
    if len(known) < len(cases):
        return f"{len(cases)} GPUs"
    return f"{'rank' if len(known) == 1 else 'ranks'} {numbers.ranges(known)}"


def far(cases: Sequence[Case], value: Callable[[Case], float], times: float) -> list[tuple[Case, float]]:
    """Each case whose value is at least `times` the median of the other cases, with that median."""
    each = [value(case) for case in cases]
    usual = [median(each[:place] + each[place + 1 :]) if len(each) > 1 else 0.0 for place in range(len(each))]
    return [
        (case, other) for case, mine, other in zip(cases, each, usual, strict=True) if other and mine >= times * other
    ]
