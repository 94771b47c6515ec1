"""The numbers of GPUs on a terminal, a column per GPU: ledger, steps, copies, kernels, collectives, GPU metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.text import Text

from ...ground import numbers
from ...model.gpu_metrics import METRICS
from ...model.measures import CLASSES, OWNERS, GpuMeasures
from ...model.steps import Gaps
from ..palette import OWNERS as LOOKS
from ..tables.gpu_metrics import BOUND_TITLES, TITLES
from .widths import Column, Fitted, Row

Cell = Callable[[GpuMeasures], str]
COLUMN_WIDTH, NAMES_WIDTH = 24, 30
BUSY, KERNELS = "busy, hidden or not", "kernels"  # titles of sections that have numbers which no other table has
_COPIES = {"h2d": "host to device", "d2h": "device to host", "p2p": "peer to peer", "d2d": "on the device"}


def side_by_side(gpus: Sequence[GpuMeasures], titles: Sequence[str], only: str = "") -> Fitted:
    """A table with a column per GPU, of all sections or of the section `only`. Rows that are empty for all GPUs are
    left out."""
    shown: list[Row] = []
    for section, rows in _sections():
        if only and section != only:
            continue
        shown.append(Text(section, style="bold"))
        for name, cell in rows:
            values = [cell(gpu) for gpu in gpus]
            if any(values):
                shown.append((f"  {name}", *values))
    return Fitted([Column(), *(Column(title, right=True) for title in titles)], shown)


def _sections() -> Iterator[tuple[str, list[tuple[str, Cell]]]]:
    yield "who had the GPU (sums to the window)", [(LOOKS[owner].label, _owned(owner)) for owner in OWNERS]
    yield BUSY, [(LOOKS[name].label, _busy(name)) for name in CLASSES]
    yield "steps", _step_rows()
    yield "copies", [(title, _copied(name)) for name, title in _COPIES.items()]
    yield "input copies", _input_rows()
    yield KERNELS, _kernel_rows()
    yield "collectives", _collective_rows()
    yield "GPU metrics", _sampled_rows()


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

    def times(gpu: GpuMeasures) -> str:
        return f"{numbers.duration(gpu.kernels.median_ns)}, {numbers.share(gpu.kernels.share_under_5us)}"

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
        ("median, share under 5 µs", times),
        ("launch latency p50 / p95", latency),
        ("hand-over p50", hand_over),
        ("most time in", groups),
        ("computed, MFU", _computed),
        ("short element-wise kernels", runs),
    ]


def _computed(gpu: GpuMeasures) -> str:
    found = gpu.arithmetic
    if found is None:
        return ""
    least = "" if found.all_told else "at least "
    return f"{least}{numbers.flop_per_s(found.flops_per_s)}, {numbers.share(found.mfu)}"


def _sampled_rows() -> list[tuple[str, Cell]]:
    def bound(what: str) -> Cell:
        def cell(gpu: GpuMeasures) -> str:
            found = gpu.gpu_metrics
            if found is None:
                return ""
            if found.bound_ns is None:
                return numbers.UNKNOWN
            ns = found.bound_ns[what]
            return f"{numbers.duration(ns)}  {numbers.share_of(ns, gpu.ledger_ns['compute']):>7}" if ns else ""

        return cell

    def computing(key: str) -> Cell:
        return lambda gpu: numbers.share(gpu.gpu_metrics.means["compute"][key]) if gpu.gpu_metrics else ""

    return [
        *((f"compute, {title}", bound(what)) for what, title in BOUND_TITLES.items()),
        *((f"{TITLES[key]} while it computes", computing(key)) for key in METRICS),
        ("energy, per step", energy),
    ]


def energy(gpu: GpuMeasures) -> str:
    """Rows for the energy of the window and per step. If samples cover only a part of the window: the energy of that
    part, and the part's share of the window. Empty without samples."""
    found = gpu.gpu_metrics.energy if gpu.gpu_metrics else None
    if found is None:
        return ""
    told = numbers.energy(found.joules)
    if not found.covers(gpu.span_ns):
        return f"{told} in {numbers.share_of(found.sampled_ns, gpu.span_ns)}"
    return told if found.joules_per_step is None else f"{told}, {numbers.energy(found.joules_per_step)}"


def _collective_rows() -> list[tuple[str, Cell]]:
    def skew(gpu: GpuMeasures) -> str:
        found = gpu.collectives.skew_ns
        return f"{numbers.duration(found['p50'])} / {numbers.duration(found['max'])}" if found else ""

    def apart(gpu: GpuMeasures) -> str:
        found = gpu.collectives
        if found.waiting_ns is None:
            return ""
        return f"{numbers.duration(found.waiting_ns)} / {numbers.duration(found.transfer_ns)}"

    def known(name: str, form: Callable[[Any], str]) -> Cell:
        return lambda gpu: "" if (value := getattr(gpu.collectives, name)) is None else form(value)

    return [
        ("count", lambda gpu: numbers.count(gpu.collectives.count)),
        ("skew p50 / max", skew),
        ("waiting / transfer", apart),
        ("negotiation, GPU idle", known("negotiation_ns", numbers.duration)),
        ("bytes per step", known("bytes_per_step", numbers.size)),
        ("bus bandwidth", known("bus_gb_per_s", numbers.gb_per_s)),
        ("arrived last", known("arrived_last_share", numbers.share)),
    ]
