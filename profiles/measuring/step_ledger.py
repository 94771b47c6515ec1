"""The mean time per step of each owner, over the GPUs of a set of recordings."""

from __future__ import annotations

from fractions import Fraction

from ..ground.errors import RingscopeError
from ..model.measures import OWNERS, GpuMeasures, Measures

REST = "idle_unknown"


def per_step(measures: Measures) -> dict[str, Fraction | None]:
    """owner -> exact mean ns per step over all GPUs; None if a GPU does not know the owner: idle_unknown has that time.
    Raises RingscopeError if a GPU has no measured steps."""
    if not measures.gpus:
        raise RingscopeError("no GPU to compare; record a training that uses one")
    ledgers = [_of_gpu(gpu) for gpu in measures.gpus]
    found: dict[str, Fraction | None] = {}
    for owner in OWNERS:
        shares = [ledger[owner] for ledger in ledgers]
        known = [share for share in shares if share is not None]
        found[owner] = sum(known, Fraction(0)) / len(shares) if len(known) == len(shares) else None
    # The time of an owner that only some GPUs know counts as idle_unknown.
    only_some = [ledger[owner] or Fraction(0) for ledger in ledgers for owner in OWNERS if found[owner] is None]
    lost = sum(only_some, Fraction(0))
    rest = found[REST]
    found[REST] = (rest or Fraction(0)) + lost / len(ledgers)
    return found


def _of_gpu(gpu: GpuMeasures) -> dict[str, Fraction | None]:
    rows = gpu.steps.rows
    if rows:
        ledgers = [row.ledger_ns for row in rows]
    elif gpu.holds_steps_alone:
        ledgers = [gpu.ledger_ns]  # the measured steps fill the window
    elif gpu.window == "steps" and gpu.steps.count:  # read from a file of measures that has no row per step
        raise RingscopeError(
            f"{gpu.title}: the file of measures does not tell its steps apart; give the recordings, or measure them "
            "again: ringscope timeline PATH --per-step --json FILE"
        )
    else:
        why = gpu.steps.refused or "its steps were not found"
        raise RingscopeError(f"{gpu.title}: no steps to compare ({why}); give recordings whose steps are marked")
    count = gpu.steps.count
    return {
        owner: None
        if any(ledger[owner] is None for ledger in ledgers)
        else Fraction(sum(ledger[owner] or 0 for ledger in ledgers), count)
        for owner in OWNERS
    }
