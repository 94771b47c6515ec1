"""Rules of thumb on a terminal: the gain of each on this machine, and whether the advice holds here."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from ...ground import numbers
from ...rules import Found, words
from .widths import Column, Fitted, Prose, Row

STYLES = {"holds": "green", "costs": "red", "failed": "red"}


def show(found: Sequence[Found], console: Console) -> None:
    """Print a row per rule, its advice below it."""
    rows: list[Row] = []
    for one in found:
        rows.append(
            (
                one.rule.name,
                numbers.factor(one.ratio.median if one.ratio else None),
                "" if one.ratio is None else f"{one.ratio.low:.2f} to {one.ratio.high:.2f}",
                Text(words(one), style=STYLES.get(one.verdict, "")),
            )
        )
        rows.append(Text(f"  {_beside(one)}", style="dim"))
    titles = (Column("rule"), Column("ratio", right=True), Column("interval", right=True), Column("what that says"))
    table = Fitted(titles, rows)
    console.print()
    console.print(table)
    if measured := [one.ratio for one in found if one.ratio]:
        few = min(measured, key=lambda ratio: ratio.count)
        legend = (
            f"ratio: samples/s with the advice divided by samples/s without it, median of {few.count} pairs of turns "
            "in one process; the interval contains the true median with a probability of "
            f"{100 * min(one.coverage for one in measured):.0f} %"
        )
        console.print(Prose(f"\n{legend}", "dim"))


def _beside(one: Found) -> str:
    """The comparison, such as `Train in mixed_float16. Compared: float32, and mixed_float16: 1,234 and 2,345 samples/s
    (WORK)`."""
    ways = f"{one.rule.advice} Compared: {one.rule.against}, and {one.rule.advised}"
    if one.ratio is None:
        return ways
    rates = f"{numbers.per_s(one.against_per_s).removesuffix(' samples/s')} and {numbers.per_s(one.advised_per_s)}"
    return f"{ways}: {rates} ({one.what})"
