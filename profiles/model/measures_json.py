"""Convert measures to JSON and back without loss: the format of `timeline --json` (docs/reference/measures.md)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from ..ground import typed
from ..ground.errors import RingscopeError
from ..ground.files import bytes_of
from .gpu_metrics import BOUNDS, KINDS_OF_TIME, METRICS
from .measures import CLASSES, OWNERS, SCHEMA, GpuMeasures, Measures

# Fields written as text: UTC times in ns exceed 2**53, the largest integer that many JSON readers keep exact.
_AS_TEXT = ("origin_ns", "origin_utc_ns")
_PLAIN: Final = frozenset({int, float, str, bool, type(None)})


def to_json(measures: Measures, *, per_step: bool = True) -> dict[str, Any]:
    """The measures as plain values for `json.dumps`. Without `per_step` the rows of steps are left out, and `from_json`
    cannot restore them."""
    if not per_step:  # the rows are most of the data
        gpus = [replace(gpu, steps=replace(gpu.steps, rows=[])) for gpu in measures.gpus]
        measures = replace(measures, gpus=gpus)
    found = plain(measures)
    return {"schema": found.pop("schema"), **found}


def from_json(data: Any) -> Measures:
    """Make measures from decoded JSON; unknown keys are ignored. Raises RingscopeError if `data` is not valid
    measures."""
    found = data.get("schema") if isinstance(data, dict) else None
    return _measures(found, lambda: typed.made(Measures, data))


def _measures(schema: Any, made: Callable[[], Measures]) -> Measures:
    if schema != SCHEMA:
        found = str(schema)[:60]
        raise RingscopeError(f"not measures of schema {SCHEMA} (found {found!r}); measure the recording again")
    try:
        measures = made()
        if not measures.gpus:
            raise ValueError("the measures have no GPU")
        for gpu in measures.gpus:
            check(gpu, len(measures.recordings))
        return measures
    except ValueError as error:
        raise RingscopeError(f"damaged measures: {error}; measure the recording again") from error


# Required keys of the dictionaries in a GPU's measures. Dictionaries that are not listed here may lack any key.
_KEYS: Final = {
    "ledger_ns": OWNERS,
    "busy_ns": CLASSES,
    "copies": ("h2d", "d2h", "p2p", "d2d"),
    "launch_latency_ns": ("p50", "p95"),
    "skew_ns": ("p50", "max"),
    "repeats": ("period_ns", "count"),
    "capture": ("window_ns", "span_ns", "ledger_ns"),
    "held_launches": ("gaps", "count", "idle_launch_ns", "bytes"),
    "graph_updates": ("count", "idle_launch_ns"),
    "owner_ns": KINDS_OF_TIME,
    "means": (*KINDS_OF_TIME, "window"),
    "bound_ns": BOUNDS,
    "input_copies": ("bytes", "busy_ns", "exposed_ns", "overlap"),
}
_KEYS_OF_EACH: Final = {
    "groups": ("count", "total_ns"),
    "hand_over_ns": ("count", "p50_ns"),
    "means": METRICS,
}


@dataclass(frozen=True, slots=True)
class _Capture:
    """The content of the field `capture`."""

    window_ns: tuple[int, int]
    span_ns: int
    ledger_ns: dict[str, int | None]


@dataclass(frozen=True, slots=True)
class _Host:
    """An entry of `host` in an idle gap or a break."""

    kind: str
    name: str
    ns: int


@dataclass(frozen=True, slots=True)
class _Idle(_Host):
    """An entry of `host_while_idle`."""

    share: float


@dataclass(frozen=True, slots=True)
class _Kind:
    """A value of the field `kinds` of collectives."""

    count: int | None
    busy_ns: int | None
    exposed_ns: int | None
    bytes: int | None = None
    dtype: str | None = None


@dataclass(frozen=True, slots=True)
class _Wait:
    """An entry of `host_waits`."""

    call: str | None
    within: str | None
    moves: str | None
    ns: int
    count: int


_ENTRIES: Final = {"host_while_idle": _Idle, "host": _Host, "host_waits": _Wait, "kinds": _Kind}


def check(gpu: GpuMeasures, recordings: int) -> None:
    """Raises ValueError if measures lack keys, or if their sums contradict each other. `recordings`: number of
    recordings."""
    if len(gpu.window_ns) != 2:
        raise ValueError(f"window_ns is {str(gpu.window_ns)[:60]}")
    parts: list[Any] = [gpu, gpu.collectives, *gpu.breaks, *gpu.idle_gaps]
    for part in parts:
        for name in _ENTRIES.keys() & {one.name for one in fields(part)}:
            held = getattr(part, name)
            for entry in held.values() if isinstance(held, dict) else held:
                typed.made(_ENTRIES[name], entry, texts=False)
    if gpu.capture is not None:
        typed.made(_Capture, gpu.capture, texts=False)
    between = [one for one in gpu.breaks if gpu.window == "steps" and one.end_ns <= gpu.window_ns[-1]]
    span_ns = gpu.span_ns + sum(one.end_ns - one.start_ns for one in between)
    for name, table in _tables(gpu):
        _require(name, table, _KEYS.get(name, ()))
        for inner in table.values() if name in _KEYS_OF_EACH else ():
            _require(name, inner, _KEYS_OF_EACH[name])
    if gpu.window_ns[1] - gpu.window_ns[0] != span_ns or gpu.span_ns <= 0:
        raise ValueError(f"window_ns is {str(gpu.window_ns)[:60]}, but span_ns is {gpu.span_ns}")
    for ledger_ns, length_ns in _ledgers(gpu):
        known = [ns for ns in ledger_ns.values() if ns is not None]
        if length_ns <= 0 or min(known, default=0) < 0 or sum(known) != length_ns:
            raise ValueError(f"a ledger adds up to {sum(known)} ns, but its time span is {length_ns} ns long")
    sampled = gpu.gpu_metrics
    if sampled and sampled.bound_ns and sum(sampled.bound_ns.values()) != gpu.ledger_ns["compute"]:
        raise ValueError(f"bound_ns adds up to {sum(sampled.bound_ns.values())} ns, which is not the ledger's compute")
    if gpu.steps.rows and gpu.steps.count != len(gpu.steps.rows):
        raise ValueError(f"it lists {len(gpu.steps.rows)} steps, but says that there are {gpu.steps.count}")
    if not gpu.recordings or not all(0 <= one < recordings for one in gpu.recordings):
        raise ValueError(f"a GPU refers to the recordings {str(gpu.recordings)[:60]}, but there are only {recordings}")


def _ledgers(gpu: GpuMeasures) -> Iterator[tuple[dict[str, int | None], int]]:
    """Each ledger, and the ns that its entries must add up to."""
    yield gpu.ledger_ns, gpu.span_ns
    if gpu.capture is not None:
        yield gpu.capture["ledger_ns"], gpu.capture["span_ns"]
    parts: list[Any] = [*gpu.steps.rows, *gpu.breaks]
    for part in parts:
        yield part.ledger_ns, part.end_ns - part.start_ns


def _require(name: str, table: Any, keys: tuple[str, ...]) -> None:
    missing = [key for key in keys if key not in table]
    if missing:
        raise ValueError(f"{name} has no key {missing[0]}")


def _tables(value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (field name, dictionary) for each dictionary in a dataclass, also in nested dataclasses."""
    for one in fields(value):
        inner = getattr(value, one.name)
        if isinstance(inner, dict):
            yield one.name, inner
            yield from (("ledger_ns", inner[key]) for key in ("ledger_ns",) if key in inner)
        for each in inner if isinstance(inner, list) else inner.values() if isinstance(inner, dict) else [inner]:
            if is_dataclass(each):
                yield from _tables(each)


def dumps(measures: Measures, *, per_step: bool = True) -> str:
    """The measures as indented JSON text that ends in a newline. Raises ValueError for NaN."""
    return json.dumps(to_json(measures, per_step=per_step), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


@dataclass(frozen=True, slots=True)
class _Head:
    schema: Any = None


def load(path: Path) -> Measures:
    """Load measures from a file. Raises RingscopeError if the file holds none, or damaged ones."""
    try:
        text = bytes_of(path)
        return _measures(typed.decoded(_Head, text).schema, lambda: typed.decoded(Measures, text))
    except (OSError, ValueError) as error:
        raise RingscopeError(f"{path}: cannot be read as measures ({error}); measure the recording again") from error
    except RingscopeError as error:
        raise RingscopeError(f"{path}: {error}") from error


def plain(value: Any) -> Any:
    """Convert dataclasses to dictionaries and tuples to lists, recursively, for `json.dumps`."""
    if type(value) in _PLAIN:  # first, since most values are of these types
        return value
    if names := _names(type(value)):  # type: ignore[arg-type]
        return {
            name: _text(getattr(value, name)) if name in _AS_TEXT else plain(getattr(value, name)) for name in names
        }
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value


@cache
def _names(kind: type) -> tuple[str, ...]:
    """Field names of a dataclass; () for other types."""
    return tuple(one.name for one in fields(kind)) if is_dataclass(kind) else ()


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)
