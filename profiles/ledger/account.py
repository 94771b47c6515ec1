"""Account for one GPU's time: the owner of each ns of a window, and owners that the recording cannot show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..gpus.operations import COLLECTIVE, COMPUTE, DIRECTIONS, MEMSET, Gpu, Operations
from ..ground import intervals
from ..ground.intervals import Intervals
from ..model.analysed import Ownership
from ..model.measures import CAUSES, CLASSES, OWNERS
from ..model.timeline import Timeline
from ..steps import pauses
from ..steps.found import FoundSteps
from . import batch_ranges, causes, peers, untimed_bounds
from . import ownership as ledger
from .enqueued import HandedOver
from .input_copies import InputCopies, input_copies
from .peers import Waits
from .window import Window


@dataclass(frozen=True, slots=True)
class Account:
    """The ledger of one GPU, and the arrays that it was computed from.

    Entries of `ledger_ns` and `busy_ns` are None if the recording lacks the data for them; the other entries of a
    ledger sum to its window. All `operations` last longer than 0 ns; `inputs` has one entry for each of them. Breaks
    have the owner LEFT_OUT in `ownership`, and their real owners in `owned`. `breaks_ns` has one ledger per break.
    """

    operations: Operations
    window: Window
    ownership: Ownership
    owned: Ownership
    inputs: InputCopies | None
    batch: NDArray[np.int64] | None  # the N of each operation's `batch N` range, see batch_ranges.numbers
    input_marks: bool
    ledger_ns: dict[str, int | None]
    busy_ns: dict[str, int | None]
    breaks_ns: tuple[dict[str, int | None], ...]
    waits: Waits  # idle time that other ranks' recordings may move to `peers`; the ledger has the cause without them
    unrecorded: tuple[str, ...]  # tables that a recording of this GPU lacks
    capture_ns: tuple[int, int]  # start and end of the whole recording; its ledger follows
    capture_ledger_ns: dict[str, int | None]


def account(
    timelines: Sequence[Timeline],
    shift_ns: Sequence[int],
    gpu: Gpu,
    steps: FoundSteps,
    window: Window,
    handed: HandedOver | None = None,
) -> Account:
    """Divide the GPU's window among the owners. `handed`: when the GPU's collectives were enqueued; None: not known."""
    operations = gpu.operations.lasting()
    hosts = _hosts(timelines, shift_ns, gpu)
    ranges = any(causes.has_iterator_ranges(timelines[index], pid) for index, pid in gpu.processes)
    batch = batch_ranges.numbers(timelines, shift_ns, gpu, operations)
    inputs = input_copies(operations, steps, iterator_ranges=ranges, batch=batch)
    unrecorded = _unrecorded(timelines, gpu)
    unknown = _unknown_classes(unrecorded)
    causes_known = bool(operations.launched.any()) and not unrecorded and gpu.launches.told
    busy = ledger.busy(operations)
    busy_ns: dict[str, int | None] = {
        name: None if name in unknown else window.part(busy[kind]).total for kind, name in enumerate(CLASSES)
    }
    capture = _reach(operations, window, steps)
    edges, owners = ledger.parted(busy, *capture)
    del busy  # these arrays are as large as the starts and ends of all operations
    paused = _idle_in(pauses.covered(steps.pauses), edges, owners)
    feed = filled = intervals.EMPTY
    if causes_known:
        filled = intervals.subtract(_idle_in(untimed_bounds.may_run(gpu), edges, owners), paused)
        feed = causes.causes(operations, edges, owners, steps=steps, inputs=inputs, hosts=hosts)
    else:
        owners[owners == ledger.IDLE] = OWNERS.index("idle_unknown")
    taken = intervals.merge(paused, filled)
    given = {"idle_pause": paused, "idle_unknown": filled, "idle_feed": intervals.subtract(feed, taken)}
    waits = peers.none()
    if causes_known and handed is not None:
        waits = peers.waits(gpu, handed, edges, owners, intervals.merge(taken, feed))
    untold = set(unknown)
    untold.update(f"idle_{cause}" for cause in CAUSES if cause not in ("pause", "unknown") and not causes_known)
    if not all("marks" in timelines[index].known for index, _ in gpu.processes):
        untold.add("idle_pause")
    if (inputs is None or not inputs.certain) and not causes.waiting_is_marked(operations, hosts):
        untold.add("idle_feed")
    whole = _told(ledger.moved(edges, owners, given), untold, capture[1] - capture[0])
    last = int(steps.long.end_ns.max(initial=window.end_ns))  # a break may follow the last measured step
    owned = ledger.ownership(edges, owners, given, (window.start_ns, last))
    del edges, owners
    found = ledger.without(owned, window.left_out(last))
    ledger_ns = _told(ledger.totals(found), untold, window.span_ns)
    return Account(
        operations=operations,
        window=window,
        ownership=found,
        owned=owned,
        inputs=inputs,
        batch=batch,
        input_marks=any(host.input_marks is not None for host in hosts),
        ledger_ns=ledger_ns,
        busy_ns=busy_ns,
        breaks_ns=_of_breaks(owned, untold, steps),
        waits=waits,
        unrecorded=unrecorded,
        capture_ns=capture,
        capture_ledger_ns=whole,
    )


def _idle_in(times: Intervals, edges: NDArray[np.int64], owners: NDArray[np.int8]) -> Intervals:
    """The part of these times in which the GPU is idle."""
    if not len(times):
        return times
    idle = np.flatnonzero(owners == ledger.IDLE)
    return intervals.intersect(times, intervals.union(edges[idle], edges[idle + 1]))


def _told(totals: dict[str, int], untold: set[str], span_ns: int) -> dict[str, int | None]:
    """The totals, with None for owners in `untold`. Raises AssertionError if the others do not sum to `span_ns`."""
    found = {name: None if name in untold else ns for name, ns in totals.items()}
    if sum(ns for ns in found.values() if ns is not None) != span_ns:
        raise AssertionError(f"the ledger does not sum to the {span_ns} ns of its window")
    return found


def exposed_inputs(books: Account) -> tuple[Intervals, Intervals]:
    """Two sets of intervals in which an input copy owned the GPU: copies for the current or next step, and for later
    steps."""
    if books.inputs is None:
        return intervals.EMPTY, intervals.EMPTY
    owned = ledger.owned_by(books.ownership, CLASSES.index("h2d"))
    this, all_inputs = (
        intervals.union(books.operations.start_ns[which], books.operations.end_ns[which])
        for which in (books.inputs.this_step, books.inputs.is_input)
    )
    return intervals.intersect(owned, this), intervals.intersect(owned, intervals.subtract(all_inputs, this))


def _hosts(timelines: Sequence[Timeline], shift_ns: Sequence[int], gpu: Gpu) -> list[causes.HostCalls]:
    origin = shift_ns[gpu.places[0][0]]
    return [causes.host_calls(timelines[index], pid, shift_ns[index] - origin) for index, pid in gpu.processes]


def _of_breaks(owned: Ownership, untold: set[str], steps: FoundSteps) -> tuple[dict[str, int | None], ...]:
    ns = ledger.per_bin(owned, steps.long.start_ns, steps.long.end_ns)
    each = zip(*(values.tolist() for values in ns.values()), strict=True)
    lasted = (steps.long.end_ns - steps.long.start_ns).tolist()
    return tuple(_told(dict(zip(ns, row, strict=True)), untold, span) for row, span in zip(each, lasted, strict=True))


def _reach(operations: Operations, window: Window, steps: FoundSteps) -> tuple[int, int]:
    """Start and end in ns of the time to account for: wider than the window, so that idle spans at its edges are
    whole."""
    starts, ends = np.append(operations.start_ns[:1], window.start_ns), np.append(steps.long.end_ns, window.end_ns)
    return int(starts.min()), int(operations.end_ns.max(initial=ends.max()))


def _unrecorded(timelines: Sequence[Timeline], gpu: Gpu) -> tuple[str, ...]:
    known = [timelines[index].known for index, _ in gpu.places]
    missing = [table for table in ("copies", "memsets") if not all(table in tables for tables in known)]
    if not all("kernels" in tables or "graphs" in tables for tables in known):
        missing.insert(0, "kernels")
    return tuple(missing)


def _unknown_classes(unrecorded: tuple[str, ...]) -> set[str]:
    of_table = {"kernels": (COMPUTE, COLLECTIVE), "copies": DIRECTIONS, "memsets": (MEMSET,)}
    return {CLASSES[kind] for table in unrecorded for kind in of_table[table]}
