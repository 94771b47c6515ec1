"""Move idle time that was waiting for other ranks from the cause in the GPU's own recording to `idle_peers`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from ..ground import intervals
from ..ground.intervals import Intervals
from ..ledger.enqueued import BY_HOROVOD
from ..ledger.peers import Settled
from ..ledger.window import Window
from ..metrics import places
from ..model.measures import OWNERS, GpuMeasures
from ..model.steps import Break, IdleGap, StepRow
from .one_recording import Measured

PEERS = "idle_peers"
Ledger = Mapping[str, "int | None"]
Part = TypeVar("Part", StepRow, Break)
Moved = Callable[[Ledger, Mapping[str, int]], "dict[str, int | None]"]  # (ledger, ns to take per owner) -> ledger


def with_peers(of: Measured, settled: Settled, window: Window) -> GpuMeasures:
    """The measures of a GPU, with its waits for other ranks moved to idle_peers. `window`: the window of the measures.
    idle_peers is None if the GPU may have waited, and no other rank's recording shows how long."""
    own = of.measures
    if own.ledger_ns[PEERS] is None:
        return own  # the causes are not known, or a version without idle_peers measured it
    peers, untold_ns = window.part(settled.peers), window.part(settled.untold).total
    moved: Moved = partial(_moved, unknown=untold_ns > 0 and settled.nothing_known)
    taken = {OWNERS[owner]: times for owner, times in settled.of_owner.items()}
    gaps = _batch_gaps(own.steps.rows, window)
    found = replace(
        own,
        ledger_ns=moved(own.ledger_ns, {owner: window.part(times).total for owner, times in taken.items()}),
        steps=replace(own.steps, rows=_each(own.steps.rows, taken, moved)),
        breaks=_each(own.breaks, taken, moved),
        collectives=replace(own.collectives, peers_or_launch_ns=untold_ns),
    )
    if own.batch_gap_ledger_ns is not None:
        in_gaps = {owner: intervals.intersect(times, gaps).total for owner, times in taken.items()}
        known = moved(own.batch_gap_ledger_ns, in_gaps)
        found.batch_gap_ledger_ns = {owner: ns for owner, ns in known.items() if ns is not None}
    if own.capture is not None:
        in_all = {owner: times.total for owner, times in taken.items()}
        found.capture = {**own.capture, "ledger_ns": moved(own.capture["ledger_ns"], in_all)}
    found.idle_gaps = [replace(one, causes_ns=_causes(one, taken)) for one in own.idle_gaps]
    found.host_waits = _host_waits(own, (own.ledger_ns["idle_sync"] or 0) - (found.ledger_ns["idle_sync"] or 0))
    negotiated = _negotiated(of, settled)
    if own.collectives.negotiation_ns is not None:
        found.collectives.negotiation_ns = window.part(negotiated).total
    for one in found.breaks:
        one.negotiation_ns = int(intervals.total_in(negotiated, one.start_ns, one.end_ns))
    found.rest = None if any(times.total for times in taken.values()) else own.rest
    if own.places is not None:
        found.places = places.with_peers(own.places, of.meanwhile, peers)
    for name, times in of.meanwhile.items():
        if places.is_movable(name):
            continue
        setattr(found, name, getattr(own, name) - intervals.intersect(times, peers).total)
    return found


def _moved(ledger_ns: Ledger, taken: Mapping[str, int], unknown: bool) -> dict[str, int | None]:
    found = dict(ledger_ns)
    for owner, ns in taken.items():
        found[owner] = (found[owner] or 0) - ns
    found[PEERS] = None if unknown else sum(taken.values())
    return found


def _each(parts: Sequence[Part], taken: Mapping[str, Intervals], moved: Moved) -> list[Part]:
    """The rows or breaks, in whose ledgers the part of `taken` within their times is moved to idle_peers."""
    start, end = np.array([(one.start_ns, one.end_ns) for one in parts], np.int64).reshape(-1, 2).T
    ns = {owner: intervals.total_in(times, start, end).tolist() for owner, times in taken.items()}
    return [
        replace(one, ledger_ns=moved(one.ledger_ns, {owner: values[place] for owner, values in ns.items()}))
        for place, one in enumerate(parts)
    ]


def _causes(gap: IdleGap, taken: Mapping[str, Intervals]) -> dict[str, int]:
    """owner -> ns of an idle gap after the move, the longest first."""
    ns = dict(gap.causes_ns)
    for owner, times in taken.items():
        moved = int(intervals.total_in(times, gap.start_ns, gap.start_ns + gap.ns))
        ns[owner] = ns.get(owner, 0) - moved
        ns[PEERS] = ns.get(PEERS, 0) + moved
    return dict(sorted(((owner, left) for owner, left in ns.items() if left), key=lambda one: -one[1]))


def _host_waits(own: GpuMeasures, taken_ns: int) -> list[dict[str, Any]]:
    """The host waits, with `taken_ns` subtracted from the longest first, so that they still add up to idle_sync."""
    found = [dict(entry) for entry in own.host_waits]
    for entry in found:
        less = min(taken_ns, entry["ns"])
        entry["ns"], taken_ns = entry["ns"] - less, taken_ns - less
        entry["own_ns"] = min(entry.get("own_ns", 0), entry["ns"])
    return sorted(
        (entry for entry in found if entry["ns"] or entry.get("launch_ns")), key=lambda entry: -int(entry["ns"])
    )


def _batch_gaps(rows: Sequence[StepRow], window: Window) -> Intervals:
    known = [(row.start_ns - row.batch_gap_ns, row.start_ns) for row in rows if row.batch_gap_ns is not None]
    return window.part(intervals.union(*np.array(known, np.int64).reshape(-1, 2).T))


def _negotiated(of: Measured, settled: Settled) -> Intervals:
    """Times from the enqueueing of tensors with Horovod to the launch of their exchange (idle_peers or idle_launch)."""
    launch = (of.waits.source == BY_HOROVOD) & (of.waits.owner == OWNERS.index("idle_launch"))
    return intervals.merge(settled.peers, of.waits.at(np.flatnonzero(launch)).spans)
