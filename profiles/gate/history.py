"""Keep the history of runs in a file, one line each; tell if a step became slower, since when, and by which owner."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path
from statistics import fmean, median, pstdev, stdev
from typing import Final

from ..ground import numbers, typed
from ..ground.errors import RingscopeError
from ..ground.files import alone, text_of, write_whole
from ..measuring.step_ledger import REST, per_step
from ..measuring.subject import Subject
from ..model.measures import OWNERS, Measures
from ..readers import opening
from ..runs import written
from . import of_logs
from .baseline import baseline_of, unlike
from .baseline_file import Baseline
from .change import BY_FEW, BY_ONE, FEW, Found, last
from .checks import BROKEN, HOLDS, UNJUDGED, Check

SCHEMA: Final = "ringscope.run/1"
MOST_RUNS: Final = 200
STEP: Final = "step_ns"
RATE: Final = "samples_per_s_global["
# Metrics of which the history keeps the inverse, a time: samples/s of a cell, bus bandwidth of a kind of collective.
_RATES: Final = (RATE, f"{of_logs.BUS}[")
_TOLD: Final = 4  # number of owners that a message names


@dataclass(frozen=True, slots=True)
class Run:
    """One run, which is one line of the history."""

    time: str  # ISO 8601, UTC
    commit: str | None
    ledger_ns: Mapping[str, int]  # ns per step by owner, mean over GPUs; unknown owners are left out
    of: Baseline
    schema: str = SCHEMA

    @property
    def times(self) -> dict[str, float]:
        """Times in ns by metric: per step, per sample of each cell, per GB of each kind of collective."""
        step = {STEP: float(sum(self.ledger_ns.values()))} if self.ledger_ns else {}
        rates = {name: rate for name, rate in self.of.metrics.items() if name.startswith(_RATES) and rate > 0}
        return step | {name: 1e9 / rate for name, rate in rates.items()}


def run_of(subject: Subject, time: str, commit: str | None) -> Run:
    """Make the history's entry of a run. Raises RingscopeError if the run has no steps, no measured cells and no
    bandwidths of collectives."""
    why = subject.unmeasured or "no recording, and no cell that ran; give recordings or a finished sweep"
    try:
        ledger = _whole(subject.measures) if subject.measures else {}
    except RingscopeError as error:  # the cells of a run directory may still have samples/s
        ledger, why = {}, str(error)
    found = Run(time, commit, ledger, baseline_of(subject))
    if not found.times:
        raise RingscopeError(f"{subject.label}: the run has no step time to compare or export: {why}")
    return found


def _whole(measures: Measures) -> dict[str, int]:
    return {owner: round(ns) for owner, ns in per_step(measures).items() if ns is not None}


def judged_and_kept(path: Path, subject: Subject, time: str, commit: str | None) -> list[Check]:
    """Judge a run by the earlier runs in a file, and add the run to the file. Raises RingscopeError, and then leaves
    the file unchanged.

    If all numbers of a line equal the run's, it is the same run, which CI judges again for each commit that brings no
    new one: it is judged by the runs before it, and not added."""
    run = run_of(subject, time, commit)
    try:
        with alone(path):
            runs = from_text(path, _text(path))
            for at, one in enumerate(runs):
                if (one.ledger_ns, one.of) == (run.ledger_ns, run.of):
                    again = f"; the history has this run already: {_called(one)}"
                    before = [each for each in runs[:at] if not unlike(subject, each.of, "")]
                    return [replace(check, message=check.message + again) for check in judged(subject, one, before)]
            checks = judged(subject, run, runs)
            write_whole(path, "".join(json.dumps(asdict(one)) + "\n" for one in [*runs, run][-MOST_RUNS:]))
    except OSError as error:
        raise RingscopeError(
            f"{path}: cannot be used for the history: {error.strerror or error}; name another file"
        ) from None
    return checks


def _text(path: Path) -> str:
    try:
        return text_of(path)
    except ValueError as error:
        raise RingscopeError(f"{path}: not a history ({error}); name another file") from None


def from_text(path: Path, text: str) -> list[Run]:
    """Read the runs of a history. Raises RingscopeError for the first line that is no run."""
    kind = written.told(path, text[: opening.HEAD_BYTES].encode())
    if kind and kind != written.HISTORY:
        raise RingscopeError(f"{path}: {kind[0]}, not a history of runs; name another file")
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            data = typed.loads(line)
            if not isinstance(data, dict) or data.get("schema") != SCHEMA:
                raise ValueError(f"not of schema {SCHEMA}")
            run = typed.made(Run, data, texts=False)
            if run.ledger_ns.keys() - set(OWNERS) or any(ns < 0 for ns in run.ledger_ns.values()) or not run.times:
                raise ValueError("it has neither step times by owner nor a cell's samples/s")
            if not all(0 < one < float("inf") for one in run.times.values()):
                raise ValueError("a time is not a positive, finite number")
            found.append(run)
        except ValueError as error:
            raise RingscopeError(
                f"{path}: line {number} is not a run of a history ({error}); remove the line, or name another file"
            ) from None
    return found


def judged(subject: Subject, run: Run, runs: Sequence[Run]) -> list[Check]:
    """Check each time of the run against earlier runs with the same GPUs and the same work."""
    unlikes = [unlike(subject, one.of, "the run before") for one in runs]
    alike = [one for one, why in zip(runs, unlikes, strict=True) if not why]
    if runs and not alike:
        text = f"{unlikes[-1]}; this run was added, and later runs on the same GPUs and work are compared with it"
        return [Check("history", "max", 0.0, None, UNJUDGED, text)]
    return [_check(name, run, alike, len(run.times)) for name in run.times]


def _check(name: str, run: Run, alike: Sequence[Run], tests: int) -> Check:
    runs = [*(one for one in alike if name in one.times), run]
    times = [one.times[name] for one in runs]
    found = last(times, tests)
    steps, bound = name == STEP, "max" if name == STEP else "min"
    value = times[-1] if steps else 1e9 / times[-1]
    limit = (found.limit if steps else 1e9 / found.limit) if found.before else value
    text = f"{name} = {_shown(name, times[-1])}"
    if not found.before:
        return Check(name, bound, limit, value, HOLDS, f"{text}, the first run of its history")
    before, since = [runs[one] for one in found.before], [runs[one] for one in found.since]
    if not since:
        scatter = f"scatter {numbers.share(_scatter([times[one] for one in found.before]))}"
        by = scatter if found.by_scatter else f"{scatter}, uncertain with fewer than {FEW} runs"
        told = f"no change from {_earlier(before)} ({by}); a single run is doubted from {_shown(name, found.limit)} on"
        if found.doubted:
            apart = times[-1] / median(times[one] for one in found.before) - 1
            told = f"{_apart(apart)} than the median of {_earlier(before)} ({by}); this is a doubt, not yet a change: "
            told += "one run may be an outlier; run it again: two such runs in a row are a change"
        return Check(name, bound, limit, value, HOLDS, f"{text}, {told}")
    ratio, where = fmean(one.times[name] for one in since) / fmean(one.times[name] for one in before) - 1, ""
    error = _error([one.times[name] for one in before], len(since))
    doubt = f" ± {numbers.share(error / fmean(one.times[name] for one in before))}" if error is not None else ""
    if steps:
        where = "per step: " + ", ".join(_owners(before, since))
    text += f", {_apart(ratio, doubt)} than {_earlier(before)}"
    text += f", since {_called(since[0])} ({_by(found)})" + (f"; {where}" if where else "")
    return Check(name, bound, limit, value, BROKEN if ratio > 0 else HOLDS, text, where)


def changes_ns(before: Sequence[Run], since: Sequence[Run]) -> dict[str, Fraction]:
    """The change in ns of each owner's mean time per step; the changes sum exactly to the mean step's change.

    An owner that is unknown in any of the runs counts as idle_unknown in all of them."""
    every = [one.ledger_ns for one in (*before, *since)]
    known = {owner for owner in OWNERS if owner != REST and all(owner in one for one in every)}

    def mean(runs: Sequence[Run], owner: str) -> Fraction:
        rest = {one for one in OWNERS if one not in known} if owner == REST else {owner}
        return Fraction(sum(run.ledger_ns.get(one, 0) for run in runs for one in rest), len(runs))

    found = {owner: mean(since, owner) - mean(before, owner) for owner in OWNERS if owner in known or owner == REST}
    steps = [Fraction(sum(sum(one.ledger_ns.values()) for one in runs), len(runs)) for runs in (before, since)]
    if sum(found.values()) != steps[1] - steps[0]:
        raise AssertionError("the owners' changes do not sum to the change of the step")
    return found


def _owners(before: Sequence[Run], since: Sequence[Run]) -> list[str]:
    """Words for the owners whose time changed most, and for the summed change of all other owners."""
    changes = changes_ns(before, since)
    order = sorted((one for one in changes if changes[one]), key=lambda one: -abs(changes[one]))
    told = []
    for owner in order[:_TOLD]:
        error = _error([float(one.ledger_ns.get(owner, 0)) for one in before], len(since))
        doubt = "" if error is None else f" ± {error:,.0f}"
        told.append(f"{owner} {float(changes[owner]):+,.0f}{doubt} ns")
    if rest := order[_TOLD:]:
        told.append(f"others {float(sum(changes[one] for one in rest)):+,.0f} ns")
    return told


def _error(before: Sequence[float], since: int) -> float | None:
    """Two standard errors of the difference of the two means, from the scatter of `before`; None if `before` is one
    run."""
    return 2 * stdev(before) * (1 / len(before) + 1 / since) ** 0.5 if len(before) > 1 else None


def _scatter(times: Sequence[float]) -> float:
    return pstdev(times) / fmean(times)


def _shown(name: str, time: float) -> str:
    if name == STEP:
        return numbers.duration(time)
    return numbers.per_s(1e9 / time) if name.startswith(RATE) else numbers.gb_per_s(1e9 / time)


def _called(run: Run) -> str:
    return f"the run of {run.time}" + (f", commit {run.commit[:12]}" if run.commit else "")


def _earlier(runs: Sequence[Run]) -> str:
    return numbers.counted(len(runs), "earlier run")


def _apart(ratio: float, doubt: str = "") -> str:
    """Words such as `3.1 % ± 0.9 % slower` for a ratio of times minus 1."""
    return f"{numbers.share(abs(ratio))}{doubt} {'slower' if ratio > 0 else 'faster'}"


def _by(found: Found) -> str:
    count = numbers.counted(len(found.since), "run")
    if found.p_value is not None:
        return f"p = {found.p_value:.1g}, {count}"
    return f"{count}, the last further off than 1 run in {1 / (BY_ONE if found.by_scatter else BY_FEW):,.0f} by chance"
