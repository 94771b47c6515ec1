"""Forecast the throughput of more GPUs from measured throughput, of a sweep or given (docs/reference/measures.md)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..doubts import forecasts as doubts
from ..ground.errors import RingscopeError
from ..model.timeline import Doubt
from ..runs.cell import TELLING, Cell
from ..scaling.measure import Scaling
from . import curve
from .curve import CALIBRATED_TIMES, USUAL_GPUS_PER_HOST, Point
from .network import Network, added

SCHEMA = "ringscope.forecast/1"
SMALL_BUFFER = 1 << 20  # bytes of an all-reduce if gradients are sent layer by layer


@dataclass(frozen=True, slots=True)
class Hosts:
    """Hosts joined by a network, for a forecast from points that were all measured on one host."""

    gpus_per_host: int
    network: Network
    step_bytes: int  # gradients that a step reduces
    per_rank_batch: int  # samples per GPU and step; with the throughput this gives the time per step
    overlap: float | None = None  # share of an all-reduce that is hidden under compute in a recording
    every: int = 1  # number of steps whose gradients are added up before they are reduced
    pieces: int = 1  # number of all-reduces of a step, one after the other


@dataclass(frozen=True, slots=True)
class Row:
    """Throughput over all GPUs; efficiency is relative to the smallest count measured."""

    gpus: int
    per_s: float
    efficiency: float
    low: float  # interval of the efficiency; a measured row has low = high = efficiency
    high: float
    measured: bool


@dataclass(frozen=True, slots=True)
class Change:
    """A forecast for the largest number of GPUs with another way to exchange gradients."""

    change: str
    row: Row


@dataclass(frozen=True, slots=True)
class Forecast:
    """One curve: measured and forecast rows, by number of GPUs."""

    label: str
    rows: list[Row]
    # The count from which another GPU adds less than half a GPU's throughput; None: no count up to 4,096 more.
    stops_paying: int | None
    doubts: list[Doubt]
    what_if: list[Change]


def of_points(
    label: str,
    points: Sequence[Point],
    gpus: Sequence[int],
    hosts: Hosts | None = None,
    gpus_per_host: int | None = None,
) -> Forecast:
    """Forecast for these numbers of GPUs (empty: 2, 4 and 8 times the largest measured one).

    gpus_per_host: if None, it is that of `hosts` or assumed, with a doubt.

    Raises RingscopeError if fewer than two sizes were measured, or if `hosts` is given although a measured point spans
    several hosts."""
    told = hosts.gpus_per_host if hosts is not None else gpus_per_host
    per_host = told or USUAL_GPUS_PER_HOST
    expected = curve.predict(points, gpus or _doubled(points), per_host)
    rows = [Row(one.gpus, one.per_s, one.efficiency, one.low, one.high, False) for one in expected]
    if hosts is not None:
        rows = [_across(points, row.gpus, hosts) for row in rows]
    base = min(points, key=lambda point: point.gpus)
    known = {point.gpus for point in points}
    measured = [_row_of(point, base) for point in points]
    asked = [row for row in rows if row.gpus not in known]
    stops_paying = curve.worth_adding(points, per_host) if hosts is None else None
    both = sorted([*measured, *asked], key=lambda row: row.gpus)
    what_if = [] if hosts is None else list(_exchanged_otherwise(points, max(row.gpus for row in rows), hosts))
    doubted = list(_doubts(points, asked, hosts, per_host, told is None))
    return Forecast(label, both, stops_paying, doubted, what_if)


def _exchanged_otherwise(points: Sequence[Point], gpus: int, hosts: Hosts) -> Iterator[Change]:
    """Forecasts with small buffers, with half the bytes, and with one exchange per two steps; [] within one host."""
    if gpus <= hosts.gpus_per_host:
        return
    pieces = -(-hosts.step_bytes // SMALL_BUFFER)
    if pieces > 1:
        small = replace(hosts, pieces=pieces)
        yield Change(f"{pieces} exchanges per step, of 1 MiB each (fusion threshold)", _across(points, gpus, small))
    half = replace(hosts, step_bytes=-(-hosts.step_bytes // 2))
    yield Change("half the bytes (compression fp16)", _across(points, gpus, half))
    yield Change("one exchange for two steps (aggregate 2)", _across(points, gpus, replace(hosts, every=2)))


def of_sweep(
    scaling: Scaling, gpus: Sequence[int], hosts: Hosts | None = None, gpus_per_host: int | None = None
) -> list[Forecast]:
    """A forecast for each group of cells with weak scaling that was measured on two or more numbers of ranks."""
    curves: dict[Cell, list[Point]] = {}
    for row in scaling.cells:
        if row.samples_per_s_global and row.cell.global_batch is None:
            series = replace(row.cell, ranks=1)
            curves.setdefault(series, []).append(Point(row.cell.ranks, row.samples_per_s_global))
    several = {series: points for series, points in curves.items() if len(points) > 1}
    if not several:
        raise RingscopeError("prediction needs one cell on two or more numbers of ranks; run bench --ranks 1,2")
    found = [
        of_points(
            _label(cell, several),
            points,
            gpus,
            replace(hosts, per_rank_batch=cell.per_rank_batch) if hosts else None,
            gpus_per_host,
        )
        for cell, points in several.items()
    ]
    shared = [doubt for doubt in scaling.doubts if doubt.code == "shared-cores"]
    return [_sharing(one, shared) for one in found] if shared else found


def _sharing(one: Forecast, shared: Sequence[Doubt]) -> Forecast:
    """The doubts with point-out-of-line replaced by the doubt about shared cores, which explains the loss."""
    return replace(one, doubts=[*shared, *(doubt for doubt in one.doubts if doubt.code != "point-out-of-line")])


def _label(cell: Cell, beside: Collection[Cell]) -> str:
    """Name a curve: model, batch, feed, and every other setting in which the sweep's curves differ."""
    always = ("model", "per_rank_batch", "feed")
    told = [one for one in TELLING if one.name in always or len({getattr(each, one.name) for each in beside}) > 1]
    return ", ".join(filter(None, (one.said(getattr(cell, one.name)) for one in told)))


def to_json(forecasts: Sequence[Forecast]) -> dict[str, Any]:
    return {"schema": SCHEMA, "forecasts": [asdict(one) for one in forecasts]}


def _doubled(points: Sequence[Point]) -> list[int]:
    largest = max((point.gpus for point in points), default=1)
    return [largest * times for times in (2, 4, 8)]


def _row_of(point: Point, base: Point) -> Row:
    share = point.per_s / point.gpus / (base.per_s / base.gpus)
    return Row(point.gpus, point.per_s, share, share, share, True)


def _across(points: Sequence[Point], gpus: int, hosts: Hosts) -> Row:
    """Forecast across hosts: the step on one host, by the measured points, plus the time that the network adds."""
    if max(point.gpus for point in points) > hosts.gpus_per_host:
        raise RingscopeError(
            f"measurements on more than {hosts.gpus_per_host} GPUs include the network already; leave out --network"
        )
    most = max(min(gpus, hosts.gpus_per_host), min(point.gpus for point in points))
    (inside,) = curve.predict(points, [most], hosts.gpus_per_host)
    count = -(-gpus // hosts.gpus_per_host)
    step_ns = hosts.per_rank_batch * inside.gpus / inside.per_s * 1e9
    more = added(count, hosts.step_bytes, hosts.network, step_ns, overlap=hosts.overlap, pieces=hosts.pieces)

    def longer(share: float, ns: float) -> float:
        return share * step_ns / (step_ns + ns / hosts.every)

    efficiency = longer(inside.efficiency, more.expected_ns)
    per_s = inside.per_s / inside.gpus * gpus * efficiency / inside.efficiency
    low, high = longer(inside.low, more.most_ns), longer(inside.high, more.least_ns)
    return Row(gpus, per_s, efficiency, low, high, False)


def _doubts(
    points: Sequence[Point], asked: Sequence[Row], hosts: Hosts | None, per_host: int, assumed: bool
) -> Iterator[Doubt]:
    if (odd := curve.disagreeing(points, per_host)) is not None:
        yield doubts.point_out_of_line(odd.gpus)
    if above := curve.above_linear(points):
        yield doubts.over_100_percent([point.gpus for point in above], min(point.gpus for point in points))
    largest = max(point.gpus for point in points)
    far = [row.gpus for row in asked if row.gpus > CALIBRATED_TIMES * largest]
    if far and hosts is None:
        yield doubts.beyond_the_tables(far[0], largest, CALIBRATED_TIMES)
    crossing = [row.gpus for row in asked if row.gpus > per_host]
    if assumed and crossing:
        yield doubts.hosts_assumed(per_host)
    if crossing and hosts is None and largest <= per_host:
        yield doubts.no_host_crossed(crossing[0], per_host)
    if crossing and hosts is not None and hosts.overlap is None:
        yield doubts.overlap_assumed()
