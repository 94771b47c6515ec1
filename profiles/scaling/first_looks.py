"""Choose what in a sweep the user should look at first: losses, waits, and cells that are better."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace

from ..ground.stats import Spread, ratio
from ..model.timeline import Doubt
from ..runs.cell import AXES, SETTINGS, Cell
from ..runs.records import SweepRecord
from . import batches, strategies
from .alike import same_but_ranks
from .batches import most_ranks
from .look import WORTH_A_LOOK, Look, least, ranks
from .rows import CellRow

# XProf's thresholds for "moderately" and "highly" input-bound, as shares of the step time.
INPUT_MODERATE, INPUT_HIGH = 0.05, 0.20
# Statuses of cells that this machine cannot run, or not with this model.
NEVER_BEGAN = ("unsupported", "indivisible")
# Settings that may be changed without changing the model that is trained.
EXCHANGEABLE = {one.name: one for one in SETTINGS if one.exchangeable}


def first_looks(
    sweep: SweepRecord, cells: Sequence[CellRow], spreads: dict[str, Spread], doubts: Sequence[Doubt]
) -> list[Look]:
    """Sentences on what to look at first, in this order: faults, answers to a comparison of backends, then at most four
    looks, the one with the largest gain first.

    If ranks share cores, looks about scaling are left out, since a doubt already says that these ranks cannot scale."""
    shared = any(doubt.code == "shared-cores" for doubt in doubts)
    faults = Counter(row.status for row in cells if row.status not in ("ok", "missing", "interrupted"))
    found = []
    if faults:
        first = next((row for row in cells if row.status in faults and row.status not in NEVER_BEGAN), None)
        kinds = ", ".join(f"{count} {status}" for status, count in faults.most_common())
        found.append(
            Look(
                "faults",
                f"{sum(faults.values())} of {len(cells)} cells did not finish: {kinds}",
                f"read the logs, for example in {first.cell.id}/. Once the cause is fixed: "
                "ringscope bench --resume --retry-failed"
                if first
                else "the rows of these cells give the reasons: leave these cells out, or provide what the reasons "
                "name",
            )
        )
    ranked = [
        *_better(sweep.cells, spreads),
        *batches.looks(cells, spreads),
        *([] if shared else strategies.looks(sweep.cells, spreads)),
        *([] if shared else _losses(cells)),
        *_waits(cells, with_gpu=bool(sweep.machine.get("gpus"))),
    ]
    alone = [cell for cell in sweep.cells if cell.ranks == 1] if shared else sweep.cells
    where = "these GPUs" if sweep.machine.get("gpus") else "this host"
    answers = strategies.answers(alone, spreads, where=where)
    return found + answers + sorted(ranked, key=lambda look: -look.worth)[:4]


def _better(cells: Sequence[Cell], spreads: dict[str, Spread]) -> list[Look]:
    """For each setting the change with the largest measured gain, on a model's largest number of ranks. A gain counts
    only if the intervals of the two throughputs do not overlap."""
    measured = [cell for cell in cells if cell.id in spreads]
    most = most_ranks(measured)
    best: dict[str, Look] = {}
    for slow, fast in itertools.permutations((cell for cell in measured if most[cell.model] == cell.ranks), 2):
        axis = _only_axis(slow, fast)
        if not axis or "resident" in (slow.feed, fast.feed):
            continue  # the feed `resident` sends no new data: it shows an upper bound, and is no choice for training
        gain = ratio(spreads[fast.id], spreads[slow.id])
        if gain.low <= 1 + WORTH_A_LOOK or gain.value - 1 <= (best[axis].worth if axis in best else 0):
            continue
        best[axis] = Look(
            f"better-{axis}",
            f"{slow.model} on {ranks(slow.ranks)}: {axis} {getattr(fast, axis)} instead of {getattr(slow, axis)} is "
            f"{gain.value:.2f} x as fast ({least(gain)})",
            f"train with --{EXCHANGEABLE[axis].single_option} {getattr(fast, axis)}",
            gain.value - 1,
            slow.model,
        )
    return list(best.values())


def _only_axis(cell: Cell, other: Cell) -> str | None:
    """The exchangeable setting in which two cells of horovod differ; None if they differ in several settings, or in
    none."""
    differing = [f.name for f in fields(Cell) if getattr(cell, f.name) != getattr(other, f.name)]
    return differing[0] if len(differing) == 1 and differing[0] in EXCHANGEABLE else None


def _losses(rows: Sequence[CellRow]) -> list[Look]:
    """Advice on the cell with the lowest efficiency."""
    losing = [row for row in rows if row.efficiency is not None and (row.efficiency_high or 1) < 1 - WORTH_A_LOOK]
    if not losing:
        return []
    row = min(losing, key=lambda row: row.efficiency or 1)
    cell, efficiency = row.cell, row.efficiency or 1
    return [
        Look(
            "scaling-loss",
            f"{cell.model} on {ranks(cell.ranks)} reaches {100 * efficiency:.0f} % of {cell.ranks} x one rank; with "
            f"100 % training would be {1 / efficiency:.2f} x as fast",
            f"record it and see where the time goes: ringscope record {options(cell)}",
            1 / efficiency - 1,
            cell.model,
        )
    ]


def _waits(rows: Sequence[CellRow], *, with_gpu: bool) -> list[Look]:
    """Advice on the cell that waits most for input, among cells on a model's largest number of ranks for which no
    faster feed was measured. Cells that lose more to other causes than to this wait are left out, since faster batches
    would not help them most."""
    most = most_ranks(row.cell for row in rows if row.step_ms_p50 is not None)
    waiting = [
        row
        for row in rows
        if (row.input_wait_share or 0) >= INPUT_MODERATE
        and row.cell.ranks == most.get(row.cell.model)
        and row.cell.feed != "resident"
        and not _faster_feed(row, rows)
        and not _loses_more_elsewhere(row, rows)
    ]
    if not waiting:
        return []
    row = max(waiting, key=lambda row: row.input_wait_share or 0)
    share = min(row.input_wait_share or 0, 0.99)
    word = "highly" if share >= INPUT_HIGH else "moderately"
    tried = {other.cell.feed for other in rows if same_but_ranks(replace(row.cell, feed=other.cell.feed), other.cell)}
    feeds = ("prefetch", "device", "pinned", "resident") if with_gpu else ("prefetch", "resident")
    untried = [feed for feed in feeds if feed not in tried]
    return [
        Look(
            "input-bound",
            f"{row.cell.model} on {ranks(row.cell.ranks)} with {row.cell.feed}{_strategy(row, rows)} is {word} "
            f"input-bound: a rank waits {100 * share:.0f} % of the step for its batch",
            f"ringscope bench --models {row.cell.model} --ranks {row.cell.ranks} "
            f"--feeds {','.join((row.cell.feed, *untried))} (resident: the speed without any feed)"
            if untried
            else "make batches in less time: more workers, uint8 input, records that are decoded beforehand",
            share / (1 - share),
            row.cell.model,
        )
    ]


def _strategy(row: CellRow, rows: Sequence[CellRow]) -> str:
    several = len({other.cell.strategy for other in rows}) > 1
    return f" and strategy {row.cell.strategy}" if several else ""


def _loses_more_elsewhere(row: CellRow, rows: Sequence[CellRow]) -> bool:
    """True if the ranks lose more to other causes than to waiting for input, compared with one rank. Approximate, since
    the numbers are medians."""
    one = next((other for other in rows if other.cell.ranks == 1 and same_but_ranks(row.cell, other.cell)), None)
    if one is None or row.cell.ranks == 1 or one.step_ms_p50 is None or row.step_ms_p50 is None:
        return False
    wait, before = row.input_wait_share or 0.0, one.input_wait_share or 0.0
    share = row.cell.per_rank_batch / one.cell.per_rank_batch  # with strong scaling a rank has fewer samples
    return row.step_ms_p50 * (1 - wait) - share * one.step_ms_p50 * (1 - before) > row.step_ms_p50 * wait


def _faster_feed(row: CellRow, rows: Sequence[CellRow]) -> bool:
    """True if a faster feed was measured, other than `resident`, which sends no data."""
    return any(
        other.cell.feed != "resident"
        and _only_axis(row.cell, other.cell) == "feed"
        and (other.samples_per_s_global or 0) > (row.samples_per_s_global or 0)
        for other in rows
    )


def options(cell: Cell, *, without: str = "") -> str:
    """The cell as command-line options of `train` and `record`. without: the name of an axis to leave out."""
    values = ((one, getattr(cell, one.name)) for one in AXES if one.name != without)
    return " ".join(f"--{one.single_option} {value}" for one, value in values if one.said(value))
