"""Find kernels, operators and layers that became slower or faster, are new or gone; they sum to the ledger's change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from ..ground.errors import RingscopeError
from ..model.measures import GpuMeasures, Measures
from ..model.operations import Operators

BUSY = ("compute", "collective")  # owners in the ledger whose work is kernels
# By name: (ns that the name owns in the ledger, ns of idle time that the name's operations ended).
Share: TypeAlias = tuple[Fraction, Fraction]
_NONE: Share = (Fraction(0), Fraction(0))


@dataclass(frozen=True, slots=True)
class NamedChange:
    """The time of one name per step (or in the whole recording), before and after."""

    name: str
    before_ns: Fraction
    after_ns: Fraction
    idle_before_ns: Fraction
    idle_after_ns: Fraction
    state: str  # slower, faster, same, new, gone

    @property
    def change_ns(self) -> Fraction:
        return self.after_ns - self.before_ns + self.idle_after_ns - self.idle_before_ns


@dataclass(frozen=True, slots=True)
class NamedChanges:
    """`rows` (largest change first) and `others` sum to the change of the ledger's compute and collective time
    (`before_ns`, `after_ns`) and, for operators and layers, of its idle time. For kernels idle times are 0.

    per: "step", or "recording" where neither side has steps. others: time without a name, and time of names that only
    one side lists while the other side's list is incomplete."""

    per: str
    rows: list[NamedChange]
    others: NamedChange
    with_idle: bool


@dataclass(frozen=True, slots=True)
class _Side:
    shares: Mapping[str, Share]
    total: Share
    whole: bool  # True if every name is listed
    with_idle: bool


def by_kernel(before: Measures, after: Measures, floor: float) -> NamedChanges:
    """Changes by kernel. Raises RingscopeError if the two have no comparable times."""
    return _changes(before, after, floor, _kernels)


def by_operator(before: Measures, after: Measures, floor: float) -> NamedChanges | None:
    """Changes by operator; None if a GPU of either side names no operators."""
    return _operators(before, after, floor, lambda gpu: gpu.operators)


def by_layer(before: Measures, after: Measures, floor: float) -> NamedChanges | None:
    """Changes by layer; None if a GPU of either side names no layers."""
    return _operators(before, after, floor, lambda gpu: gpu.layers)


def _operators(
    before: Measures, after: Measures, floor: float, of: Callable[[GpuMeasures], Operators | None]
) -> NamedChanges | None:
    if not all(of(gpu) for gpu in (*before.gpus, *after.gpus)):
        return None

    def named(gpu: GpuMeasures) -> tuple[Iterable[tuple[str, int, int]], bool, bool]:
        found = of(gpu)
        assert found is not None
        rows = ((row.name, row.owned_ns, row.idle_ns) for row in found.rows)
        return rows, found.distinct == len(found.rows), True

    return _changes(before, after, floor, named)


def _kernels(gpu: GpuMeasures) -> tuple[Iterable[tuple[str, int, int]], bool, bool]:
    if any(kernel.owned_ns is None for kernel in gpu.kernels.top):
        raise RingscopeError(f"{gpu.title}: measured by an older version, without times to compare; measure it again")
    rows = [(kernel.name, kernel.owned_ns or 0, 0) for kernel in gpu.kernels.top]
    return rows, gpu.kernels.distinct == len(gpu.kernels.top), False


def _changes(
    before: Measures,
    after: Measures,
    floor: float,
    named: Callable[[GpuMeasures], tuple[Iterable[tuple[str, int, int]], bool, bool]],
) -> NamedChanges:
    counts = [[_count(gpu) for gpu in side.gpus] for side in (before, after)]
    if len({count is None for side in counts for count in side}) > 1:
        raise RingscopeError("only some of the GPUs have steps; compare recordings whose steps are marked")
    one, other = (_side(side, of, named) for side, of in zip((before, after), counts, strict=True))
    rows = [
        _change(name, one.shares.get(name), other.shares.get(name), floor)
        for name in dict.fromkeys([*one.shares, *other.shares])
        if (name in one.shares or one.whole) and (name in other.shares or other.whole)
    ]
    rest = _change("", _rest(one, rows), _rest(other, rows), floor)
    rows.sort(key=lambda row: (-abs(row.change_ns), row.name))
    return NamedChanges("recording" if counts[0][0] is None else "step", rows, rest, one.with_idle)


def _count(gpu: GpuMeasures) -> int | None:
    if gpu.window != "steps" or not gpu.steps.count:
        return None
    if not gpu.holds_steps_alone:
        problem = f"{gpu.steps.breaks} breaks (evaluation, checkpoints) lie between its steps"
        raise RingscopeError(
            f"{gpu.title}: {problem}, so kernels have no time per step; cut out steps without breaks between them"
        )
    return gpu.steps.count


def _side(
    measures: Measures,
    counts: list[int | None],
    named: Callable[[GpuMeasures], tuple[Iterable[tuple[str, int, int]], bool, bool]],
) -> _Side:
    """Times by name and in total, per step or recording, averaged over the GPUs of a set."""
    shares: dict[str, Share] = {}
    total, whole, with_idle = _NONE, True, False
    for gpu, count in zip(measures.gpus, counts, strict=True):
        by = len(measures.gpus) * (count or 1)
        rows, all_listed, with_idle = named(gpu)
        whole &= all_listed
        for name, owned, idle in rows:
            shares[name] = _plus(shares.get(name, _NONE), (Fraction(owned, by), Fraction(idle, by)))
        busy = sum(gpu.ledger_ns[owner] or 0 for owner in BUSY)
        idle = sum(ns or 0 for owner, ns in gpu.ledger_ns.items() if owner.startswith("idle")) if with_idle else 0
        total = _plus(total, (Fraction(busy, by), Fraction(idle, by)))
    return _Side(shares, total, whole, with_idle)


def _plus(one: Share, other: Share) -> Share:
    return one[0] + other[0], one[1] + other[1]


def _rest(side: _Side, rows: Iterable[NamedChange]) -> Share:
    owned, idle = side.total
    for row in rows:
        owned, idle = owned - side.shares.get(row.name, _NONE)[0], idle - side.shares.get(row.name, _NONE)[1]
    return owned, idle


def _change(name: str, before: Share | None, after: Share | None, floor: float) -> NamedChange:
    (one, idle_one), (other, idle_other) = before or _NONE, after or _NONE
    was, now = one + idle_one, other + idle_other
    if before is None or after is None:
        state = "new" if before is None else "gone"
    elif abs(now - was) <= floor * was:
        state = "same"
    else:
        state = "slower" if now > was else "faster"
    return NamedChange(name, one, other, idle_one, idle_other, state)
