"""A comparison of two recordings or two sweeps on a terminal."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from fractions import Fraction

from rich.console import Console, Group, RenderableType
from rich.text import Text

from ...comparing.compare import WORK, CellChange, Comparison
from ...comparing.named_changes import NamedChange, NamedChanges
from ...gate.baseline import with_numbers
from ...ground import numbers
from .. import spoken
from ..palette import OWNERS as LOOKS
from .widths import Column, Fitted, Prose, Row

MOST_NAMES, NAME_WIDTH = 10, 40


def show(comparison: Comparison, console: Console) -> None:
    console.print(page(comparison))


def page(comparison: Comparison) -> Group:
    parts: list[RenderableType] = [
        Prose(f"before  {comparison.before}\nafter   {comparison.after}", "dim"),
        Prose(_likeness(comparison)),
    ]
    if comparison.ledger is not None:
        parts.append(_ledger(comparison))
    for title in ("kernels", "operators", "layers"):
        changes = getattr(comparison, title)
        if changes is not None:
            parts += _named(title, changes)
    if comparison.cells:
        parts += _cells(comparison)
    return Group(*parts, *(Prose(f"- {reason}") for reason in comparison.reasons))


def _likeness(comparison: Comparison) -> Text:
    likeness = comparison.likeness
    if likeness.score is None:
        return Text("comparability: unknown, because neither side says on which machine it ran\n")
    text = Text(f"comparability {numbers.share(likeness.score)}")
    if comparison.ledger is not None and not set(WORK) & {*likeness.alike, *likeness.unlike}:
        text.append(" as far as both sides tell; the recordings do not say which model was trained")
    if not likeness.comparable:
        text.append("  work or machine differ: read the difference with care", style="bold red")
    if comparison.other_work:
        text.append(f"\n  {comparison.other_work}")
    for name, (before, after) in likeness.unlike.items():
        text.append(f"\n  {name}: {_fact(before)} -> {_fact(after)}")
    return text.append("\n")


def _fact(value: object) -> str:
    """A fact as text; GPUs are the only fact that is a list."""
    return with_numbers(value) if isinstance(value, list) else str(value)


def _ledger(comparison: Comparison) -> Group:
    ledger = comparison.ledger
    assert ledger is not None
    before, after = float(ledger.step_before_ns), float(ledger.step_after_ns)
    total = f"{numbers.duration(before)} -> {numbers.duration(after)}"
    rows: list[Row] = [("step", total, numbers.gain(after / before - 1))]
    for change in comparison.changes:
        if change.change_ns:
            share = _signed_share(change.share_of_step)
            rows.append((LOOKS[change.owner].label, _signed(change.change_ns), share))
    titles = ("change per step", "share of the step before")
    floor = numbers.share(comparison.noise_floor)
    return Group(
        Text(f"A step: {comparison.step_verdict}", style="italic"),
        Fitted([Column(), *(Column(title, right=True) for title in titles)], rows),
        Prose(f"one recording per side: a difference up to {floor} of the step counts as none", "dim"),
    )


def _named(title: str, changes: NamedChanges) -> list[RenderableType]:
    """Rows for the names that changed most, then a row for the sum of all other names."""
    moved = [row for row in changes.rows if row.change_ns]
    rest = [*moved[MOST_NAMES:], changes.others]
    count = len(moved) - MOST_NAMES
    idle = ("of it idle",) if changes.with_idle else ()
    titles = [Column(name, right=True) for name in ("before", "after", "change", *idle)]
    short = shortened(row.name for row in moved[:MOST_NAMES])
    named = [(spoken.name(row.name).replace(row.name, short[row.name], 1), row) for row in moved[:MOST_NAMES]]
    named.append((f"{count} more names, and the rest" if count > 0 else "the rest", _together(rest)))
    rows = [(name, *_times(row)[: 3 + len(idle)], row.state) for name, row in named]
    heading = Text(f"\n{title.capitalize()}, per {changes.per}", style="italic")
    return [heading, Fitted([Column(), *titles, Column()], rows)]


def shortened(names: Iterable[str]) -> dict[str, str]:
    """Names shortened to NAME_WIDTH characters: beginning and end or, if several names share both, the beginning and
    the part from where the names differ.

    Kernels of cuDNN share a hundred characters, and differ in the size of their tiles."""
    alike = defaultdict(list)
    for name in dict.fromkeys(names):
        alike[_short(name)].append(name)
    found = {}
    for short, several in alike.items():
        start, before = len(os.path.commonprefix(several)), NAME_WIDTH // 3
        for name in several:
            differing = name[max(before, start - 4) :][: NAME_WIDTH - before - 2]
            found[name] = short if len(several) == 1 else f"{name[:before]}…{differing}…"
    return found


def _short(name: str) -> str:
    return name if len(name) <= NAME_WIDTH else f"{name[: NAME_WIDTH // 2]}…{name[1 - NAME_WIDTH // 2 :]}"


def _together(rows: Sequence[NamedChange]) -> NamedChange:
    times = ("before_ns", "after_ns", "idle_before_ns", "idle_after_ns")
    return NamedChange(
        name="", state="", **{one: sum((getattr(row, one) for row in rows), Fraction(0)) for one in times}
    )


def _times(row: NamedChange) -> tuple[str, ...]:
    before, after = row.before_ns + row.idle_before_ns, row.after_ns + row.idle_after_ns
    return (
        numbers.duration(float(before)),
        numbers.duration(float(after)),
        _signed(row.change_ns),
        _signed(row.idle_after_ns - row.idle_before_ns),
    )


def _signed(ns: Fraction) -> str:
    return numbers.change(float(ns)) if ns else ""


def _signed_share(share: float | None) -> str:
    """A change as a share of the earlier step; a part that grew by twice that step is `+200.0 %`."""
    return numbers.share(share) if share is None or abs(share) < 0.0005 else f"{100 * share:+,.1f} %"


def _cells(comparison: Comparison) -> list[RenderableType]:
    names = ("cell", "before", "after", "change", "launches", "p", "")
    titles = [Column(name, right=name not in ("cell", "")) for name in names]
    return [
        Text("Throughput, samples/s", style="italic"),
        Fitted(titles, [_cell(cell) for cell in comparison.cells]),
    ]


def _cell(cell: CellChange) -> tuple[str, ...]:
    p = "n/a" if cell.difference is None else f"{cell.difference.p_value:.3f}"
    return (
        cell.cell,
        f"{cell.before:,.0f}",
        f"{cell.after:,.0f}",
        numbers.gain(cell.ratio - 1),
        f"{cell.launches[0]} and {cell.launches[1]}",
        p,
        cell.verdict,
    )
