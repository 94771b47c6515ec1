"""Make the tables of a sweep: one row per launch and one per cell, with speed-up and efficiency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from ..ground.stats import Spread, nearest_rank, spread
from ..runs.cell import SETTINGS, TELLING, Cell
from ..runs.rank_records import RankRecord
from ..runs.records import Run, SweepRecord
from .alike import efficiency_of, of_horovod, same_but_ranks


@dataclass(slots=True)
class LaunchRow:
    """One launch: a row of results.csv (`columns`)."""

    cell: Cell
    launch: int
    status: str
    reason: str
    samples_per_s_global: float | None
    step_ms_p50: float | None
    input_wait_share: float | None
    step_ms_p95: float | None
    window_ms: float | None
    clock_offset_ms_max: float | None
    launcher: str
    profiled: str | None
    started_utc_ns: int
    seconds: float
    host: str
    memory_peak_gb: float | None = None
    host_memory_peak_gb: float | None = None
    loss: float | None = None
    bubble_share: float | None = None
    staleness_p50: int | None = None
    staleness_max: int | None = None
    tuned_fusion_mib: float | None = None
    tuned_cycle_ms: float | None = None
    epochs: int | None = None
    accuracy: float | None = None
    validation_accuracy: float | None = None
    seconds_to_accuracy: float | None = None
    samples_to_accuracy: int | None = None


@dataclass(slots=True)
class CellRow:
    """One cell over its launches: a row of summary.csv (`columns`).

    Quantities are medians over launches. `_low` and `_high` bound the interval that `interval` names; it holds the true
    median with probability `coverage`. Speed-up: X(N) / X(1), where X is samples per second over all ranks; efficiency:
    speed-up / N, for weak and strong scaling; null without the 1-rank cell."""

    cell: Cell
    launches: int
    ok: int
    status: str
    reason: str
    samples_per_s_global: float | None = None
    samples_per_s_low: float | None = None
    samples_per_s_high: float | None = None
    interval: str | None = None
    coverage: float | None = None
    samples_per_s_sigma: float | None = None
    step_ms_p50: float | None = None
    input_wait_share: float | None = None
    speedup: float | None = None
    speedup_error: float | None = None
    efficiency: float | None = None
    efficiency_error: float | None = None
    efficiency_low: float | None = None
    efficiency_high: float | None = None
    efficiency_coverage: float | None = None
    memory_peak_gb: float | None = None
    host_memory_peak_gb: float | None = None
    loss: float | None = None
    bubble_share: float | None = None
    staleness_p50: float | None = None
    staleness_max: float | None = None
    of_horovod: float | None = None
    limited_by: str | None = None  # input, exchange, bubble or compute; None unless strategies are compared
    limited_share: float | None = None  # share of the step that `limited_by` takes
    tuned_fusion_mib: float | None = None
    tuned_cycle_ms: float | None = None
    reached: int | None = None  # number of launches that reached the accuracy of --until
    epochs: float | None = None
    accuracy: float | None = None
    validation_accuracy: float | None = None
    seconds_to_accuracy: float | None = None
    samples_to_accuracy: float | None = None
    speedup_to_accuracy: float | None = None
    note: str = ""  # why this cell cannot be compared with other cells

    @property
    def memory_gb(self) -> float | None:
        """Peak memory of a GPU, or of the host if no GPU trains, in 1e9 bytes."""
        return self.host_memory_peak_gb if self.memory_peak_gb is None else self.memory_peak_gb


# Columns of both tables that the ranks' records give directly, without step times (`_told`).
TOLD = (
    *("memory_peak_gb", "host_memory_peak_gb", "loss", "bubble_share", "staleness_p50", "staleness_max"),
    *("tuned_fusion_mib", "tuned_cycle_ms"),
)
# Columns of a training with --until; the last two are null if the accuracy was not reached.
LEARNED = ("epochs", "accuracy", "validation_accuracy", "seconds_to_accuracy", "samples_to_accuracy")
# Columns that come after all settings; other numbers come between the first settings and the last settings.
_BEHIND = (
    *("launcher", "profiled", "started_utc_ns", "seconds", "host", *TOLD, "of_horovod", "limited_by", "limited_share"),
    *(*LEARNED, "reached", "speedup_to_accuracy", "note"),
)


def columns(row: LaunchRow | CellRow) -> dict[str, Any]:
    """A row as {column: value}: settings, numbers and, last, the cell's id."""
    names = column_names(type(row))[:-1]
    return {name: getattr(row.cell if name in _SETTINGS else row, name) for name in names} | {"cell": row.cell.id}


def column_names(kind: type[LaunchRow] | type[CellRow]) -> list[str]:
    """The columns of results.csv (LaunchRow) or summary.csv (CellRow), in their order."""
    own = [one.name for one in fields(kind) if one.name != "cell"]
    first = [one.name for one in SETTINGS if one.column == "first"]
    # Settings in which cells often differ come before settings in which they seldom differ.
    last = [one.name for one in (*TELLING, *SETTINGS) if one.column == "last"]
    between, behind = ([name for name in own if (name in _BEHIND) is after] for after in (False, True))
    return [*first, *between, *dict.fromkeys(last), *behind, "cell"]


_SETTINGS = frozenset(one.name for one in SETTINGS)


def samples_per_s(ranks: Sequence[RankRecord]) -> float:
    """Global samples in the window / (latest end - earliest start over ranks), every rank's times on rank 0's clock."""
    return sum(rank.samples for rank in ranks) * 1e9 / window_ns(ranks)


def window_ns(ranks: Sequence[RankRecord]) -> int:
    """Latest end minus earliest start over ranks, on rank 0's clock."""
    start = min(rank.window_start_ns - rank.clock_offset_ns for rank in ranks)
    return max(rank.window_end_ns - rank.clock_offset_ns for rank in ranks) - start


def launch_row(run: Run) -> LaunchRow:
    """A launch's numbers; null where it is not ok. Percentiles are over all steps of all ranks, and null if the host
    ran ahead of the device: then the recorded times say how fast the host launches steps, not how long steps take."""
    record, ranks = run.record, run.ranks
    # If workers fetch their own batches, these times only measure how fast steps are handed out to the workers.
    unknown = any("input_wait_unknown" in rank.extra for rank in ranks)
    steps = [] if unknown else [step for rank in ranks for step in rank.step_ns]
    waits = sum(wait for rank in ranks for wait in rank.input_wait_ns)
    told = [] if any(map(_ran_ahead, ranks)) else steps
    p50 = nearest_rank(told, 50) if told else None
    return LaunchRow(
        cell=record.cell,
        launch=record.launch,
        status=record.status,
        reason=record.reason,
        samples_per_s_global=samples_per_s(ranks) if ranks else None,
        step_ms_p50=None if p50 is None else p50 / 1e6,
        step_ms_p95=nearest_rank(told, 95) / 1e6 if told else None,
        input_wait_share=waits / sum(steps) if steps else None,
        window_ms=window_ns(ranks) / 1e6 if ranks else None,
        clock_offset_ms_max=max(abs(rank.clock_offset_ns) for rank in ranks) / 1e6 if ranks else None,
        launcher=record.launcher,
        profiled=record.profiled,
        started_utc_ns=record.started_utc_ns,
        seconds=max(0, record.finished_utc_ns - record.started_utc_ns) / 1e9,
        host=str(record.machine.get("host", "")),
        **_told(ranks, p50),
        **_learned(ranks),
    )


def _ran_ahead(rank: RankRecord) -> bool:
    """True if the last of several steps, which waits for the device, takes longer than all earlier steps together."""
    return len(rank.step_ns) > 3 and rank.step_ns[-1] > sum(rank.step_ns[:-1])


def _told(ranks: Sequence[RankRecord], step_ns: int | None) -> dict[str, Any]:
    """The columns TOLD from the ranks' records; null if no rank recorded a value.

    memory_peak_gb: peak of TensorFlow's allocator on any GPU, warm-up included, in 1e9 bytes. host_memory_peak_gb: the
    largest peak of host memory of a rank, in 1e9 bytes. tuned_...: the values that Horovod's autotune chose, as
    recorded by the first rank, if it finished. loss: mean over the window and over the ranks.
    """
    host = [rank.extra["host_memory_peak_bytes"] for rank in ranks if rank.extra.get("host_memory_peak_bytes")]
    tuned = (ranks[0].extra.get("autotune") if ranks else None) or {}
    memory = [peak for rank in ranks for peak in rank.extra.get("memory_peak_bytes") or ()]
    losses = [rank.extra["logs"]["loss"] for rank in ranks if "loss" in (rank.extra.get("logs") or {})]
    staleness = [updates for rank in ranks for updates in rank.extra.get("staleness") or ()]
    return {
        "memory_peak_gb": max(memory) / 1e9 if memory else None,
        "host_memory_peak_gb": max(host) / 1e9 if host else None,
        **{f"tuned_{name}": tuned[name] for name in ("fusion_mib", "cycle_ms") if tuned.get("finished")},
        "loss": sum(losses) / len(losses) if losses else None,
        "bubble_share": bubble_share([rank.extra.get("pipeline") for rank in ranks], step_ns),
        "staleness_p50": nearest_rank(staleness, 50) if staleness else None,
        "staleness_max": max(staleness) if staleness else None,
    }


def bubble_share(pipelines: Sequence[dict[str, Any] | None], step_ns: int | None) -> float | None:
    """The pipeline bubble: the share of a step in which a stage's GPU idles, 1 - busy / (stages x step).

    busy: the sum over stages of micro-batches x `stage_ns`, the stage's forward and backward time for one micro-batch,
    measured alone. Null without stages, and if busy exceeds stages x step: then the stages were not measured
    undisturbed, or are not compute-bound."""
    known = [one for one in pipelines if one]
    if not known or not step_ns:
        return None
    busy = sum(one["micro_batches"] * sum(one["stage_ns"]) for one in known)
    share = 1 - busy / (sum(len(one["stage_ns"]) for one in known) * step_ns)
    return share if share >= 0 else None


def _learned(ranks: Sequence[RankRecord]) -> dict[str, Any]:
    """The columns LEARNED. Ranks differ only in their training times, of which the longest counts."""
    told = [rank.extra["convergence"] for rank in ranks if rank.extra.get("convergence")]
    if not told:
        return {}
    last, reached = told[0]["history"][-1], told[0]["reached"]
    seconds = max(one["history"][-1]["training_ns"] for one in told) / 1e9
    return {
        "epochs": told[0]["epochs"],
        "accuracy": last["accuracy"],
        "validation_accuracy": last["validation_accuracy"],
        "seconds_to_accuracy": seconds if reached else None,
        "samples_to_accuracy": last["samples"] if reached else None,
    }


def cell_row(cell: Cell, rows: Sequence[LaunchRow], sweep: SweepRecord, spreads: dict[str, Spread]) -> CellRow:
    good = [row for row in rows if row.status == "ok"]
    bad = next((row for row in rows if row.status != "ok"), None)
    row = CellRow(
        cell=cell,
        launches=sweep.launches,
        ok=len(good),
        status=bad.status if bad else "ok" if rows else "missing",
        reason=bad.reason if bad else "" if rows else "not launched yet",
        note=cell.spread.note,
    )
    if own := spreads.get(cell.id):
        row.samples_per_s_global, row.samples_per_s_low, row.samples_per_s_high = own.median, own.low, own.high
        row.interval, row.coverage, row.samples_per_s_sigma = own.interval, own.coverage, own.sigma
        steps = [r.step_ms_p50 for r in good if r.step_ms_p50 is not None]
        row.step_ms_p50 = spread(steps).median if steps else None
        waits = [r.input_wait_share for r in good if r.input_wait_share is not None]
        row.input_wait_share = spread(waits).median if waits else None
        for name in TOLD:
            values = [value for r in good if (value := getattr(r, name)) is not None]
            setattr(row, name, spread(values).median if values else None)
        row.of_horovod = of_horovod(cell, sweep.cells, spreads)
    _of_learning(row, good)
    if efficiency := efficiency_of(cell, sweep.cells, spreads):
        row.speedup = efficiency.value * cell.ranks
        row.efficiency, row.efficiency_error = efficiency.value, efficiency.error
        row.speedup_error = None if efficiency.error is None else efficiency.error * cell.ranks
        row.efficiency_low, row.efficiency_high = efficiency.low, efficiency.high
        row.efficiency_coverage = efficiency.coverage
    return row


def _of_learning(row: CellRow, good: Sequence[LaunchRow]) -> None:
    """Fill in medians over launches; time and samples to the accuracy only if all launches reached it."""
    told = [one for one in good if one.epochs is not None]
    if not told:
        return
    row.reached = sum(one.seconds_to_accuracy is not None for one in told)
    for name in LEARNED:
        values = [value for one in told if (value := getattr(one, name)) is not None]
        setattr(row, name, spread(values).median if len(values) == len(told) else None)


def speedups_to_accuracy(rows: Sequence[CellRow]) -> None:
    """Fill in speedup_to_accuracy: time to the accuracy on one rank / time on N; null if either did not reach it."""
    reached = [row for row in rows if row.seconds_to_accuracy]
    for row in reached:
        one = next((other for other in reached if other.cell.ranks == 1 and same_but_ranks(row.cell, other.cell)), None)
        if one and one.seconds_to_accuracy and row.seconds_to_accuracy:
            row.speedup_to_accuracy = one.seconds_to_accuracy / row.seconds_to_accuracy
