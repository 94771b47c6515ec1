"""A sweep's numbers -> what to doubt in them and what to look at first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields

from .records import Cell, Run, SweepRecord
from .scaling import OFFSET_SHARE, CellRow, Look, same_but_ranks, window_ns
from .stats import Spread, ratio
from .timeline import Doubt

# XProf's words for waiting for input, as shares of the step time.
INPUT_MODERATE, INPUT_HIGH = 0.05, 0.20
# Below this a scaling loss is not worth a look of its own.
WORTH_A_LOOK = 0.03
FEW_LAUNCHES = 3
# What can be exchanged without changing what is learnt, in the order in which it is cheap to try.
AXES = {
    "feed": "feeds",
    "step": "step",
    "input_dtype": "input-dtype",
    "precision": "precision",
    "compression": "compression",
}


def doubts(
    sweep: SweepRecord, runs: Sequence[Run], cells: Sequence[CellRow], spreads: dict[str, Spread]
) -> list[Doubt]:
    """What makes the sweep's numbers less than certain."""
    found = [_offsets(run) for run in runs]
    few = [row for row in cells if 0 < row.ok < FEW_LAUNCHES]
    if few:
        found.append(
            Doubt(
                "low-replication",
                f"{len(few)} of {len(cells)} cells rest on fewer than {FEW_LAUNCHES} launches: their intervals cover "
                f"the true median with {min(row.coverage or 0 for row in few):.0%} only",
                "run more launches: ringscope bench --resume --launches 5",
            )
        )
    above = [row for row in cells if row.efficiency_low is not None and row.ranks > 1 and row.efficiency_low > 1]
    if above:
        names = ", ".join(f"{row.model} x{row.ranks}" for row in above)
        found.append(
            Doubt(
                "over-100-percent",
                f"{names}: more than N times one rank; the one-rank cell was held back by something",
                "look at the one-rank cell: its input wait, its clocks, what else ran beside it",
            )
        )
    found += _machines(runs)
    return [doubt for doubt in found if doubt]


def _offsets(run: Run) -> Doubt | None:
    """Clocks of the hosts further apart than 0.1 % of the window."""
    if not run.ranks:
        return None
    worst = max(run.ranks, key=lambda rank: abs(rank.clock_offset_ns))
    share = abs(worst.clock_offset_ns) / window_ns(run.ranks)
    if share <= OFFSET_SHARE:
        return None
    record = run.record
    return Doubt(
        "clock-offset",
        f"{record.cell.id} launch {record.launch}: {worst.host}'s clock is {worst.clock_offset_ns / 1e6:+.3f} ms from "
        f"rank 0's, {share:.2%} of the window; it was taken off, to the accuracy of a barrier",
        "keep the hosts' clocks together (chrony), or measure over more --steps",
    )


def _machines(runs: Sequence[Run]) -> list[Doubt | None]:
    """Launches that ran on machines or libraries that differ."""
    found: list[Doubt | None] = []
    machines = [run.record.machine for run in runs if run.record.machine]
    facts = [(m.get("host"), m.get("driver"), str(m.get("packages")), len(m.get("gpus") or ())) for m in machines]
    if len(set(facts)) > 1:
        found.append(
            Doubt(
                "unlike-machines",
                f"the launches ran on {len(set(facts))} machines or sets of libraries that differ",
                "compare within one of them: name another --out after a change",
            )
        )
    crowded = {
        run.record.cell.ranks for run in runs if run.record.cell.ranks > 1 and run.ranks and not run.ranks[0].device
    }
    if crowded and not any(m.get("gpus") for m in machines):
        found.append(
            Doubt(
                "shared-cores",
                "no GPU: the ranks of a host share its cores, which one rank alone has to itself; "
                "below 100 % is this machine's arithmetic before it is anybody's fault",
                "read the comparison of feeds and steps, and measure scaling where each rank has a GPU",
            )
        )
    return found


def first_looks(sweep: SweepRecord, cells: Sequence[CellRow], spreads: dict[str, Spread]) -> list[Look]:
    """What to look at first: faults, then what is worth most."""
    by_id = {cell.id: cell for cell in sweep.cells}
    faults = Counter(row.status for row in cells if row.status not in ("ok", "missing"))
    found = []
    if faults:
        first = next(row for row in cells if row.status in faults)
        kinds = ", ".join(f"{count} {status}" for status, count in faults.most_common())
        found.append(
            Look(
                "faults",
                f"{sum(faults.values())} of {len(cells)} cells did not run: {kinds}",
                f"see reason in results.csv and the logs in {first.cell}/; run them again with --resume --retry-failed",
                float("inf"),
            )
        )
    ranked = [*_better(sweep.cells, spreads), *_losses(cells), *_waits(cells, by_id)]
    return found + sorted(ranked, key=lambda look: -look.worth)[:4]


def _better(cells: Sequence[Cell], spreads: dict[str, Spread]) -> list[Look]:
    """Exchanges that were measured here and gain more than both intervals: the best of each axis at the most ranks."""
    best: dict[str, Look] = {}
    for slow in cells:
        for fast in cells:
            axis = _only_axis(slow, fast)
            if not axis or slow.id not in spreads or fast.id not in spreads:
                continue
            gain = ratio(spreads[fast.id], spreads[slow.id])
            if gain.low <= 1 + WORTH_A_LOOK or gain.value - 1 <= (best[axis].worth if axis in best else 0):
                continue
            best[axis] = Look(
                f"better-{axis}",
                f"{slow.model} on {slow.ranks}: {axis} {getattr(fast, axis)} instead of {getattr(slow, axis)} is "
                f"{gain.value:.2f} x as fast (at least {gain.low:.2f} x)",
                f"train with --{AXES[axis]} {getattr(fast, axis)}",
                gain.value - 1,
            )
    return list(best.values())


def _only_axis(cell: Cell, other: Cell) -> str | None:
    """The one exchangeable setting in which two cells of horovod differ, None where there is another or none."""
    differing = [f.name for f in fields(Cell) if getattr(cell, f.name) != getattr(other, f.name)]
    return differing[0] if len(differing) == 1 and differing[0] in AXES else None


def _losses(cells: Sequence[CellRow]) -> list[Look]:
    """The cell that loses most against N times one rank."""
    losing = [row for row in cells if row.efficiency is not None and (row.efficiency_high or 1) < 1 - WORTH_A_LOOK]
    if not losing:
        return []
    row = min(losing, key=lambda row: row.efficiency or 1)
    worth = 1 / (row.efficiency or 1) - 1
    return [
        Look(
            "scaling-loss",
            f"{row.model} on {row.ranks} reaches {row.efficiency:.0%} of {row.ranks} x one rank: the rest is worth at "
            f"most {worth:.0%}",
            f"record it and see where the time goes: ringscope record {options(row)}",
            worth,
        )
    ]


def _waits(cells: Sequence[CellRow], by_id: dict[str, Cell]) -> list[Look]:
    """The cell that waits most for input."""
    waiting = [row for row in cells if (row.input_wait_share or 0) >= INPUT_MODERATE and row.feed != "resident"]
    if not waiting:
        return []
    row = max(waiting, key=lambda row: row.input_wait_share or 0)
    share = row.input_wait_share or 0
    word = "highly" if share >= INPUT_HIGH else "moderately"
    tried = {other.feed for other in by_id.values() if same_but_ranks_and_feed(by_id[row.cell], other)}
    feeds = [feed for feed in ("prefetch", "device", "resident") if feed not in tried]
    remedy = f"try --feeds {','.join(sorted(tried | set(feeds)))}" if feeds else "see the feeds compared above"
    return [
        Look(
            "input-bound",
            f"{row.model} on {row.ranks} with {row.feed} is {word} input-bound: {share:.0%} of the step waits for it",
            remedy,
            min(share / (1 - share), 10.0) if share < 1 else 10.0,
        )
    ]


def same_but_ranks_and_feed(cell: Cell, other: Cell) -> bool:
    """Whether two cells differ in nothing but ranks and feed."""
    from dataclasses import replace

    return same_but_ranks(replace(cell, feed=other.feed), other)


def options(row: CellRow) -> str:
    """The cell as `train` and `record` take it."""
    text = f"--model {row.model} --ranks {row.ranks} --per-rank-batch {row.per_rank_batch} --feed {row.feed}"
    for name, value, usual in (
        ("step", row.step, "fit"),
        ("input-dtype", row.input_dtype, "float32"),
        ("precision", row.precision, "float32"),
        ("compression", row.compression, "none"),
    ):
        text += f" --{name} {value}" if value != usual else ""
    return text
