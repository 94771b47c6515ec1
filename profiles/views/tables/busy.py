"""Tables with a row per GPU: how long each kind of work ran, hidden or not, and the GPU's kernels as a whole."""

from __future__ import annotations

from collections.abc import Iterator

from ...ground import numbers
from ...model.measures import CLASSES
from ..palette import OWNERS as LOOKS
from .table import Cell, Document, Field, Json, Table, each_gpu, titles, words

KERNELS: tuple[Field, ...] = (
    ("kernels", "kernels/count", numbers.count),
    ("per step", "kernels/per_step", numbers.count),
    ("CUDA graph launches", "kernels/graph_launches", numbers.count),
    ("median", "kernels/median_ns", numbers.duration),
    ("under 5 µs", "kernels/share_under_5us", numbers.share),
    ("launch latency p50", "kernels/launch_latency_ns/p50", numbers.duration),
    ("launch latency p95", "kernels/launch_latency_ns/p95", numbers.duration),
)
WORK: tuple[Field, ...] = (
    ("FLOP/s", "arithmetic/flops_per_s", numbers.flop_per_s),
    ("MFU", "arithmetic/mfu", numbers.share),
)
_OFTEN_ABSENT = ("hand-over in graphs", "hand-over of launches", "short element-wise", "in runs")


def busy(document: Document) -> Table:
    """The table with a row per kind of work and GPU."""
    rows = []
    for at, gpu, name in each_gpu(document):
        for kind in CLASSES:
            if gpu["busy_ns"][kind] == 0:
                continue
            ran, exposed = f"{at}/busy_ns/{kind}", f"{at}/ledger_ns/{kind}"
            rows.append(
                (
                    name,
                    Cell(LOOKS[kind].label, kind, look=kind),
                    document.number(ran, numbers.duration),
                    document.number(exposed, numbers.duration),
                    document.number(exposed, numbers.share, of=ran),
                )
            )
    return Table(
        "busy",
        "Busy time",
        "How long each kind of work ran on any stream, and how much of it was exposed: no work that stands higher in "
        "the ledger hid it.",
        ("GPU", "kind", "time", "exposed", "of it"),
        tuple(rows),
        keys=2,
    )


def kernels(document: Document) -> Table:
    """The table with a row per GPU that has kernels or graph launches."""
    rows = [
        (name, *document.numbers(at, KERNELS), *_often_absent(document, at, gpu), *document.numbers(at, WORK))
        for at, gpu, name in each_gpu(document)
        if gpu["kernels"]["count"] or gpu["kernels"]["graph_launches"]
    ]
    return Table(
        "all-kernels",
        "All kernels together",
        "Launch latency lasts from the end of a launch call to the kernel's start. A hand-over is the median pause "
        "between two kernels of a stream, in a CUDA graph or between launches. Runs of short element-wise kernels can "
        "be fused. FLOP/s and MFU count operations whose shapes the recording holds, so they may be higher.",
        ("GPU", *titles(KERNELS), *_OFTEN_ABSENT, *titles(WORK)),
        tuple(rows),
    )


def _often_absent(document: Document, at: str, gpu: Json) -> Iterator[Cell]:
    for kind in ("in_graphs", "launched"):
        known = kind in (gpu["hand_over_ns"] or {})
        yield document.number(f"{at}/hand_over_ns/{kind}/p50_ns", numbers.duration) if known else words(None)
    for key in ("kernels", "runs"):
        known = key in gpu["kernels"]["short_elementwise_runs"]
        here = f"{at}/kernels/short_elementwise_runs/{key}"
        yield document.number(here, numbers.count) if known else words(None)
