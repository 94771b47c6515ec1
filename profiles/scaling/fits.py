"""The result of a search for the largest batch per rank that fits into memory, predictions from small batches, and
changes with which a larger batch would fit.

All follow from the files of the run directory alone: of a search, or of any runs that differ in batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ..doubts import sweeps as say
from ..ground import typed
from ..ground.errors import RingscopeError
from ..model.timeline import Doubt
from ..runs.cell import Cell
from ..runs.records import Run, SweepRecord, read_run, read_runs, read_sweep
from . import search
from .remedies import Known, Remedy, alike, known, memory_of, needed, remedies
from .search import Line, Plan, Try
from .tries import Tried, tried

SCHEMA = "ringscope.fits/1"
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Prediction:
    """The largest batch that is expected to fit, from runs with small batches. of: \"one run\" or \"two runs\"."""

    of: str
    batches: tuple[int, ...]
    largest: int
    line: Line


@dataclass(frozen=True, slots=True)
class Fits:
    """The state of a search: largest batch that fits (0: none yet), smallest that failed (None: none did)."""

    cell: Cell  # the cell with the largest batch that fits or, if none does, the first batch that was tried
    plan: Plan
    device: str  # whose memory limits the batch: GPU or host
    tries: tuple[Try, ...]
    again: int | None  # a batch that failed once, so that it must be launched again
    stopped: str  # why the search cannot go on: a launch ended in another way than for memory; else empty
    largest: int
    failing: int | None
    predictions: tuple[Prediction, ...]
    about: Known
    needed_bytes: float | None  # memory that the smallest failing batch needs
    remedies: tuple[Remedy, ...]  # changes that make the failing batch fit
    doubts: tuple[Doubt, ...]

    @property
    def next_batch(self) -> int | None:
        """The batch to launch next; None if the search is finished."""
        return self.again or search.next_batch(self.tries, self.plan)

    @property
    def done(self) -> bool:
        """True if the search is finished."""
        return self.next_batch is None

    @property
    def all_fit(self) -> bool:
        """True if the largest batch that may be tried fits."""
        return self.failing is None and self.largest >= self.plan.lattice(self.plan.most)


def read(directory: Path) -> Fits:
    """Read the state of the search in a run directory. Raises RingscopeError if the directory has no search."""
    sweep = read_sweep(directory)
    if "fits" not in sweep.options:
        raise RingscopeError(
            f"{directory}: this directory has no search for a batch; start one with: ringscope fits --model NAME"
        )
    try:
        return of_runs(sweep, read_runs(directory))
    except RingscopeError as error:
        raise RingscopeError(f"{directory}: {error}") from None


def planned(sweep: SweepRecord) -> Plan:
    """The plan of a search. Raises RingscopeError if sweep.json holds no valid plan."""
    data = sweep.options["fits"]
    try:
        typed.check(dict[str, Any], data, "fits")
        typed.check_fields(Plan, data)
        plan = Plan(**data)
        if not (sweep.cells and plan.start > 0 and plan.most > 0 and plan.multiple_of > 0 and plan.within >= 0):
            raise ValueError("it has no cell, or a batch below 1")
        return plan
    except (KeyError, TypeError, ValueError) as error:
        raise RingscopeError(
            f"sweep.json holds no complete search ({error}); begin another with ringscope fits"
        ) from None


def of_runs(sweep: SweepRecord, runs: Sequence[Run]) -> Fits:
    """The state of a search from its sweep and runs, as `read` returns it. Raises RingscopeError."""
    plan = planned(sweep)
    base = sweep.cells[0]
    found = tried(runs)
    low, high = search.bracket(found.tries)
    cell = replace(base, per_rank_batch=low or base.per_rank_batch)
    about = known(cell, runs)
    # If no launch failed for lack of memory, the memory that a failed launch needs is unknown.
    of_memory = any(one.out_of_memory for one in found.tries)
    failing = replace(base, per_rank_batch=high) if high and of_memory else None
    return Fits(
        cell=cell,
        plan=plan,
        device="GPU" if any(rank.device for run in runs for rank in run.ranks) else "host",
        tries=found.tries,
        again=found.again,
        stopped=_stopped(found, plan),
        largest=low,
        failing=high,
        predictions=tuple(predictions(cell, runs, plan.capacity_bytes)),
        about=about,
        needed_bytes=needed(failing, about, plan.capacity_bytes) if failing else None,
        remedies=tuple(remedies(failing, about, capacity_bytes=plan.capacity_bytes, fits=low)) if failing else (),
        doubts=tuple(_doubts(found.tries, low, high)),
    )


def _stopped(found: Tried, plan: Plan) -> str:
    """The reason why a search cannot go on, or why every batch failed without a lack of memory; else empty."""
    if found.stopping:
        one = found.stopping[0]
        return f"{one.cell.per_rank_batch} per rank {one.status}: {one.reason}"
    least = min(found.tries, key=lambda one: one.batch, default=None)
    at_end = search.next_batch(found.tries, plan) is None
    return f"{least.batch} per rank failed: {least.failure}" if at_end and least and least.failure else ""


def _doubts(tries: Sequence[Try], low: int, high: int | None) -> Iterator[Doubt]:
    if not search.is_monotone(tries):
        yield say.not_monotone(high or 0, max(one.batch for one in tries if one.fits))
    why = [one.failure for one in tries if one.batch == high]
    if low and high and all(why):
        yield say.fits_by_failure(high, why[0])


def predictions(cell: Cell, runs: Sequence[Run], capacity_bytes: int | None) -> list[Prediction]:
    """Predictions of the largest batch, from the smallest batch that was run and from the two smallest; [] if the
    capacity is unknown."""
    near = [run for run in runs if run.record.status == "ok" and alike(cell, run.record.cell)]
    by_batch = {run.record.cell.per_rank_batch: run for run in sorted(near, key=lambda run: run.record.started_utc_ns)}
    if capacity_bytes is None or not by_batch:
        return []
    found = []
    smallest = by_batch[min(by_batch)]
    tries = [Try(batch, memory_of(run)) for batch, run in by_batch.items()]
    if (one := line_of_one(smallest)) and (largest := one.largest(capacity_bytes)) is not None:
        found.append(Prediction("one run", (min(by_batch),), largest, one))
    if (two := search.line(tries)) and (largest := two.largest(capacity_bytes)) is not None:
        found.append(Prediction("two runs", tuple(sorted(by_batch)[:2]), largest, two))
    return found


def line_of_one(run: Run) -> Line | None:
    """Memory as a line over batch, from one run; None if the run did not record its memory.

    The fixed part is the memory after the model was built, plus gradients and the optimizer's state. The rest of the
    peak, with programs and workspaces, is assumed to grow with the batch, so the largest batch is more likely
    underestimated than overestimated."""
    peak, extra = memory_of(run), run.ranks[0].extra if run.ranks else {}
    fixed = [extra.get(name) for name in ("memory_built_bytes", "trainable_bytes", "optimizer_bytes")]
    if peak is None or any(value is None for value in fixed):
        return None
    known_bytes = sum(value for value in fixed if value is not None)
    batch = run.record.cell.per_rank_batch
    return Line(known_bytes, (peak - known_bytes) / batch) if peak > known_bytes else None


@dataclass(frozen=True, slots=True)
class Expected:
    """The largest batch predicted, without a search, from runs that differ only in their batch."""

    cell: Cell  # the cell of the smallest batch that was run
    capacity_bytes: int
    measured: tuple[Try, ...]
    predictions: tuple[Prediction, ...]


def expect(path: Path, capacity_bytes: int | None) -> list[Expected]:
    """Predict from a launch or a run directory, once per group of runs that differ only in their batch.

    capacity_bytes: memory that a rank may take; None: the memory of the runs' machine. Raises RingscopeError if no run
    recorded its memory."""
    runs = [read_run(path)] if (path / "record.json").is_file() else read_runs(path)
    ok = [run for run in runs if run.record.status == "ok" and memory_of(run) is not None]
    if not ok:
        damaged = next((run.record.reason for run in runs if run.record.status == "damaged"), None)
        none = f"{path}: no launch in it ended well and recorded its memory; name another run directory"
        raise RingscopeError(damaged or none)
    groups: list[list[Run]] = []
    for run in ok:
        group = next((group for group in groups if alike(group[0].record.cell, run.record.cell)), None)
        if group is None:
            groups.append(group := [])
        group.append(run)
    return [_expected(group, capacity_bytes) for group in groups]


def _expected(runs: Sequence[Run], capacity_bytes: int | None) -> Expected:
    cell = min((run.record.cell for run in runs), key=lambda cell: cell.per_rank_batch)
    room = capacity_bytes or capacity(cell, runs[0].record.machine)
    if room is None:
        raise RingscopeError("that machine's memory per rank is unknown; give --memory-limit-mb")
    tries = {run.record.cell.per_rank_batch: Try(run.record.cell.per_rank_batch, memory_of(run)) for run in runs}
    return Expected(cell, room, tuple(tries[batch] for batch in sorted(tries)), tuple(predictions(cell, runs, room)))


def capacity(cell: Cell, machine: Mapping[str, Any]) -> int | None:
    """Memory limit of a rank in bytes: the cell's limit, else the memory of the smallest GPU, else the host's divided
    by the processes. None if the machine's memory was not recorded."""
    if cell.memory_limit_mb:
        return cell.memory_limit_mb * MIB
    if gpus := [gpu["memory_bytes"] for gpu in machine.get("gpus") or () if gpu.get("memory_bytes")]:
        return int(min(gpus))
    return machine["memory_bytes"] // max(1, cell.processes) if machine.get("memory_bytes") else None


def to_json(fits: Fits) -> dict[str, Any]:
    """The content of fits.json."""
    return {
        "schema": SCHEMA,
        "cell": fits.cell.to_json(),
        "device": fits.device,
        "capacity_bytes": fits.plan.capacity_bytes,
        "largest_batch": fits.largest or None,
        "smallest_batch_that_does_not_fit": fits.failing,
        "all_fit": fits.all_fit,
        "done": fits.done,
        "stopped": fits.stopped or None,
        "doubts": list(map(asdict, fits.doubts)),
        "tries": list(map(_try, fits.tries)),
        "predictions": list(map(_prediction, fits.predictions)),
        "remedies": list(map(asdict, fits.remedies)),
    }


def expected_json(found: Sequence[Expected]) -> dict[str, Any]:
    """The JSON of predictions made without a search."""
    return {
        "schema": SCHEMA,
        "expected": [
            {
                "cell": one.cell.to_json(),
                "capacity_bytes": one.capacity_bytes,
                "tries": [{"batch": each.batch, "memory_bytes": each.memory_bytes} for each in one.measured],
                "predictions": list(map(_prediction, one.predictions)),
            }
            for one in found
        ],
    }


def _try(one: Try) -> dict[str, Any]:
    failure = {"failure": one.failure} if one.failure else {}
    return {"batch": one.batch, "fits": one.fits, "memory_bytes": one.memory_bytes, **failure}


def _prediction(one: Prediction) -> dict[str, Any]:
    return {
        "of": one.of,
        "batches": list(one.batches),
        "largest_batch": one.largest,
        "fixed_bytes": round(one.line.fixed_bytes),
        "per_sample_bytes": round(one.line.per_sample_bytes),
    }
