"""Decide which doubts about a sweep's numbers to raise. profiles/doubts/sweeps.py holds their texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..doubts import sweeps as say
from ..model.timeline import Doubt
from ..runs.records import Run
from .rows import CellRow, window_ns

FEW_LAUNCHES = 3
# A clock offset above this share of the window affects the throughput noticeably.
OFFSET_SHARE = 0.001
# Synchronous ranks start behind a barrier, so their windows should agree up to this share.
APART_SHARE = 0.1


def doubts(runs: Sequence[Run], cells: Sequence[CellRow]) -> list[Doubt]:
    """Doubts about the sweep's numbers."""
    found = [judge(run) for run in runs for judge in (_offsets, _apart)]
    few = [row for row in cells if 0 < row.ok < FEW_LAUNCHES]
    if few:
        found.append(say.low_replication(len(few), len(cells), FEW_LAUNCHES))
    if above := above_100_percent(cells):
        found.append(say.over_100_percent(", ".join(f"{row.cell.model} x{row.cell.ranks}" for row in above)))
    found += [_more_ranks_than_cores(runs), *_machines(runs)]
    return [doubt for doubt in found if doubt]


def above_100_percent(cells: Sequence[CellRow]) -> list[CellRow]:
    """The cells whose N ranks are surely more than N times as fast as one."""
    return [row for row in cells if row.efficiency_low is not None and row.cell.ranks > 1 and row.efficiency_low > 1]


def _offsets(run: Run) -> Doubt | None:
    """A doubt if the hosts' clocks differ by more than 0.1 % of the window."""
    if not run.ranks:
        return None
    worst = max(run.ranks, key=lambda rank: abs(rank.clock_offset_ns))
    share = abs(worst.clock_offset_ns) / window_ns(run.ranks)
    if share <= OFFSET_SHARE:
        return None
    return say.clock_offset(_launch(run), worst.host, worst.clock_offset_ns / 1e6, share)


def _apart(run: Run) -> Doubt | None:
    """A doubt if the windows of synchronous ranks do not cover the same time."""
    spread = run.record.cell.spread
    if not run.ranks or not (spread.exchange and spread.synchronous):
        return None
    longest = max(rank.window_end_ns - rank.window_start_ns for rank in run.ranks)
    apart = window_ns(run.ranks) - longest
    return say.windows_apart(_launch(run), apart / 1e6, apart / longest) if apart > APART_SHARE * longest else None


def _launch(run: Run) -> str:
    return f"{run.record.cell.id} launch {run.record.launch}"


def _more_ranks_than_cores(runs: Sequence[Run]) -> Doubt | None:
    """A doubt about the launch with most ranks per core, if it has more than one rank per core; hosts are assumed to be
    equal."""
    crowded: list[tuple[int, int, Run]] = []
    for run in runs:
        cores = (run.record.machine.get("cpu") or {}).get("usable")
        most = max(Counter(rank.host for rank in run.ranks).values(), default=0)
        if cores and most > cores:
            crowded.append((most, cores, run))
    if not crowded:
        return None
    most, cores, run = max(crowded, key=lambda found: found[0] / found[1])
    return say.more_ranks_than_cores(run.record.cell.id, most, cores)


def _machines(runs: Sequence[Run]) -> list[Doubt | None]:
    """Doubts if launches ran on different machines or libraries, or if ranks without GPUs share a host's cores."""
    found: list[Doubt | None] = []
    machines = [run.record.machine for run in runs if run.record.machine]
    facts = [(m.get("host"), m.get("driver"), str(m.get("packages")), len(m.get("gpus") or ())) for m in machines]
    if len(set(facts)) > 1:
        found.append(say.unlike_machines(len(set(facts))))
    crowded = {
        run.record.cell.ranks for run in runs if run.record.cell.ranks > 1 and run.ranks and not run.ranks[0].device
    }
    if crowded and not any(m.get("gpus") for m in machines):
        found.append(say.shared_cores())
    return found
