"""The tables of collectives that NCCL logged, made from JSON: each number carries its JSON pointer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from ...ground import numbers
from .table import Document, Field, Table, titles, words

MOST_RANKS = 16
One = TypeVar("One")

KINDS: tuple[Field, ...] = (
    ("ranks", "ranks", numbers.count),
    ("nodes", "nodes", numbers.count),
    ("calls", "count", numbers.count),
    ("bytes", "bytes", numbers.size),
    ("time, all ranks", "lasted_ns", numbers.duration),
    ("transfer", "transfer_ns", numbers.duration),
    ("bus bandwidth", "bus_gb_per_s", numbers.gb_per_s),
    ("with waiting", "lasting_gb_per_s", numbers.gb_per_s),
)
TIMES: tuple[Field, ...] = (
    ("calls", "count", numbers.count),
    ("in collectives", "lasted_ns", numbers.duration),
    ("waiting", "waiting_ns", numbers.duration),
)
SHARES: tuple[Field, ...] = (
    ("of its time", "waiting_share", numbers.share),
    ("arrived last", "arrived_last_share", numbers.share),
)


def last_arrivals(rows: Sequence[One], counts: Sequence[float | None]) -> list[tuple[int, One]]:
    """The rows to show, with their indices: all or, if there are more than MOST_RANKS, the rows of ranks that arrived
    last most often, in their old order."""
    order = sorted(range(len(rows)), key=lambda place: -(counts[place] or 0))
    return [(place, rows[place]) for place in sorted(order[:MOST_RANKS])]


def kinds(document: Document) -> Table:
    rows = [
        (
            words(_name(one, document)),
            words(one["kind"]),
            *document.numbers(f"/kinds/{place}", KINDS),
            words(one["why"] or "-"),
        )
        for place, one in enumerate(document["/kinds"])
    ]
    text = (
        "Bytes: what one rank passes in; of ReduceScatter: what it gets. The rank whose kernel ran shortest arrived "
        "last: the time of that kernel is the transfer. Bus bandwidth is bytes divided by transfer, times the factor "
        "of nccl-tests; 'with waiting' divides by the whole time of all ranks' kernels."
    )
    columns = ("communicator", "collective", *titles(KINDS), "why transfer is unknown")
    return Table("kinds", "By communicator and kind", text, columns, tuple(rows), keys=2)


def ranks(document: Document) -> Table:
    text = "Waiting lasts until the last rank arrives. Shares refer to the calls that are in the logs of all ranks."
    if any(len(one["each"]) > MOST_RANKS for one in document["/kinds"]):
        text += f" Only the {MOST_RANKS} ranks of each kind that arrived last most often are shown; the JSON has all."
    columns = ("communicator", "collective", "rank", *titles((*TIMES, *SHARES)))
    return Table("ranks", "Who waits, and who arrives last", text, columns, tuple(_ranks(document)), keys=3)


def _ranks(document: Document) -> Iterator[Any]:
    for kind, one in enumerate(document["/kinds"]):
        for place, _ in last_arrivals(one["each"], [rank["arrived_last"] for rank in one["each"]]):
            at = f"/kinds/{kind}/each/{place}"
            yield (
                words(_name(one, document)),
                words(one["kind"]),
                document.number(f"{at}/rank", numbers.count),
                *document.numbers(at, TIMES),
                document.number(f"{at}/waiting_ns", numbers.share, of=f"{at}/matched_ns"),
                document.number(f"{at}/arrived_last", numbers.share, of=f"/kinds/{kind}/matched"),
            )


def processes(document: Document) -> Table:
    found = document["/processes"]
    shown = last_arrivals(found, [one["arrived_last_share"] for one in found])
    rows = [
        (words(f"{one['host']} {one['pid']}".strip()), *document.numbers(f"/processes/{place}", _PROCESS))
        for place, one in shown
    ]
    text = "Sums over all communicators of a process. The rank is that in the largest communicator."
    if len(shown) < len(found):
        text += f" Only {MOST_RANKS} of {len(found):,} are shown: they arrived last most often; the JSON has all."
    return Table("processes", "By process", text, ("process", *titles(_PROCESS)), tuple(rows))


_PROCESS: tuple[Field, ...] = (("rank", "rank", numbers.count), *TIMES, *SHARES)


def _name(one: Any, document: Document) -> str:
    """The communicator's name; its number if it has none; both if other communicators have the same name."""
    if not one["name"]:
        return str(one["communicator"])
    alike = {other["communicator"] for other in document["/kinds"] if other["name"] == one["name"]}
    return f"{one['name']} ({one['communicator']})" if len(alike) > 1 else str(one["name"])
