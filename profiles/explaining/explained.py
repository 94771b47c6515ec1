"""Explain why N ranks are not N times as fast as one: per model of a sweep, the losses from 1 to N ranks by cause.

For this explanation a run directory holds a second sweep in `explain/`. With GPUs, that sweep has for each model one
recorded launch on one rank and one on the largest number of ranks, and the losses come from these recordings (if
recording made steps longer, idle time is corrected to the timed launches). Without a GPU, it has launches that exchange
no gradients, and the losses come from profiles.explaining.without_exchange.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from ..comparing.loss_ledger import IDLE, LossLedger, losses, losses_of_timed
from ..doubts import sweeps as say
from ..ground.errors import RingscopeError
from ..model import measures_json
from ..model.findings import Finding
from ..model.measures import Measures
from ..model.timeline import Doubt
from ..runs.cell import Cell
from ..runs.records import Run, read_runs, read_sweep
from ..scaling.alike import same_but_ranks
from ..scaling.look import ranks as of_ranks
from ..scaling.measure import Scaling
from ..verdicts import more_ranks
from ..verdicts.case import OTHER_LADDER
from . import without_exchange
from .pairs import Pair, exchanging_nothing, pairs

FOLDER = "explain"  # the folder in a run directory
_RESUME = "ringscope bench --resume"
RECORDINGS, WITHOUT_EXCHANGE = "recordings", "without-exchange"  # methods
WORTH = OTHER_LADDER[1]  # losses of less than this share of the step are not named
# If a recorded step is longer or shorter than the timed steps by more than this share, recording changed it.
UNLIKE = 0.10


@dataclass(slots=True)
class Loss:
    """The time by which one cause makes a step longer, in ns; None if unknown, for the reason in `why`.

    low_ns, high_ns: the range over launches; None if there is only one launch of a kind, or if recordings were
    compared."""

    cause: str
    ns: int | None
    low_ns: int | None = None
    high_ns: int | None = None
    why: str = ""


@dataclass(slots=True)
class Explained:
    """The explanation for one model: losses in whole ns (None: unknown) that sum to step_after_ns - step_before_ns.

    With strong scaling step_before_ns is one rank's step divided by the number of ranks."""

    model: str
    ranks: int
    before: str  # ids of cells
    after: str
    method: str | None  # RECORDINGS or WITHOUT_EXCHANGE; None: the loss could not be explained
    profiler: str | None
    launches: dict[str, int]  # number of launches by kind: one, many, without_exchange
    step_before_ns: int
    step_after_ns: int
    losses: list[Loss]  # sorted, the largest first
    largest: str | None  # cause of the largest loss; None if that loss is below WORTH, or within the noise of launches
    finding: Finding | None
    recording: str | None = None  # folder of the recorded launch on N ranks, relative to the run directory
    doubts: list[Doubt] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "doubts"}


def told(scaling: Scaling, timed: Sequence[Run], directory: Path) -> tuple[Scaling, list[Explained]]:
    """Explain each model. Returns the scaling with the explanations' doubts and without advice that the explanations
    replace, and the explanations.

    Nothing is explained without the folder `explain/`. In an unfinished sweep, only models whose launches have all run
    are explained, if need be from the timed launches alone."""
    scaling = _resumed_by_name(scaling, directory)
    is_there = (directory / FOLDER / "sweep.json").is_file()
    ahead = [row.cell for row in scaling.cells if row.status in ("missing", "interrupted")]
    if not is_there and (not ahead or read_sweep(directory).options.get("explain") is False):
        return scaling, []
    beside = read_runs(directory / FOLDER) if is_there else []
    whole = [pair for pair in pairs(scaling) if not any(same_but_ranks(pair.many, cell) for cell in ahead)]
    found = [explained(pair, timed, beside, directory) for pair in whole]
    doubts = [doubt for one in found for doubt in one.doubts]
    known = {one.model for one in found if one.method}
    looks = [look for look in scaling.looks if look.code != "scaling-loss" or look.model not in known]
    return _resumed_by_name(replace(scaling, looks=looks, doubts=[*scaling.doubts, *doubts]), directory), found


def _resumed_by_name(scaling: Scaling, directory: Path) -> Scaling:
    """The doubts with the run directory named in commands that resume: without a name the newest sweep under `runs/`
    would be resumed."""

    def named(text: str) -> str:
        alone = re.compile(rf"{_RESUME}(?! --out)")
        return alone.sub(lambda _: f"{_RESUME} --out {shlex.quote(str(directory))}", text)

    return replace(
        scaling,
        looks=[replace(look, next=named(look.next)) for look in scaling.looks],
        doubts=[replace(doubt, next=named(doubt.next)) for doubt in scaling.doubts],
    )


def to_json(scaling: Scaling, found: Sequence[Explained]) -> dict[str, Any]:
    """The content of `ringscope report --json`, which begins with the explanations."""
    return {"schema": "ringscope.scaling/1", "explained": [one.to_json() for one in found], **scaling.to_json()}


def explained(pair: Pair, timed: Sequence[Run], beside: Sequence[Run], directory: Path) -> Explained:
    """Explain one model, by its recordings if any launch was recorded, else by launches without the exchange."""
    one, many = _launches(timed, pair.one), _launches(timed, pair.many)
    recorded = [next((run for run in beside if _is_recorded(run, cell)), None) for cell in (pair.one, pair.many)]
    if any(recorded):
        return _by_recordings(pair, one, many, recorded, directory)
    return _by_launches(pair, one, many, beside)


def _launches(runs: Sequence[Run], cell: Cell) -> list[without_exchange.Launch]:
    return [run.ranks for run in runs if run.record.cell == cell and run.ranks and not run.record.profiled]


def _is_recorded(run: Run, cell: Cell) -> bool:
    return run.record.profiled is not None and replace(run.record.cell, steps=cell.steps, until=cell.until) == cell


def _by_launches(pair: Pair, one: list[Any], many: list[Any], beside: Sequence[Run]) -> Explained:
    cell = exchanging_nothing(pair.many)
    without = many if pair.many.strategy == "independent" else _launches(beside, cell) if cell else []
    ledger = without_exchange.ledger(one, many, without, scale=pair.scale)
    bounds = without_exchange.bounds(one, many, without, scale=pair.scale) if len(one) > 1 and len(many) > 1 else {}
    why = "" if without else _why_not(cell, beside)
    found = _made(pair, ledger, WITHOUT_EXCHANGE if without else None, why)
    found.launches = {"one": len(one), "many": len(many), "without_exchange": len(without)}
    for loss in found.losses:
        if loss.cause in bounds:
            loss.low_ns, loss.high_ns = map(round, bounds[loss.cause])
    if found.largest and _is_noise(found.losses[0]):
        found.largest = None
    if found.largest:
        ns = found.losses[0].ns or 0
        found.finding = more_ranks.find(found.largest, ns, found.step_after_ns, pair.many)
    if why:
        found.doubts.append(say.not_explained(f"{pair.many.model} on {of_ranks(pair.many.ranks)}", why))
    return found


def _is_noise(loss: Loss) -> bool:
    """True if the loss is zero or negative for some pair of launches."""
    return loss.low_ns is not None and loss.low_ns <= 0


def _why_not(cell: Cell | None, beside: Sequence[Run]) -> str:
    """The reason why there is no launch without the exchange."""
    if cell is None:
        return (
            "there is no run without the exchange of gradients to compare with: only runs under Horovod can leave the "
            "exchange out"
        )
    failed = next((run.record for run in beside if run.record.cell == cell), None)
    if failed is None:
        return (
            "the run without the exchange of gradients is missing: it was left out to save time, or the sweep was "
            "stopped"
        )
    return f"the run without the exchange of gradients is {failed.status}: {failed.reason}"


def _by_recordings(
    pair: Pair, one: list[Any], many: list[Any], recorded: Sequence[Run | None], directory: Path
) -> Explained:
    try:
        before, after = (_measures(run, cell) for run, cell in zip(recorded, (pair.one, pair.many), strict=True))
        ledger = losses(before, after, scale=pair.scale)
    except RingscopeError as error:
        found = _made(pair, without_exchange.ledger(one, many, [], scale=pair.scale), None, str(error))
        found.doubts.append(say.not_explained(f"{pair.many.model} on {of_ranks(pair.many.ranks)}", str(error)))
        return found
    steps = without_exchange.usual(one), without_exchange.usual(many)
    timed = pair.scale * steps[0].whole, steps[1].whole
    unlike = list(_unlike(pair, ledger, timed))
    slowed = bool(unlike) and all(recorded > usual for _, recorded, usual in unlike)
    corrected = losses_of_timed(before, after, timed, scale=pair.scale) if slowed else None
    found = _made(pair, corrected or ledger, RECORDINGS, "the recordings do not show this time")
    run = recorded[1]
    assert run is not None  # measured steps exist, because losses() above raised no error
    found.profiler, found.recording = run.record.profiled, str(run.directory.relative_to(directory))
    if found.largest == IDLE:
        found.finding = _behind_idle(found, steps[1].wait - pair.scale * steps[0].wait, pair.many)
    else:
        found.finding = _behind(found, before, after)
    found.doubts += [say.recorded_unlike_timed(*each, corrected=corrected is not None) for each in unlike]
    return found


def _behind_idle(found: Explained, waits_ns: Fraction, cell: Cell) -> Finding:
    """The cause of a loss that is idle time: waiting for input if that grew in the timed launches by at least half of
    the loss, else the host."""
    ns = found.losses[0].ns or 0
    behind = more_ranks.find(without_exchange.INPUT if 2 * waits_ns >= ns else IDLE, ns, found.step_after_ns, cell)
    behind.saved_ns = {IDLE: ns}
    return behind


def _behind(found: Explained, before: Measures, after: Measures) -> Finding | None:
    """The finding that explains the largest loss: the first one on N ranks about the loss's cause whose cost is higher
    than on one rank by at least half of the loss."""
    if found.largest is None:
        return None
    cost = {one.code: one.cost_ns_per_step or 0 for one in before.findings}
    half = (found.losses[0].ns or 0) / 2
    grown = (one for one in after.findings if (one.cost_ns_per_step or 0) - cost.get(one.code, 0) >= half)
    return next((one for one in grown if found.largest in one.owners), None)


def _measures(run: Run | None, cell: Cell) -> Measures:
    """Read a launch's measures. Raises RingscopeError if it was not recorded, or not all its recordings were read."""
    if run is None:
        raise RingscopeError(
            f"the recording on {of_ranks(cell.ranks)} was left out to save time, or because the sweep was stopped"
        )
    if run.record.status != "ok":
        raise RingscopeError(f"the recording on {of_ranks(cell.ranks)} is {run.record.status}: {run.record.reason}")
    if not (run.directory / "measures.json").exists():
        raise RingscopeError(f"the recording on {of_ranks(cell.ranks)} is not measured yet")
    measures = measures_json.load(run.directory / "measures.json")
    if len(measures.recordings) < cell.processes:
        read = f"{len(measures.recordings)} of {cell.processes} recordings could be read"
        raise RingscopeError(f"of the launch on {of_ranks(cell.ranks)} {read}; see {run.directory}")
    return measures


def _unlike(
    pair: Pair, ledger: LossLedger, timed_ns: tuple[Fraction, Fraction]
) -> Iterator[tuple[str, Fraction, Fraction]]:
    """Yields (cell, ns of the recorded step, ns of the timed step) for cells where these differ by more than UNLIKE."""
    recorded_ns = ledger.step_before_ns, ledger.step_after_ns
    for cell, recorded, timed in zip((pair.one, pair.many), recorded_ns, timed_ns, strict=True):
        if abs(recorded / timed - 1) > UNLIKE:
            yield f"{cell.model} on {of_ranks(cell.ranks)}", recorded, timed


def _made(pair: Pair, ledger: LossLedger, method: str | None, why: str) -> Explained:
    before, after, parts = ledger.whole()
    found = [Loss(cause, ns, why="" if ns is not None else why) for cause, ns in parts.items() if ns != 0]
    found.sort(key=lambda loss: (loss.ns is None, -(loss.ns or 0)))
    most = max((loss for loss in found if loss.ns is not None), key=lambda loss: loss.ns or 0, default=None)
    return Explained(
        model=pair.many.model,
        ranks=pair.many.ranks,
        before=pair.one.id,
        after=pair.many.id,
        method=method,
        profiler=None,
        launches={"one": 1, "many": 1, "without_exchange": 0},
        step_before_ns=before,
        step_after_ns=after,
        losses=found,
        largest=most.cause if method and most and (most.ns or 0) >= WORTH * after else None,
        finding=None,
    )
