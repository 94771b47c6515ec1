"""Tables of what the GPUs did: copies, collectives, kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from ...ground import numbers
from .. import spoken
from ..palette import OWNERS as LOOKS
from .table import Cell, Document, Field, Format, Json, Table, each_gpu, titles, words

# A kind of column: the text after the GPU's title, the format of the numbers and, for a ratio, the key of the field to
# divide by.
Form: TypeAlias = tuple[str, Format, str]
MOST_OPERATORS = 20
MOST_KERNELS = 20


COPIES: tuple[Field, ...] = (
    ("copies", "count", numbers.count),
    ("moved", "bytes", numbers.size),
    ("time", "busy_ns", numbers.duration),
    ("exposed", "exposed_ns", numbers.duration),
    ("hidden", "overlap", numbers.share),
    ("bandwidth", "gb_per_s", numbers.gb_per_s),
    ("pageable", "pageable_share", numbers.share),
    ("under 64 KiB", "under_64kib", numbers.count),
    ("synchronous", "synchronous", numbers.count),
)
COLLECTIVES: tuple[Field, ...] = (
    ("calls", "count", numbers.count),
    ("per step", "bytes_per_step", numbers.size),
    ("time", "busy_ns", numbers.duration),
    ("exposed", "exposed_ns", numbers.duration),
    ("hidden", "overlap", numbers.share),
    ("waiting", "waiting_ns", numbers.duration),
    ("transfer", "transfer_ns", numbers.duration),
    ("skew p50", "skew_ns/p50", numbers.duration),
    ("skew max", "skew_ns/max", numbers.duration),
    ("arrived last", "arrived_last_share", numbers.share),
    ("by turns, a step", "by_turns_ns", numbers.duration),
    ("negotiation", "negotiation_ns", numbers.duration),
    ("bus bandwidth", "bus_gb_per_s", numbers.gb_per_s),
)
SIZES: tuple[Field, ...] = (
    ("calls", "count", numbers.count),
    ("length", "lasted_ns", numbers.duration),
    ("transfer", "transfer_ns", numbers.duration),
    ("rate", "gb_per_s", numbers.gb_per_s),
    ("bus bandwidth", "bus_gb_per_s", numbers.gb_per_s),
)


def copies(document: Document) -> Table:
    rows = [
        (name, Cell(LOOKS[kind].label, kind, look=kind), *document.numbers(f"{at}/copies/{kind}", COPIES))
        for at, gpu, name in each_gpu(document)
        for kind, copy in gpu["copies"].items()
        if copy and copy["count"]
    ]
    return Table(
        "copies",
        "Copies",
        "Exposed is the time that no compute or collective hides; hidden is 1 - exposed / time. "
        "Pageable is the share of the bytes that lie in pageable memory, from which copies are slower than from "
        "pinned memory.",
        ("GPU", "direction", *titles(COPIES)),
        tuple(rows),
    )


def collectives(document: Document) -> Table:
    rows = [
        (name, *document.numbers(f"{at}/collectives", COLLECTIVES))
        for at, gpu, name in each_gpu(document)
        if gpu["collectives"] and gpu["collectives"]["count"]
    ]
    return Table(
        "collectives",
        "Collectives",
        "Waiting lasts until the last rank has arrived, transfer from then on; a rank that arrives last often is the "
        "straggler that the others wait for. By turns: ranks that are late in turn, each at another collective, would "
        "save this time per step if they exchanged only once. Negotiation is idle time in which Horovod has the "
        "gradients but does not launch their all-reduce, because other ranks' gradients are not ready.",
        ("GPU", *titles(COLLECTIVES)),
        tuple(rows),
    )


def collective_sizes(document: Document) -> Table:
    """The table of collectives by kind and size, with the bandwidth at which each moved its bytes."""
    rows = []
    for gpu_at, gpu, name in each_gpu(document):
        for place, one in enumerate(gpu["collectives"]["by_size"]):
            at = f"{gpu_at}/collectives/by_size/{place}"
            size = document.number(f"{at}/bytes", numbers.size)
            of = words(one.get("communicator") or numbers.UNKNOWN)
            rows.append((words(one["kind"].replace("_", "-")), size, name, of, *document.numbers(at, SIZES)))
    return Table(
        "collective-sizes",
        "Collectives by kind and size",
        "Bytes: what a rank passes to each call. Communicators have NCCL's or PyTorch's names. The rate is bytes "
        "divided by the transfer, which begins when all ranks have arrived; without the other ranks' recordings it is "
        "bytes divided by the whole call, and so a minimum.",
        ("kind", "size", "GPU", "communicator", *titles(SIZES)),
        tuple(rows),
    )


def kernels(document: Document) -> Table:
    forms: dict[str, Form] = {
        "total_ns": ("", numbers.duration, ""),
        "share": (", share", numbers.share, "/span_ns"),
    }
    if len(document.json["gpus"]) == 1:
        forms |= {"count": (", launches", numbers.count, ""), "mean": (", mean", numbers.duration, "count")}
    return _by_name(
        document,
        "kernels",
        "Kernels",
        f"The {MOST_KERNELS} kernels that take most time on all GPUs together; the JSON has more. Shares are of the "
        "window; kernels of several streams may overlap.",
        ("kernel",),
        "kernels/top",
        lambda kernel: (spoken.name(kernel["name"], kernel.get("operator")),),
        forms,
        MOST_KERNELS,
    )


def operators(document: Document) -> Table:
    return _operators(
        document,
        "operators",
        "Operators",
        "Kernel time by the operator that launched the kernels, and idle time before the operator's kernels and "
        "copies.",
    )


def layers(document: Document) -> Table:
    about = "Kernel time by layer, forward and backward. The layers' names are from ranges in the recording."
    return _operators(document, "layers", "Layers", about)


def _operators(document: Document, key: str, title: str, caption: str) -> Table:
    forms: dict[str, Form] = {"owned_ns": ("", numbers.duration, "")}
    if len(document.json["gpus"]) == 1:
        forms["share"] = (", share", numbers.share, "/span_ns")
    forms["idle_ns"] = (", idle before", numbers.duration, "")
    one = key.removesuffix("s")
    caption += (
        f" Shown are the {MOST_OPERATORS} with most time on all GPUs together, and kernels of no known {one}; the JSON "
        "has more."
    )
    return _by_name(
        document,
        key,
        title,
        caption,
        (one,),
        f"{key}/rows",
        lambda row: (spoken.name(row["name"]),),
        forms,
        MOST_OPERATORS,
    )


def arithmetic(document: Document) -> Table:
    return _by_name(
        document,
        "arithmetic",
        "FLOP/s",
        "Convolutions, matrix products and attention whose shapes the recording holds. Bound by: the limit (compute "
        "or memory) if each operand is moved once. Of roof: the least time that this limit allows, divided by the "
        "measured time.",
        ("operator", "operands", "type", "bound by"),
        "arithmetic/rows",
        lambda row: (row["name"], row["shapes"], row["dtype"], row["bound"] or numbers.UNKNOWN),
        {
            "kernel_ns": ("", numbers.duration, ""),
            "flops_per_s": (", computed", numbers.flop_per_s, ""),
            "of_peak": (", of peak", numbers.share, ""),
            "of_roof": (", of roof", numbers.share, ""),
        },
        MOST_OPERATORS,
    )


def _by_name(
    document: Document,
    key: str,
    title: str,
    caption: str,
    names: tuple[str, ...],
    place_of: str,
    name_of: Callable[[Json], tuple[str, ...]],
    forms: Mapping[str, Form],
    most: int,
) -> Table:
    """A table with a row per name, and for each GPU a column per entry of `forms`, whose keys name a row's numbers.
    Rows are sorted by the first number plus the idle time, summed over GPUs. `share` is the first number divided by the
    GPU's span, `mean` the first number divided by the row's count. place_of: the path of the rows in a GPU's JSON."""
    gpus = list(each_gpu(document))
    first = next(iter(forms))
    found: dict[tuple[str, ...], dict[int, str]] = {}
    totals: dict[tuple[str, ...], float] = {}
    for number, (at, gpu, _) in enumerate(gpus):
        for place, row in enumerate(_rows(gpu, place_of)):
            name = name_of(row)
            found.setdefault(name, {})[number] = f"{at}/{place_of}/{place}"
            totals[name] = totals.get(name, 0) + (row[first] or 0) + (row.get("idle_ns") or 0)
    order = sorted(totals, key=lambda name: -totals[name])[:most]
    shown = [([Cell(part, part, code=not at) for at, part in enumerate(name)], found[name]) for name in order]
    if key in ("operators", "layers"):
        nameless = {number: f"{at}/{key}/unknown" for number, (at, gpu, _) in enumerate(gpus) if gpu.get(key)}
        shown += [([words("none known")], nameless)] if nameless else []
    rows = []
    for cells, places in shown:
        for number, (at, _, _) in enumerate(gpus):
            cells = [*cells, *(_number(document, places.get(number), at, first, one, forms[one]) for one in forms)]
        rows.append(tuple(cells))
    columns = [f"{whose.text}{more}" for _, _, whose in gpus for more, _, _ in forms.values()]
    if len(gpus) == 1:
        columns = [more.removeprefix(", ") or "time" for more, _, _ in forms.values()]
    return Table(key, title, caption, (*names, *columns), tuple(rows))


def _rows(gpu: Json, place_of: str) -> Sequence[Json]:
    found: Any = gpu
    for part in place_of.split("/"):
        found = found.get(part) if found else None
    return found or ()


def _number(document: Document, row: str | None, gpu: str, first: str, key: str, form: Form) -> Cell:
    """The cell of one GPU, empty if the GPU has no row of this name. row, gpu: JSON pointers."""
    if row is None:
        return Cell("", None)
    _, shown, of = form
    if key in ("share", "mean"):
        return document.number(f"{row}/{first}", shown, of=f"{gpu}{of}" if key == "share" else f"{row}/{of}")
    return document.number(f"{row}/{key}", shown)


def groups(document: Document) -> Table:
    rows = []
    for gpu_at, gpu, name in each_gpu(document):
        for group, found in gpu["kernels"]["groups"].items():
            # A slash in the group's name would divide the JSON pointer, so the name is escaped (RFC 6901).
            at = f"{gpu_at}/kernels/groups/{group.replace('~', '~0').replace('/', '~1')}"
            count, ns = found["count"], found["total_ns"]
            count_cell = Cell(numbers.count(count), count, f"{at}/count")
            rows.append((words(group), name, count_cell, Cell(numbers.duration(ns), ns, f"{at}/total_ns")))
    return Table(
        "groups", "Kernel groups", "Kernel time by kind of work.", ("group", "GPU", "launches", "time"), tuple(rows)
    )
