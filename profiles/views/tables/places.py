"""The table of idle time by place in the user's code: where the host was while a GPU was idle."""

from __future__ import annotations

from ...ground import numbers
from ..palette import OWNERS as LOOKS
from .table import Cell, Document, Json, Table, each_gpu, words

MOST = 20
_SOURCE = 80  # number of characters that are shown of a line of code


def places(document: Document) -> Table:
    """Up to MOST places per GPU with idle time, and a row for the idle time at no known place."""
    rows = []
    for index, (at, gpu, name) in enumerate(each_gpu(document)):
        found = gpu["places"]
        if found is None:
            continue
        for place, one in enumerate(found["rows"][:MOST]):
            rows.append((*_where(index, one), name, *_times(document, f"{at}/places/rows/{place}", gpu, one)))
        left = sum(found["elsewhere_ns"].values())
        if left:
            cells = (words("elsewhere"), words(""), words(""), name, Cell(numbers.duration(left), left))
            rows.append((*cells, words(numbers.share_of(left, gpu["span_ns"])), words(_causes(found["elsewhere_ns"]))))
    return Table(
        "places",
        "Which of your lines",
        "The places in your code at which the host was while a GPU was idle; for each cause the times add up to the "
        "ledger's idle time. Longest: the longest idle span; click it to see that span in the timeline.",
        ("place", "at", "longest", "GPU", "idle", "of the window", "causes and lines"),
        tuple(rows),
    )


def _where(index: int, one: Json) -> tuple[Cell, Cell, Cell]:
    start = one["longest_start_ns"]
    longest = words("")
    if start is not None:
        length = one["longest_ns"]
        longest = Cell(numbers.duration(length), length, when=(index, start, start + length))
    at = f"{one['file']}:{one['line']}" if one["file"] else ""
    return words(f"{one['kind']} {one['name']}"), Cell(at, at, code=bool(at)), longest


def _times(document: Document, at: str, gpu: Json, one: Json) -> tuple[Cell, Cell, Cell]:
    total = sum(one["ns"].values())
    lines = "; ".join(f"line {line['line']}: {line['source'][:_SOURCE]}" for line in one["lines"][:2] if line["source"])
    said = "; ".join(filter(None, (_causes(one["ns"]), lines)))
    return Cell(numbers.duration(total), total), words(numbers.share_of(total, gpu["span_ns"])), words(said)


def _causes(ns: Json) -> str:
    ranked = sorted(((value, owner) for owner, value in ns.items() if value), reverse=True)
    return ", ".join(
        f"{LOOKS[owner].label.removeprefix('idle: ')} {numbers.duration(value)}" for value, owner in ranked
    )
