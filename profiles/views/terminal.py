"""Measures on a terminal: a bar of owners per GPU, then the numbers with one column per GPU, then what to doubt."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from .. import numbers, terminals
from ..measures import (
    CLASSES,
    OF_RANKS,
    OWNERS,
    Gaps,
    GpuMeasures,
    Measures,
    NamedOperator,
    Operators,
    StepRow,
)
from ..timeline import Doubt
from .charts.palette import OWNERS as LOOKS

Cell = Callable[[GpuMeasures], str]
COLUMN_WIDTH, NAMES_WIDTH = 24, 30
MOST_OPERATORS = 8
# Of the table of steps, whose widest cells are like `79.33 µs`.
STEP_COLUMN_WIDTH = 11
_STEP_TITLES = ("step", "period", "kernels", "batch\ngap")
# Idle owners are drawn lighter than busy ones, so that the bar can be read without colour.
_BUSY, _IDLE = "█", "░"
_COPIES = {"h2d": "host to device", "d2h": "device to host", "p2p": "peer to peer", "d2d": "on the device"}


def console() -> Console:
    """The user's terminal, or as wide as COLUMNS says; else a pipe or a file gets a page as wide as it needs."""
    found = terminals.console()
    if found.is_terminal or os.environ.get("COLUMNS", "").isdigit():
        return found
    return terminals.console(width=max(found.width, 120))


def show(measures: Measures, to: Console, *, per_step: bool = False, only: Sequence[int] | None = None) -> None:
    """Print one page, with the columns of all GPUs or of some."""
    to.print(page(measures, width=to.width, per_step=per_step, only=only))


def page(measures: Measures, *, width: int = 100, per_step: bool = False, only: Sequence[int] | None = None) -> Group:
    """The page as one renderable of at most `width` columns."""
    shown = range(len(measures.gpus)) if only is None else only
    parts: list[RenderableType] = [_recordings(measures), Text()]
    parts += one_by_one(measures, shown, width=width, per_step=per_step)
    parts += list(_findings(measures)) + list(_doubts(measures.doubts))
    return Group(*parts)


def one_by_one(
    measures: Measures, shown: Sequence[int], *, width: int, per_step: bool = False
) -> Iterator[RenderableType]:
    """Some GPUs in full: their bars, all numbers in a column each, the host meanwhile, and their steps if asked for."""
    titles = measures.titles
    some = [(titles[place], measures.gpus[place]) for place in shown]
    for title, gpu in some:
        yield from (_title(title, gpu), _bar(gpu, width - 2), _legend(gpu), Text())
    at_once = max(1, (width - NAMES_WIDTH) // COLUMN_WIDTH)
    for first in range(0, len(some), at_once):
        columns = some[first : first + at_once]
        yield _numbers([gpu for _, gpu in columns], [title for title, _ in columns])
    for title, gpu in some:
        if gpu.host_while_idle:
            yield _host(title, gpu)
        for what, found in (("operator", gpu.operators), ("layer", gpu.layers)):
            if found is not None:
                yield _operators(title, what, found, gpu.span_ns)
        if per_step and gpu.steps.rows:
            yield _steps(title, gpu, width)


def _recordings(measures: Measures) -> Text:
    lines = [
        f"{recording.path}  ({recording.tool}{' ' + recording.tool_version if recording.tool_version else ''}"
        f"{f', rank {recording.rank} by {recording.rank_source}' if recording.rank is not None else ''})"
        for recording in measures.recordings
    ]
    return Text("\n".join(lines), style="dim")


def _title(title: str, gpu: GpuMeasures) -> Text:
    text = Text(title, style="bold")
    place = ", ".join(part for part in (gpu.name, gpu.bus_id) if part)
    text.append(f"  {place}  {numbers.duration(gpu.span_ns)} of {gpu.window}", style="dim")
    if gpu.leads_with_capture and gpu.capture:
        whole = gpu.capture["span_ns"]
        text.append(
            f", {numbers.share_of(gpu.span_ns, whole)} of the recording. The bar shows all {numbers.duration(whole)}; "
            "everything below is of the steps (--window capture: of all)"
        )
    return text


def _lead(gpu: GpuMeasures) -> tuple[dict[str, int | None], int]:
    """The ledger and the span that come first: those of the capture where the steps are a small part of it."""
    if gpu.leads_with_capture and gpu.capture:
        return gpu.capture["ledger_ns"], gpu.capture["span_ns"]
    return gpu.ledger_ns, gpu.span_ns


def _bar(gpu: GpuMeasures, width: int) -> Text:
    """One cell per share of the window; what is there but too little for a cell gets none."""
    text = Text(" ")
    reach = done = 0
    ledger_ns, span_ns = _lead(gpu)
    for owner in OWNERS:
        reach += ledger_ns[owner] or 0
        cells = round(reach * width / span_ns) - done
        done += cells
        text.append((_IDLE if owner.startswith("idle") else _BUSY) * cells, style=LOOKS[owner].colour)
    return text


def _legend(gpu: GpuMeasures) -> Padding:
    entries = []
    ledger_ns, span_ns = _lead(gpu)
    present = [owner for owner in OWNERS if ledger_ns[owner]]
    for owner in sorted(present, key=lambda owner: -(ledger_ns[owner] or 0)):
        text = Text(_IDLE if owner.startswith("idle") else _BUSY, style=LOOKS[owner].colour)
        text.append(f" {LOOKS[owner].label} {numbers.share_of(ledger_ns[owner], span_ns)}", style="default")
        entries.append(text)
    return Padding(Columns(entries, padding=(0, 2)), (0, 1))


def _numbers(gpus: Sequence[GpuMeasures], titles: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("")
    for _, title in zip(gpus, titles, strict=False):
        table.add_column(title, justify="right")
    for title, rows in _sections():
        table.add_row(Text(title, style="bold"))
        for name, cell in rows:
            values = [cell(gpu) for gpu in gpus]
            if any(values):
                table.add_row(f"  {name}", *values)
    return table


def _sections() -> Iterator[tuple[str, list[tuple[str, Cell]]]]:
    yield "who had the GPU (sums to the window)", [(LOOKS[owner].label, _owned(owner)) for owner in OWNERS]
    yield "busy, hidden or not", [(LOOKS[name].label, _busy(name)) for name in CLASSES]
    yield "steps", _step_rows()
    yield "copies", [(title, _copied(name)) for name, title in _COPIES.items()]
    yield "input copies", _input_rows()
    yield "kernels", _kernel_rows()
    yield "collectives", _collective_rows()


def _owned(owner: str) -> Cell:
    def cell(gpu: GpuMeasures) -> str:
        ns = gpu.ledger_ns[owner]
        if ns == 0:
            return ""
        return f"{numbers.duration(ns)}  {numbers.share_of(ns, gpu.span_ns):>7}" if ns is not None else numbers.UNKNOWN

    return cell


def _busy(name: str) -> Cell:
    def cell(gpu: GpuMeasures) -> str:
        ns, exposed = gpu.busy_ns[name], gpu.ledger_ns[name]
        if ns is None or exposed is None:
            return numbers.UNKNOWN
        return f"{numbers.duration(ns)}, {numbers.share_of(ns - exposed, ns)} hidden" if ns else ""

    return cell


def _step_rows() -> list[tuple[str, Cell]]:
    def measured(gpu: GpuMeasures) -> str:
        steps = gpu.steps
        if steps.source is None and steps.repeats:
            return numbers.unknown(f"kernels repeat, {numbers.duration(steps.repeats['period_ns'])}")
        if steps.source is None:
            return numbers.unknown("none found")
        left_out = [(steps.warm_up, "warm-up"), (steps.partial, "partial"), (steps.breaks, "breaks")]
        beside = "".join(f", {count} {what}" for count, what in left_out if count)
        unit = " batches" if steps.unit == "batch" else ""
        return f"{steps.count}{unit} by {steps.source}{beside}"

    def period(gpu: GpuMeasures) -> str:
        found = gpu.steps.period_ns
        return f"{numbers.duration(found.p50)} / {numbers.duration(found.p95)}" if found else numbers.UNKNOWN

    return [
        ("measured", measured),
        ("period p50 / p95", period),
        ("batch gap p50 / p95", lambda gpu: _gap(gpu.batch_gaps)),
        ("feed gap p50 / p95", lambda gpu: _gap(gpu.feed_gaps)),
        ("input stall", lambda gpu: numbers.share(gpu.input_stall_share)),
    ]


def _gap(gaps: Gaps | None) -> str:
    return f"{numbers.duration(gaps.p50_ns)} / {numbers.duration(gaps.p95_ns)}" if gaps else numbers.UNKNOWN


def _copied(name: str) -> Cell:
    def cell(gpu: GpuMeasures) -> str:
        found = gpu.copies[name]
        if not found.count:
            return ""
        pageable = f", {numbers.share(found.pageable_share)} pageable" if found.pageable_share is not None else ""
        return f"{numbers.size(found.bytes)}, {numbers.gb_per_s(found.gb_per_s)}{pageable}"

    return cell


def _input_rows() -> list[tuple[str, Cell]]:
    def read(key: str) -> Cell:
        return lambda gpu: "" if gpu.input_copies is None else numbers.duration(gpu.input_copies.get(key))

    def overlap(gpu: GpuMeasures) -> str:
        found = gpu.input_copies
        if found is None:
            return numbers.unknown("no steps")
        return f"{found.get('count')}, {numbers.share(found.get('overlap'))}"

    return [
        ("count, hidden", overlap),
        ("exposed, this step's batch", read("exposed_this_step_ns")),
        ("exposed, a later step's", read("exposed_later_step_ns")),
    ]


def _kernel_rows() -> list[tuple[str, Cell]]:
    def latency(gpu: GpuMeasures) -> str:
        found = gpu.kernels.launch_latency_ns
        return f"{numbers.duration(found['p50'])} / {numbers.duration(found['p95'])}" if found else numbers.UNKNOWN

    def groups(gpu: GpuMeasures) -> str:
        largest = max(gpu.kernels.groups.items(), key=lambda item: item[1]["total_ns"], default=None)
        return f"{largest[0]}, {numbers.duration(largest[1]['total_ns'])}" if largest and gpu.kernels.count else ""

    def graphs(gpu: GpuMeasures) -> str:
        return numbers.count(gpu.kernels.graph_launches) if gpu.kernels.graph_launches else ""

    def hand_over(gpu: GpuMeasures) -> str:
        found = gpu.hand_over_ns or {}
        told = (("in_graphs", "in graphs"), ("launched", "launched"))
        return ", ".join(f"{numbers.duration(found[kind]['p50_ns'])} {word}" for kind, word in told if kind in found)

    def runs(gpu: GpuMeasures) -> str:
        found = gpu.kernels.short_elementwise_runs
        kernels = found.get("kernels")
        return f"{numbers.count(kernels)} in {numbers.count(found.get('runs'))} runs" if kernels else ""

    return [
        ("count", lambda gpu: numbers.count(gpu.kernels.count)),
        ("per step", lambda gpu: numbers.count(gpu.kernels.per_step)),
        ("CUDA graph launches", graphs),
        ("median, share under 5 µs", _kernel_times),
        ("launch latency p50 / p95", latency),
        ("hand-over p50", hand_over),
        ("most time in", groups),
        ("computed, MFU", _computed),
        ("short element-wise ones", runs),
    ]


def _computed(gpu: GpuMeasures) -> str:
    found = gpu.arithmetic
    if found is None:
        return ""
    least = "" if found.all_told else "at least "
    return f"{least}{numbers.flop_per_s(found.flops_per_s)}, {numbers.share(found.mfu)}"


def _kernel_times(gpu: GpuMeasures) -> str:
    return f"{numbers.duration(gpu.kernels.median_ns)}, {numbers.share(gpu.kernels.share_under_5us)}"


def _collective_rows() -> list[tuple[str, Cell]]:
    def skew(gpu: GpuMeasures) -> str:
        found = gpu.collectives.skew_ns
        return f"{numbers.duration(found['p50'])} / {numbers.duration(found['max'])}" if found else ""

    def apart(gpu: GpuMeasures) -> str:
        found = gpu.collectives
        if found.waiting_ns is None:
            return ""
        return f"{numbers.duration(found.waiting_ns)} / {numbers.duration(found.transfer_ns)}"

    def last(gpu: GpuMeasures) -> str:
        share = gpu.collectives.arrived_last_share
        return numbers.share(share) if share is not None else ""

    def moved(gpu: GpuMeasures) -> str:
        size = gpu.collectives.bytes_per_step
        return numbers.size(size) if size is not None else ""

    def bandwidth(gpu: GpuMeasures) -> str:
        rate = gpu.collectives.bus_gb_per_s
        return numbers.gb_per_s(rate) if rate is not None else ""

    def negotiation(gpu: GpuMeasures) -> str:
        held_ns = gpu.collectives.negotiation_ns
        return numbers.duration(held_ns) if held_ns is not None else ""

    return [
        ("count", lambda gpu: numbers.count(gpu.collectives.count)),
        ("skew p50 / max", skew),
        ("waiting / transfer", apart),
        ("negotiation, GPU idle", negotiation),
        ("bytes per step", moved),
        ("bus bandwidth", bandwidth),
        ("arrived last", last),
    ]


def _host(whose: str, gpu: GpuMeasures) -> Group:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    for entry in gpu.host_while_idle[:5]:
        name = str(entry["name"])
        table.add_row(f"  {name[:60]}", numbers.duration(entry["ns"]), numbers.share(entry["share"]))
    title = f"{whose}: what the host did in the idle time (calls overlap, so these do not add up)"
    return Group(Text(), Text(title, style="bold"), table)


def _operators(whose: str, what: str, found: Operators, span_ns: int) -> Group:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("", "kernels", "of the window", "idle before"):
        table.add_column(column, justify="left" if not column else "right")
    unknown = replace(found.unknown, name="none known")
    for row in (*found.rows[:MOST_OPERATORS], unknown):
        if row.total_ns or row.idle_ns:
            times = (numbers.duration(row.total_ns), numbers.share_of(row.owned_ns, span_ns), _idle(row, span_ns))
            table.add_row(f"  {row.name[:60]}", *times)
    more = max(found.distinct - MOST_OPERATORS, 0)
    title = f"{whose}: time by {what}" + (f", the first {MOST_OPERATORS} of {found.distinct}" if more else "")
    return Group(Text(), Text(title, style="bold"), table)


def _idle(row: NamedOperator, span_ns: int) -> str:
    return f"{numbers.duration(row.idle_ns)}  {numbers.share_of(row.idle_ns, span_ns):>7}" if row.idle_ns else ""


def _steps(whose: str, gpu: GpuMeasures, width: int) -> Group:
    """A row a step; owners that do not fit beside each other follow in a table below, with the steps again."""
    owners = [owner for owner in OWNERS if any(row.ledger_ns[owner] for row in gpu.steps.rows)]
    at_once = max(1, width // STEP_COLUMN_WIDTH - len(_STEP_TITLES))
    parts: list[RenderableType] = [Text(), Text(f"{whose}: each step", style="bold")]
    for first in range(0, len(owners), at_once):
        some = owners[first : first + at_once]
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for title in (*_STEP_TITLES, *(LOOKS[owner].label.replace(" ", "\n", 1) for owner in some)):
            table.add_column(title, justify="right", no_wrap=True, vertical="bottom")
        for row in gpu.steps.rows:
            table.add_row(*_step_cells(row), *(numbers.duration(row.ledger_ns[owner]) for owner in some))
        parts.append(table)
    return Group(*parts)


def _step_cells(row: StepRow) -> tuple[str, str, str, str]:
    period = numbers.duration(row.end_ns - row.start_ns)
    return str(row.step), period, numbers.count(row.kernels), numbers.duration(row.batch_gap_ns)


def _findings(measures: Measures) -> Iterator[RenderableType]:
    if not measures.findings:
        return
    yield Text("\nwhat to change", style="bold")
    for finding in measures.findings:
        whose = "" if finding.gpu is None or finding.code in OF_RANKS else f"{measures.titles[finding.gpu]}: "
        worth = f" (at most {numbers.gain(finding.at_most_gain)})" if finding.at_most_gain is not None else ""
        text = Text("• ")
        text.append(finding.code, style="italic")
        text.append(f": {whose}{finding.text}{worth}\n  → {finding.change}")
        yield Padding(text, (0, 0, 0, 2))


def _doubts(doubts: list[Doubt]) -> Iterator[RenderableType]:
    """Each code once: GPUs that differ in the numbers alone are counted, the JSON has them all."""
    if not doubts:
        return
    yield Text("\nwhat to doubt", style="bold")
    by_code: dict[tuple[str, str], list[Doubt]] = {}
    for doubt in doubts:
        by_code.setdefault((doubt.code, doubt.next), []).append(doubt)
    for (code, remedy), alike in by_code.items():
        text = Text("• ")
        text.append(code, style="italic")
        more = f" (and {len(alike) - 1} more like it)" if len(alike) > 1 else ""
        text.append(f": {alike[0].text}{more}\n  → {remedy}")
        yield Padding(text, (0, 0, 0, 2))
