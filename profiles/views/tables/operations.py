"""Tables of what the GPUs did: copies, collectives, kernels."""

from __future__ import annotations

from dataclasses import dataclass

from ... import numbers
from ..charts.palette import OWNERS as LOOKS
from .table import Cell, Document, Format, Table, each_gpu, words

MOST_OPERATORS = 20
MOST_KERNELS = 10  # of each GPU


def copies(document: Document) -> Table:
    rows = []
    for gpu_at, gpu, name in each_gpu(document):
        for kind, copy in gpu["copies"].items():
            if not copy or not copy["count"]:
                continue
            at = f"{gpu_at}/copies/{kind}"
            rows.append(
                (
                    name,
                    Cell(LOOKS[kind].label, kind, look=kind),
                    document.number(f"{at}/count", numbers.count),
                    document.number(f"{at}/bytes", numbers.size),
                    document.number(f"{at}/busy_ns", numbers.duration),
                    document.number(f"{at}/exposed_ns", numbers.duration),
                    document.number(f"{at}/overlap", numbers.share),
                    document.number(f"{at}/gb_per_s", numbers.gb_per_s),
                    document.number(f"{at}/pageable_share", numbers.share),
                    document.number(f"{at}/under_64kib", numbers.count),
                    document.number(f"{at}/synchronous", numbers.count),
                )
            )
    columns = ("GPU", "direction", "copies", "moved", "time", "exposed", "hidden", "bandwidth", "pageable")
    return Table(
        "copies",
        "Copies",
        "Exposed is the time that no compute or collective hides; hidden is 1 - exposed / time. "
        "Pageable memory, counted by bytes, is copied at a fraction of what pinned memory gives.",
        (*columns, "under 64 KiB", "synchronous"),
        tuple(rows),
    )


def collectives(document: Document) -> Table:
    rows = []
    for gpu_at, gpu, name in each_gpu(document):
        if not gpu["collectives"] or not gpu["collectives"]["count"]:
            continue
        at = f"{gpu_at}/collectives"
        rows.append(
            (
                name,
                document.number(f"{at}/count", numbers.count),
                document.number(f"{at}/bytes_per_step", numbers.size),
                document.number(f"{at}/busy_ns", numbers.duration),
                document.number(f"{at}/exposed_ns", numbers.duration),
                document.number(f"{at}/overlap", numbers.share),
                document.number(f"{at}/waiting_ns", numbers.duration),
                document.number(f"{at}/transfer_ns", numbers.duration),
                document.number(f"{at}/skew_ns/p50", numbers.duration),
                document.number(f"{at}/skew_ns/max", numbers.duration),
                document.number(f"{at}/arrived_last_share", numbers.share),
                document.number(f"{at}/negotiation_ns", numbers.duration),
                document.number(f"{at}/bus_gb_per_s", numbers.gb_per_s),
            )
        )
    columns = ("GPU", "calls", "per step", "time", "exposed", "hidden", "waiting", "transfer", "skew p50", "skew max")
    return Table(
        "collectives",
        "Collectives",
        "Waiting lasts until the last rank has arrived, transfer from then on; a rank that arrives last often is the "
        "straggler that the others wait for. Negotiation is idle time in which Horovod has the gradients but does not "
        "launch their all-reduce, because other ranks' gradients are not ready.",
        (*columns, "arrived last", "negotiation", "bus bandwidth"),
        tuple(rows),
    )


def kernels(document: Document) -> Table:
    rows = []
    for gpu_at, gpu, name in each_gpu(document):
        for place, kernel in enumerate(gpu["kernels"]["top"][:MOST_KERNELS]):
            at = f"{gpu_at}/kernels/top/{place}"
            total = f"{at}/total_ns"
            rows.append(
                (
                    Cell(kernel["name"], kernel["name"], code=True),
                    name,
                    document.number(f"{at}/count", numbers.count),
                    document.number(total, numbers.duration),
                    document.number(total, numbers.share, of=f"{gpu_at}/span_ns"),
                    document.number(total, numbers.duration, of=f"{at}/count"),
                )
            )
    return Table(
        "kernels",
        "Kernels",
        "The kernels that take most time on each GPU. Shares are of the window; kernels of several streams may "
        "overlap.",
        ("kernel", "GPU", "launches", "time", "share", "mean"),
        tuple(rows),
    )


def operators(document: Document) -> Table:
    return _named(
        document,
        "operators",
        "Operators",
        "Kernels by the operator that launched them, and the idle time that the operator's kernels and copies ended. ",
    )


def layers(document: Document) -> Table:
    return _named(
        document, "layers", "Layers", "The same by layer, forward and backward, as the recording's ranges name them. "
    )


def _named(document: Document, key: str, title: str, caption: str) -> Table:
    rows = []
    for gpu_at, gpu, whose in each_gpu(document):
        found = gpu.get(key)
        if not found:
            continue
        named = [
            (f"rows/{place}", Cell(row["name"], row["name"], code=True)) for place, row in enumerate(found["rows"])
        ]
        beyond = found["distinct"] - min(len(named), MOST_OPERATORS)
        rest = [("unknown", words(f"none known ({found['source']})"))]
        for place, name in [*named[:MOST_OPERATORS], *rest]:
            at = f"{gpu_at}/{key}/{place}"
            rows.append(
                (
                    name,
                    whose,
                    document.number(f"{at}/kernels", numbers.count),
                    document.number(f"{at}/total_ns", numbers.duration),
                    document.number(f"{at}/owned_ns", numbers.share, of=f"{gpu_at}/span_ns"),
                    document.number(f"{at}/idle_ns", numbers.duration),
                    document.number(f"{at}/idle_ns", numbers.share, of=f"{gpu_at}/span_ns"),
                )
            )
        if beyond > 0:
            caption += f"{beyond} more are in the JSON. "
    columns = (key.removesuffix("s"), "GPU", "kernels", "kernel time", "of the window", "idle before", "of the window")
    return Table(key, title, caption + "Shares are of the window.", columns, tuple(rows))


def arithmetic(document: Document) -> Table:
    rows = []
    for gpu_at, gpu, whose in each_gpu(document):
        for place, row in enumerate((gpu.get("arithmetic") or {"rows": ()})["rows"][:MOST_OPERATORS]):
            at = f"{gpu_at}/arithmetic/rows/{place}"
            rows.append(
                (
                    Cell(row["name"], row["name"], code=True),
                    words(row["shapes"]),
                    words(row["dtype"]),
                    whose,
                    document.number(f"{at}/calls", numbers.count),
                    document.number(f"{at}/kernel_ns", numbers.duration),
                    document.number(f"{at}/flops_per_s", numbers.flop_per_s),
                    document.number(f"{at}/of_peak", numbers.share),
                    words(row["bound"]),
                    document.number(f"{at}/of_roof", numbers.share),
                )
            )
    columns = (
        "operator",
        "operands",
        "type",
        "GPU",
        "calls",
        "kernel time",
        "computed",
        "of peak",
        "bound by",
        "of roof",
    )
    return Table(
        "arithmetic",
        "FLOP/s",
        "Convolutions, matrix products and attention whose shapes the recording tells. Bound by: whether computing or "
        "memory limits them at best, each operand moved once. Of roof: the least time that this limit allows, by the "
        "time it took.",
        columns,
        tuple(rows),
    )


def groups(document: Document) -> Table:
    rows = []
    for gpu_at, gpu, name in each_gpu(document):
        for group in gpu["kernels"]["groups"]:
            at = f"{gpu_at}/kernels/groups"
            # A group's name may hold the slash that parts a JSON pointer: it is escaped as the standard says.
            total = _Part(document, at, group)
            rows.append((words(group), name, total("count", numbers.count), total("total_ns", numbers.duration)))
    return Table(
        "groups", "Kernel groups", "Kernels by what they do.", ("group", "GPU", "launches", "time"), tuple(rows)
    )


@dataclass(frozen=True, slots=True)
class _Part:
    document: Document
    at: str
    key: str

    def __call__(self, name: str, form: Format) -> Cell:
        value = self.document[self.at][self.key].get(name)
        return Cell(form(value), value, f"{self.at}/{self.key.replace('~', '~0').replace('/', '~1')}/{name}")
