"""Explain on the terminal why N ranks are not N times as fast as one, at the beginning of a sweep's report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.padding import Padding

from ...explaining.explained import Explained
from ...ground import numbers
from ..tables import explained as said
from .widths import Column, Fitted, Prose, indented


def blocks(found: Sequence[Explained], directory: str) -> Iterator[RenderableType]:
    """Yields a block for each model: the step, its losses with the largest first, and the finding that explains the
    largest."""
    for one in found:
        json = one.to_json()
        yield Prose(f"\n{said.title(json)}", "bold")
        rows = []
        for loss in json["losses"]:
            if loss["ns"] is not None:
                parts = numbers.change(loss["ns"]), said.share(json, loss["ns"]), said.interval(loss)
                rows.append((said.label(json, loss["cause"]), *parts))
        table = Fitted([Column(), Column(right=True), Column(right=True), Column()], rows)
        yield Padding(table, (0, 0, 0, 2))
        unknown = [said.label(json, loss["cause"]) for loss in json["losses"] if loss["ns"] is None]
        if unknown:
            why = next(loss["why"] for loss in json["losses"] if loss["ns"] is None)
            yield _line(numbers.UNKNOWN, f"{', '.join(unknown)}: {why}")
        if one.finding:
            worth = f" (worth at most {numbers.gain(one.finding.at_most_gain)})" if one.finding.at_most_gain else ""
            yield _line("•", f"{one.finding.code}: {one.finding.text}{worth}")
            yield _line("", f"-> {one.finding.change}", style="cyan")
        elif silent := said.silent(json):
            yield _line("•", silent)
        yield _line("", said.told_by(json, directory), style="dim")


def _line(mark: str, text: str, style: str = "") -> RenderableType:
    return indented(f"{mark or ' '} {text}", style)
