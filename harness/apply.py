"""Prove a finding: the cell it was found in again, and beside it the same cell with the change made."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from profiles import numbers
from profiles.errors import RingscopeError
from profiles.measures import Finding
from profiles.records import Cell, write_whole
from profiles.scaling import Scaling
from profiles.stats import Ratio, ratio
from profiles.subjects import load

_CHANGES: dict[str, Callable[[Cell], Cell]] = {
    "not-compiled": lambda cell: replace(cell, step="compiled"),
    "unfused-batch-norm": lambda cell: replace(cell, step="compiled"),
    "launch-bound": lambda cell: replace(cell, step="compiled"),
    "short-kernels": lambda cell: replace(cell, step="compiled"),
    "python-in-the-loop": lambda cell: replace(cell, step="compiled"),
    "generic-rnn-cell": lambda cell: replace(cell, model=cell.model.removesuffix("_generic"), step="fit"),
    "tiny-batch": lambda cell: replace(cell, per_rank_batch=4 * cell.per_rank_batch),
    "off-tensor-cores": lambda cell: replace(cell, per_rank_batch=-(-cell.per_rank_batch // 8) * 8),
    "no-prefetch": lambda cell: replace(cell, feed="prefetch"),
    "prefetch-on-host-only": lambda cell: replace(cell, feed="device"),
    "copies-pageable": lambda cell: replace(cell, feed="pinned"),
    "copies-synchronous": lambda cell: replace(cell, feed="device"),
    "copies-exposed-although-prefetched": lambda cell: replace(cell, feed="pinned"),
    "float32-input": lambda cell: replace(cell, input_dtype="uint8"),
    "all-reduce-exposed": lambda cell: replace(cell, compression="fp16"),
    "gradients-not-compressed": lambda cell: replace(cell, compression="fp16"),
    "model-too-small": lambda cell: replace(cell, aggregate=4 * cell.aggregate),
}


@dataclass(frozen=True, slots=True)
class Trial:
    """A finding, the cell it was found in and the cell with its change."""

    finding: Finding
    before: Cell
    after: Cell


def trial(code: str, path: Path) -> Trial:
    """The trial of one finding of a recorded launch. Raises RingscopeError where it cannot be tried."""
    subject = load([path])
    if subject.measures is None or subject.record is None:
        raise RingscopeError(
            f"{path}: no recorded launch of a cell; name the directory that ringscope record wrote (with record.json)"
        )
    found: dict[str, Finding] = {}
    for finding in subject.measures.findings:
        found.setdefault(finding.code, finding)  # of several GPUs' the one that is worth most
    if code not in found:
        raise RingscopeError(f"{path}: no finding {code!r} there; its findings are {', '.join(found) or 'none'}")
    if code not in _CHANGES:
        raise RingscopeError(f"{code} is changed outside of a cell: {found[code].change}")
    before = subject.record.cell
    after = _CHANGES[code](before)
    if after == before:
        raise RingscopeError(f"the cell of {path} has the change of {code} already")
    return Trial(found[code], before, after)


def outcome(tried: Trial, scaling: Scaling) -> Ratio | None:
    """Throughput with the change over without it, per sample; None where either did not run."""
    one, other = (scaling.spreads.get(cell.id) for cell in (tried.before, tried.after))
    return ratio(other, one) if one is not None and other is not None else None


def report(tried: Trial, scaling: Scaling, directory: Path) -> str:
    """Predicted against measured in a sentence; both also into `applied.json`."""
    measured = outcome(tried, scaling)
    code, most = tried.finding.code, tried.finding.at_most_gain
    written = {
        "schema": "ringscope.applied/1",
        "finding": asdict(tried.finding),
        "before": tried.before.id,
        "after": tried.after.id,
        "predicted_at_most_gain": most,
        "measured": None if measured is None else asdict(measured),
    }
    write_whole(directory / "applied.json", json.dumps(written, indent=1) + "\n")
    if measured is None:
        return f"{code}: not measured, a launch failed"
    gain = f"{numbers.gain(measured.value - 1)} ({numbers.gain(measured.low - 1)} to {numbers.gain(measured.high - 1)})"
    bound = "no price" if most is None else f"at most {numbers.gain(most)}"
    return f"{code}: predicted {bound}, measured {gain} throughput"
