"""Fit the results of up to 8 GPUs on one screen: the recordings, each GPU's ledger, what to change first, the doubts
about that.

The screen has at most LINES lines of 80 or more columns. The last lines name the parts that have no room, which
`--full` shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.text import Text

from ...ground import numbers
from ...model.findings import Finding
from ...model.measures import CLASSES, OWNERS, GpuMeasures, Measures
from ...model.timeline import Doubt
from ..palette import OWNERS as LOOKS
from ..tables.gpu_metrics import BOUND_TITLES
from . import recording as terminal
from .widths import Column, Fitted, Prose, Row, indented

LINES: Final = 60
BESIDE: Final = 5  # lines of LINES that stay free for what a command prints below: its files, how to prove a finding
MOST_FINDINGS: Final = 3
_RECORDINGS: Final = 2  # if there are more recordings, only the first and the last are named
_NAMES, _TIMES = 18, 19  # width of the column of owners, and of a column of times and shares
_LEAST_SHARE: Final = 0.01  # smaller parts of a GPU's time (places in the user's code) or of its compute are left out
_BAR: Final = 10  # least width of a bar beside the GPU's title; if there is less room, the titles are left out
# By the owner whose time a finding saves: the measure that the finding rests on. Doubts about that measure are shown.
_UNDER: Final = {
    "collective": "collectives", "idle_peers": "collectives", "compute": "kernels", "idle_feed": "feed_gaps",
    **dict.fromkeys(("h2d", "d2h", "p2p", "d2d"), "copies"),
}  # fmt: skip
_SHOWN: Final = ("ledger_ns", "gpu_metrics", "steps", "window", "window_ns", "span_ns", "capture")


@dataclass(frozen=True, slots=True)
class _Detail:
    """Limits of what the screen shows: the largest number of lines of a finding and of its change (None: all), and
    which parts."""

    finding: int | None = None
    change: int | None = None
    doubts: bool = True
    remedies: bool = True
    breaks: bool = True
    bars: bool = True
    places: int = 3  # number of lines about the user's code, under the ledger
    sampled: bool = True


# From most detail to least: the first that fits the screen is used.
_DETAILS: Final = (
    _Detail(),
    _Detail(remedies=False),
    _Detail(remedies=False, breaks=False),
    _Detail(doubts=False, breaks=False),
    _Detail(4, 4, doubts=False, breaks=False),
    _Detail(3, 2, doubts=False, breaks=False, places=1),
    _Detail(2, 2, doubts=False, breaks=False, places=0, sampled=False),
    _Detail(2, 1, doubts=False, breaks=False, places=0, sampled=False),
    _Detail(1, 1, doubts=False, breaks=False, bars=False, places=0, sampled=False),
)


def show(measures: Measures, to: Console, *, only: Sequence[int] = (), per_step: bool = False, more: str = "") -> None:
    """Print the screen of all GPUs, or of the GPUs with the indices `only`; with per_step, also a table of the steps.

    more: the command that shows the rest, if it is not the command that the user typed."""
    to.print(page(measures, to, only=only, more=more))
    if per_step:
        to.print(Group(*terminal.each_step(measures, only or range(len(measures.gpus)))))


def page(measures: Measures, to: Console, *, only: Sequence[int] = (), more: str = "") -> Group:
    """The most detailed screen that fits in LINES on this console or, if none fits, the least detailed."""
    shown = only or range(len(measures.gpus))
    for detail in _DETAILS:
        found = Group(*_parts(measures, shown, to.width, detail, more))
        if len(to.render_lines(found, pad=False)) <= LINES - BESIDE:
            break
    return found


def _parts(
    measures: Measures, shown: Sequence[int], width: int, detail: _Detail, more: str
) -> Iterator[RenderableType]:
    some = {measures.titles[place]: measures.gpus[place] for place in shown}
    yield from (_read(measures), Prose(_of_what(list(some.values()))), *terminal.trusted(measures), Text())
    if detail.bars:
        yield from (_bars(some, width), Text())
    yield _ledger(some, width)
    if detail.sampled:
        yield from _sampled(some, width)
    yield from _places(some, detail.places)
    yield from _findings(measures, detail)
    if detail.breaks:
        yield from terminal.breaks(measures)
    touching, others = _touching(measures, shown)
    if detail.doubts:
        yield from terminal.doubts(touching, remedies=detail.remedies)
    else:
        others = [*touching, *others]
    yield from _left(measures, others, detail, more)


def _read(measures: Measures) -> RenderableType:
    if len(measures.recordings) <= _RECORDINGS:
        return terminal.recordings(measures)
    first, last = measures.recordings[0], measures.recordings[-1]
    ranks = numbers.ranges(one.rank for one in measures.recordings if one.rank is not None)
    tools = dict.fromkeys(f"{one.tool} {one.tool_version or ''}".strip() for one in measures.recordings)
    said = "; ".join([", ".join(tools), *([f"ranks {ranks}"] if ranks else [])])
    return Prose(f"{len(measures.recordings)} recordings, {first.path} to {last.path}  ({said})", "dim")


def _of_what(gpus: Sequence[GpuMeasures]) -> str:
    """A summary, such as `2 GPUs (NVIDIA H200): 5 steps by marks, 191.9 ms to 192.3 ms each; 964.3 ms of steps`."""
    names = ", ".join(dict.fromkeys(gpu.name for gpu in gpus if gpu.name))
    count = numbers.counted(len(gpus), "GPU") + (f" ({names})" if names else "")
    with_steps = [gpu for gpu in gpus if gpu.steps.source is not None]
    if with_steps:
        sources = ", ".join(dict.fromkeys(gpu.steps.source or "" for gpu in with_steps))
        counts = _between([gpu.steps.count for gpu in with_steps], numbers.count)
        unit = with_steps[0].steps.unit
        unit += "" if counts == "1" else "es" if unit == "batch" else "s"
        periods = [gpu.steps.period_ns.p50 for gpu in with_steps if gpu.steps.period_ns]
        each = f", {_between(periods, numbers.duration)}{'' if counts == '1' else ' each'}" if periods else ""
        steps = f"{counts} {unit} by {sources}{each}"
        steps += f" on {len(with_steps)} of them" if len(with_steps) < len(gpus) else ""
    else:
        repeats = [gpu.steps.repeats["period_ns"] for gpu in gpus if gpu.steps.repeats]
        again = f", kernels repeat every {_between(repeats, numbers.duration)}" if repeats else ""
        steps = f"no steps{again}"
    spans = [terminal.lead(gpu)[1] for gpu in gpus]
    windows = dict.fromkeys("recording" if gpu.leads_with_capture else gpu.window for gpu in gpus)
    part = [gpu.span_ns / spans[place] for place, gpu in enumerate(gpus) if gpu.leads_with_capture]
    small = (
        f"; the steps cover {_between(part, numbers.share)} of it, and findings describe the steps only" if part else ""
    )
    return f"{count}: {steps}; {_between(spans, numbers.duration)} of {' and '.join(windows)}{small}"


def _between(values: Sequence[int] | Sequence[float], form: terminal.Form) -> str:
    low, high = form(min(values)), form(max(values))
    return low if low == high else f"{low} to {high}"


def _bars(some: dict[str, GpuMeasures], width: int) -> Group:
    """A bar per GPU, after the GPU's title if there is room."""
    names = max(map(len, some))
    if width - names - 1 < _BAR:
        names = 0
    lines = []
    for title, gpu in some.items():
        bar = terminal.bar(gpu, width - names - 2)
        lines.append(Text(title.ljust(names)).append_text(bar) if names else bar)
    return Group(*lines)


def _ledger(some: dict[str, GpuMeasures], width: int) -> Group:
    """The ledger, a row per owner and a column per GPU: time and share, or the share alone if the times do not fit."""
    led = [terminal.lead(gpu) for gpu in some.values()]
    times = _NAMES + len(led) * _TIMES <= width
    rows: list[Row] = []
    for owner in (one for one in OWNERS if any(ledger_ns[one] != 0 for ledger_ns, _ in led)):
        name = Text(terminal.swatch(owner), style=LOOKS[owner].colour).append(f" {LOOKS[owner].label}", style="default")
        rows.append((name, *(_owned(ledger_ns[owner], span_ns, times) for ledger_ns, span_ns in led)))
    head, titles = ("", list(some)) if times else _short(some)
    whole = "recording" if all(gpu.leads_with_capture for gpu in some.values()) else "window"
    heading = f"who had the GPU (sums to the {whole})" + ("" if times else ", share of each GPU's time")
    columns = [Column(head), *(Column(title, right=True) for title in titles)]
    return Group(Text(heading, style="bold"), Fitted(columns, rows))


def _sampled(some: dict[str, GpuMeasures], width: int) -> Iterator[RenderableType]:
    """Rows from sampled GPU metrics, a column per GPU: compute time by what bounds it, and the energy."""
    gpus = list(some.values())
    sampled = [gpu.gpu_metrics for gpu in gpus if gpu.gpu_metrics is not None]
    if not sampled:
        return
    times = _NAMES + len(gpus) * _TIMES <= width
    rows: list[Row] = []
    for what, title in BOUND_TITLES.items():
        ns = [gpu.gpu_metrics.bound_ns[what] if gpu.gpu_metrics and gpu.gpu_metrics.bound_ns else None for gpu in gpus]
        of = [gpu.ledger_ns["compute"] or 0 for gpu in gpus]
        if any((one or 0) >= _LEAST_SHARE * whole > 0 for one, whole in zip(ns, of, strict=True)):
            rows.append((f"  {title}", *(_owned(*each, times) for each in zip(ns, of, strict=True))))
    heading = "of compute, by GPU metrics"
    if rows:
        yield Text(heading, style="bold")
    elif reasons := dict.fromkeys(one.bound_unknown for one in sampled if one.samples and one.bound_unknown):
        yield Prose(f"{heading}: {numbers.unknown(next(iter(reasons)))}")
    energies = list(map(_energy, gpus))
    if times and any(energies):
        rows.append(("energy, per step" if any(", " in one for one in energies) else "energy", *energies))
    if rows:
        yield Fitted([Column(), *(Column(right=True) for _ in gpus)], rows)


def _energy(gpu: GpuMeasures) -> str:
    """The energy of the window and per step, such as `12 J, 1.5 J`. If samples cover only a part of the window: the
    energy of that part, and the part's share of the window. Empty without samples."""
    found = gpu.gpu_metrics.energy if gpu.gpu_metrics else None
    if found is None:
        return ""
    told = numbers.energy(found.joules)
    if not found.covers(gpu.span_ns):
        return f"{told} in {numbers.share_of(found.sampled_ns, gpu.span_ns)}"
    return told if found.joules_per_step is None else f"{told}, {numbers.energy(found.joules_per_step)}"


def _places(some: dict[str, GpuMeasures], most: int) -> Iterator[RenderableType]:
    """At most `most` lines of idle time by place in the user's code, each place on the GPU where the place's share is
    largest."""
    worst: dict[tuple[str, str, str], tuple[float, int, str]] = {}
    for title, gpu in some.items():
        for row in gpu.places.rows if gpu.places else ():
            for owner, ns in row.ns.items():
                steps = gpu.steps.count if gpu.window == "steps" and gpu.steps.count else 1
                one = ns / gpu.span_ns, ns // steps, title
                key = owner, f"{row.kind} {row.name}", row.at
                worst[key] = max(worst.get(key, one), one)
    ranked = sorted(((one, key) for key, one in worst.items() if one[0] >= _LEAST_SHARE), reverse=True)
    for (share, ns, title), (owner, name, at) in ranked[:most]:
        cause = LOOKS[owner].label.removeprefix("idle: ")
        where = "" if len(some) == 1 else f", {title}"
        yield Prose(f"  {cause}: {name} ({at}) {numbers.duration(ns)} a step, {numbers.share(share)}{where}")


def _owned(ns: int | None, span_ns: int, times: bool) -> str:
    if ns is None:
        return numbers.UNKNOWN
    if not ns:
        return ""
    share = numbers.share_of(ns, span_ns)
    return f"{numbers.duration(ns)}  {share:>7}" if times else share


def _short(some: dict[str, GpuMeasures]) -> tuple[str, list[str]]:
    """Short titles of the GPUs' columns: rank, else device, else the number of the GPU's bar; with a heading that says
    which."""
    gpus = some.values()
    for head, found in (("rank", [gpu.rank for gpu in gpus]), ("GPU", [gpu.device for gpu in gpus])):
        if None not in found and len(set(found)) == len(found):
            return head, [str(one) for one in found]
    return "bar", [str(place) for place in range(1, len(some) + 1)]


def _findings(measures: Measures, detail: _Detail) -> Iterator[RenderableType]:
    if not measures.findings:
        return
    yield Text("\nwhat to change", style="bold")
    for finding in measures.findings[:MOST_FINDINGS]:
        yield indented(terminal.finding(measures, finding), most=detail.finding)
        yield indented(f"  → {finding.change}{_folded(finding)}", most=detail.change)
    left = measures.findings[MOST_FINDINGS:]
    if left:
        named = ", ".join(f"{one.code}{terminal.worth(one)}" for one in left)
        yield indented(f"and {len(left)} more: {named}", most=2)


def _folded(finding: Finding) -> str:
    """The first consequence of the finding, and the number of further consequences."""
    if not finding.consequences:
        return ""
    more = len(finding.consequences) - 1
    return f"\n  and {finding.consequences[0].text}" + (f" (and {more} more)" if more else "")


def _touching(measures: Measures, shown: Sequence[int]) -> tuple[list[Doubt], list[Doubt]]:
    """The doubts about numbers on this screen, and all other doubts."""
    saved = {owner for finding in measures.findings[:MOST_FINDINGS] for owner in finding.saved_ns}
    here = {*_SHOWN, *CLASSES, *(_UNDER[owner] for owner in saved if owner in _UNDER)}

    def touches(pointer: str) -> bool:
        first, *path = pointer.split("/")[1:]
        if first != "gpus" or not path:
            return True
        return int(path[0]) in shown and (len(path) == 1 or path[1] in here)

    found = [not doubt.where or any(map(touches, doubt.where)) for doubt in measures.doubts]
    told = list(zip(measures.doubts, found, strict=True))
    return [doubt for doubt, here in told if here], [doubt for doubt, here in told if not here]


def _left(measures: Measures, doubts: Sequence[Doubt], detail: _Detail, more: str) -> Iterator[RenderableType]:
    """The last lines, which count the doubts and breaks that were left out, and name the options that show them."""
    codes = list(dict.fromkeys(doubt.code for doubt in doubts))
    said = [f"doubts: {', '.join(codes)}"] if codes else []
    if not detail.breaks and measures.breaks:
        said.append("breaks between the steps")
    also = f"also: {'; '.join(said)}\n" if said else ""
    yield Prose(f"\n{also}{more}--full: every number; --show NAME: one table; --show: the tables' names", "dim", most=5)
