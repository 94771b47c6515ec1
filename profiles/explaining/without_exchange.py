"""Explain by timed launches alone why a step on N ranks takes longer than on one: launches with and without exchange.

For machines that have no GPU to record. Three kinds of launches of a cell are compared: on one rank, on N ranks, and on
N ranks that train at the same time and exchange nothing (`--strategy independent`). A launch's step time and wait for
input are means over all steps of all ranks. With t = step - wait:

    waiting for input     wait(N) - wait(1)
    exchange              t(N) - t(N without the exchange)
    compute               t(N without the exchange) - t(1)

which add up to step(N) - step(1). So `exchange` includes the work of the exchange and the waiting for other ranks;
`compute` includes what ranks lose because they share cores, caches and memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from ..comparing.loss_ledger import LossLedger
from ..runs.rank_records import RankRecord

INPUT, EXCHANGE, COMPUTE, UNKNOWN = "input_wait", "exchange", "compute", "unknown"
CAUSES = (INPUT, EXCHANGE, COMPUTE, UNKNOWN)
Launch = Sequence[RankRecord]  # the records of all ranks of a launch


@dataclass(frozen=True, slots=True)
class Step:
    """Means of a launch over all its steps and ranks, in ns."""

    whole: Fraction
    wait: Fraction

    @property
    def work(self) -> Fraction:
        return self.whole - self.wait


def step_of(launch: Launch) -> Step:
    """The means of one launch, whose ranks all have the same number of steps."""
    steps = sum(len(rank.step_ns) for rank in launch)
    whole = sum(sum(rank.step_ns) for rank in launch)
    return Step(Fraction(whole, steps), Fraction(sum(sum(rank.input_wait_ns) for rank in launch), steps))


def usual(launches: Sequence[Launch]) -> Step:
    """The step of the launch with the median step (the faster of two)."""
    return sorted(map(step_of, launches), key=lambda step: step.whole)[(len(launches) - 1) // 2]


def ledger(
    one: Sequence[Launch], many: Sequence[Launch], without: Sequence[Launch], *, scale: Fraction = Fraction(1)
) -> LossLedger:
    """The ledger of the `usual` launch of each kind; without launches in `without`, only the wait for input is known.

    scale: as in loss_ledger.losses."""
    before, after = usual(one), usual(many)
    loss_ns: dict[str, Fraction | None] = {INPUT: after.wait - scale * before.wait}
    rest = after.work - scale * before.work
    if without:
        alone = usual(without)
        loss_ns |= {EXCHANGE: after.work - alone.work, COMPUTE: alone.work - scale * before.work, UNKNOWN: Fraction(0)}
    else:
        loss_ns |= {EXCHANGE: None, COMPUTE: None, UNKNOWN: rest}
    return LossLedger(scale * before.whole, after.whole, loss_ns)


def bounds(
    one: Sequence[Launch], many: Sequence[Launch], without: Sequence[Launch], *, scale: Fraction = Fraction(1)
) -> dict[str, tuple[Fraction, Fraction]]:
    """By cause the (least, most) ns of the loss, over all combinations of a launch of each kind."""
    before, after, alone = ([step_of(launch) for launch in launches] for launches in (one, many, without))
    found = {INPUT: _apart([step.wait for step in after], [scale * step.wait for step in before])}
    if alone:
        works = [step.work for step in alone]
        found[EXCHANGE] = _apart([step.work for step in after], works)
        found[COMPUTE] = _apart(works, [scale * step.work for step in before])
    return found


def _apart(of: Sequence[Fraction], to: Sequence[Fraction]) -> tuple[Fraction, Fraction]:
    return min(of) - max(to), max(of) - min(to)
