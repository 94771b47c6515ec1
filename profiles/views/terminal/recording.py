"""All measures on a terminal: a bar of owners per GPU, all tables, findings, breaks, doubts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from ...ground import numbers, terminals
from ...model.findings import OF_RANKS, Finding
from ...model.measures import OWNERS, GpuMeasures, Measures
from ...model.steps import StepRow
from ...model.timeline import Doubt
from ..palette import OWNERS as LOOKS
from ..tables import report
from . import tables
from .widths import Column, Fitted, Prose, indented

MOST_BREAKS = 3
Form = Callable[[Any], str]
# Tables that `--full` shows. Every step is shown on request; recordings and doubts are texts.
_IN_FULL = [name for name in report.MAKERS if name not in ("steps", "recordings", "doubts")]
_STEP_TITLES = ("step", "period", "kernels", "batch gap")
# Idle owners are drawn lighter than busy ones, so that the bar can be read without colour.
_BUSY, _IDLE = "█", "░"


def console() -> Console:
    """The console for the output, as wide as the terminal or the variable COLUMNS; at least 120 columns for a pipe or a
    file."""
    found = terminals.console()
    if found.is_terminal or os.environ.get("COLUMNS", "").isdigit():
        return found
    return terminals.console(width=max(found.width, 120))


def say(text: str) -> None:
    """Print running text. Lines are not broken in a pipe or a file, so that they can be searched."""
    to = terminals.console()
    if to.is_terminal or os.environ.get("COLUMNS", "").isdigit():
        to.print(Prose(text))
    else:
        terminals.echo(text)


def show(measures: Measures, to: Console, *, per_step: bool = False, only: Sequence[int] | None = None) -> None:
    """Print all measures of all GPUs, or of the GPUs with the indices `only`."""
    to.print(page(measures, width=to.width, per_step=per_step, only=only))


def page(measures: Measures, *, width: int = 100, per_step: bool = False, only: Sequence[int] | None = None) -> Group:
    """All measures as one object for rich to print in at most `width` columns."""
    shown = range(len(measures.gpus)) if only is None else only
    parts: list[RenderableType] = [recordings(measures), *trusted(measures), Text()]
    parts += one_by_one(measures, shown, width=width, per_step=per_step)
    parts += [*findings(measures), *breaks(measures), *doubts(measures.doubts)]
    return Group(*parts)


def one_by_one(
    measures: Measures, shown: Sequence[int], *, width: int, per_step: bool = False
) -> Iterator[RenderableType]:
    """The GPUs with the indices `shown` in full: a bar of each, then all tables; with per_step also their steps."""
    for place in shown:
        gpu = measures.gpus[place]
        yield from (Prose(_title(measures.titles[place], gpu)), bar(gpu, width - 2), _legend(gpu), Text())
    yield from tables.of_gpus(measures, shown, _IN_FULL)
    if per_step:
        yield from each_step(measures, shown)


def each_step(measures: Measures, shown: Sequence[int]) -> Iterator[RenderableType]:
    """A table of steps for each GPU in `shown` (indices) that has steps."""
    titles = measures.titles
    yield from (_steps(titles[place], measures.gpus[place]) for place in shown if measures.gpus[place].steps.rows)


def recordings(measures: Measures) -> Prose:
    """A line per recording: path, tool and rank."""
    lines = [
        f"{recording.path}  ({recording.tool}{' ' + recording.tool_version if recording.tool_version else ''}"
        f"{f', rank {recording.rank} by {recording.rank_source}' if recording.rank is not None else ''})"
        for recording in measures.recordings
    ]
    return Prose("\n".join(lines), "dim")


def _title(title: str, gpu: GpuMeasures) -> Text:
    text = Text(title, style="bold")
    place = ", ".join(part for part in (gpu.name, gpu.bus_id) if part)
    text.append(f"  {place}  {numbers.duration(gpu.span_ns)} of {gpu.window}", style="dim")
    if gpu.leads_with_capture and gpu.capture:
        whole = gpu.capture["span_ns"]
        text.append(
            f", {numbers.share_of(gpu.span_ns, whole)} of the recording. The bar shows all {numbers.duration(whole)}; "
            "everything below describes the steps only (with --window capture the whole recording)"
        )
    return text


def lead(gpu: GpuMeasures) -> tuple[dict[str, int | None], int]:
    """The ledger and the span to show first: the capture's if the steps are a small part of it."""
    if gpu.leads_with_capture and gpu.capture:
        return gpu.capture["ledger_ns"], gpu.capture["span_ns"]
    return gpu.ledger_ns, gpu.span_ns


def bar(gpu: GpuMeasures, width: int) -> Text:
    """A bar of `width` characters, divided among the window's owners. An owner whose share is less than a character
    gets none."""
    text = Text(" ")
    reach = done = 0
    ledger_ns, span_ns = lead(gpu)
    for owner in OWNERS:
        reach += ledger_ns[owner] or 0
        cells = round(reach * width / span_ns) - done
        done += cells
        text.append(swatch(owner) * cells, style=LOOKS[owner].colour)
    return text


def swatch(owner: str) -> str:
    """The character that draws an owner in a bar."""
    return _IDLE if owner.startswith("idle") else _BUSY


def _legend(gpu: GpuMeasures) -> Padding:
    entries = []
    ledger_ns, span_ns = lead(gpu)
    present = [owner for owner in OWNERS if ledger_ns[owner]]
    for owner in sorted(present, key=lambda owner: -(ledger_ns[owner] or 0)):
        text = Text(swatch(owner), style=LOOKS[owner].colour)
        text.append(f" {LOOKS[owner].label} {numbers.share_of(ledger_ns[owner], span_ns)}", style="default")
        entries.append(text)
    return Padding(Columns(entries, padding=(0, 2)), (0, 1))


def _steps(whose: str, gpu: GpuMeasures) -> Group:
    owners = [owner for owner in OWNERS if any(row.ledger_ns[owner] for row in gpu.steps.rows)]
    titles = (*_STEP_TITLES, *(LOOKS[owner].label for owner in owners))
    rows = [
        (*_step_cells(row), *(numbers.duration(row.ledger_ns[owner]) for owner in owners)) for row in gpu.steps.rows
    ]
    table = Fitted([Column(title, right=True) for title in titles], rows, keys=2)
    return Group(Text(), Text(f"{whose}: each step", style="bold"), table)


def _step_cells(row: StepRow) -> tuple[str, str, str, str]:
    period = numbers.duration(row.end_ns - row.start_ns)
    return str(row.step), period, numbers.count(row.kernels), numbers.duration(row.batch_gap_ns)


def findings(measures: Measures) -> Iterator[RenderableType]:
    """All findings, each with its change and its consequences."""
    if not measures.findings:
        return
    yield Text("\nwhat to change", style="bold")
    for one in measures.findings:
        yield indented(finding(measures, one).append(f"\n  → {one.change}{consequences(one)}"))


def finding(measures: Measures, of: Finding) -> Text:
    """A finding in a sentence: its code, the GPU, what was found, and the largest gain of the change."""
    whose = "" if of.gpu is None or of.code in OF_RANKS else f"{measures.titles[of.gpu]}: "
    return point(of.code, f"{whose}{of.text}{worth(of)}")


def point(code: str, text: str) -> Text:
    return Text("• ").append(code, style="italic").append(f": {text}")


def worth(of: Finding) -> str:
    """The largest gain in throughput of a finding's change, such as ` (at most +6.3 %)`; "" if unknown."""
    return f" (at most {numbers.gain(of.at_most_gain)})" if of.at_most_gain is not None else ""


def consequences(finding: Finding) -> str:
    """The finding's consequences, such as waiting of other GPUs, one line each."""
    return "".join(f"\n  and {one.text}" for one in finding.consequences)


def breaks(measures: Measures) -> Iterator[RenderableType]:
    """The breaks between steps that cost most, one line each, and the number of further ones."""
    if not measures.breaks:
        return
    yield Text("\nbreaks between the steps", style="bold")
    for one in measures.breaks[:MOST_BREAKS]:
        yield indented(f"• {one.text}")
    left = len(measures.breaks) - MOST_BREAKS
    if left > 0:
        yield indented(f"and {left} more kinds of breaks, which cost less time")


def trusted(measures: Measures) -> Iterator[RenderableType]:
    """The verdict of `ringscope check`, in one line."""
    if measures.trust is not None:
        yield Prose(report.trusted(measures.trust))


def doubted(doubt: Doubt) -> str:
    """A doubt below a forecast: its text and code, then what to do."""
    return f" - {doubt.text} ({doubt.code})\n   -> {doubt.next}"


def doubts(found: Sequence[Doubt], *, remedies: bool = True) -> Iterator[RenderableType]:
    """The doubts, each code only once: the text and remedy of the first doubt with that code, and the number of further
    doubts."""
    if not found:
        return
    yield Text("\nwhat to doubt", style="bold")
    by_code: dict[tuple[str, str], list[Doubt]] = {}
    for doubt in found:
        by_code.setdefault((doubt.code, doubt.next), []).append(doubt)
    for (code, remedy), alike in by_code.items():
        more = f" (and {len(alike) - 1} more like it)" if len(alike) > 1 else ""
        yield indented(point(code, f"{alike[0].text}{more}" + (f"\n  → {remedy}" if remedies else "")))
