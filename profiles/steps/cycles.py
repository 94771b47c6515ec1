"""Cut a GPU's sequence of kernel names into cycles: test if the cycles agree, and find where steps begin in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..gpus.collective_kernels import KINDS, is_collective, kind_of
from ..gpus.operations import D2D, HAND_OVER_NS, MEMSET, Gpu
from ..ground import intervals
from ..ground.intervals import Intervals
from ..model.names import fitting

Int64s = NDArray[np.int64]
Flags = NDArray[np.bool_]

# Collectives that sum gradients, or kernels that may run any collective. Sends, broadcasts and gathers do not count
# as signs of a step.
_REDUCTIONS = [list(KINDS).index(kind) for kind in ("all_reduce", "reduce_scatter")]
_FOR_ALL = r"Generic|mscclKernel_Sum"
# Two cycles agree if at least this share of the larger one's kernels is in both; their order may differ.
AGREE = 0.98
_TRAINS = 0.7
# A pause longer than this share of the usual pause is a batch gap.
_PAUSE_SHARE = 0.1
_MUCH_LARGER = 1.5
# The usual cycle is computed from at most this many cycles, evenly spread, to bound the memory.
_SAMPLE = 512
_CELLS = 4_000_000  # entries of a (cycle x name) table handled at once


@dataclass(frozen=True, slots=True)
class KernelSequence:
    """Kernels and CUDA graph launches of one GPU, int64[n] ns, in order of start. A place is an index into these
    arrays.

    `name`: int32[n], a number per kernel name; negative: the launch of a whole graph. `reduces`: True for
    collectives that sum gradients. `call_start_ns` is valid where `launched`. `own_work`: times of memsets and
    copies within the GPU; they are no pause, although no kernel runs.
    """

    start_ns: Int64s
    end_ns: Int64s
    name: NDArray[np.int32]
    reduces: Flags
    process: NDArray[np.signedinteger[Any]]
    launched: Flags
    call_start_ns: Int64s
    own_work: Intervals

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def reach_ns(self) -> Int64s:
        """For each kernel, the latest end of the kernels up to it: int64[n] ns."""
        return np.maximum.accumulate(self.end_ns)


def kernel_sequence(gpu: Gpu) -> KernelSequence:
    """The kernels and graph launches of a GPU."""
    operations = gpu.operations
    chosen = operations.is_kernel
    reduction = np.isin(kind_of(gpu.names), _REDUCTIONS) | fitting(gpu.names, _FOR_ALL)
    own = np.isin(operations.kind, (D2D, MEMSET))
    return KernelSequence(
        start_ns=operations.start_ns[chosen],
        end_ns=operations.end_ns[chosen],
        name=operations.name[chosen].astype(np.int32),
        reduces=np.isin(operations.name[chosen], np.flatnonzero(is_collective(gpu.names) & reduction)),
        process=operations.process[chosen],
        launched=operations.launched[chosen],
        call_start_ns=operations.call_start_ns[chosen],
        own_work=intervals.union(operations.start_ns[own], operations.end_ns[own]),
    )


def agreement(name: NDArray[np.int32], edges: Int64s) -> Flags:
    """bool[cycles]: True if cycle [edges[i], edges[i + 1]) holds nearly as many kernels of each name as a usual cycle.
    The usual number of kernels of a name is the median over the cycles whose size is within 4 % of the median size."""
    size = np.diff(edges)
    usual_size = np.median(size)
    alike = np.flatnonzero(np.abs(size - usual_size) <= 0.04 * usual_size)
    if not len(alike):
        return np.zeros(len(size), np.bool_)
    sample = alike[np.linspace(0, len(alike) - 1, min(_SAMPLE, len(alike))).astype(np.int64)]
    lowest = int(name.min())
    names = int(name.max()) - lowest + 1
    sampled = np.concatenate([name[edges[i] : edges[i + 1]] for i in sample]) - lowest
    # A name that half of the sampled cycles do not hold has the median 0. So the tables of counts have few columns,
    # however many names there are.
    often = np.flatnonzero(2 * np.bincount(sampled, minlength=names) >= len(sample))
    place = np.full(names, -1, np.int32)
    place[often] = np.arange(len(often))
    usual = np.median(_counted(place[sampled], size[sample], len(often)), axis=0).astype(np.int64)
    return _alike(place[name - lowest], edges, usual)


def _counted(place: NDArray[np.int32], size: Int64s, columns: int) -> Int64s:
    """int64[cycles, columns]: how often each place occurs in successive cycles of these sizes; -1 is not counted."""
    cycle = np.repeat(np.arange(len(size)), size)[place >= 0]
    cells = np.bincount(cycle * columns + place[place >= 0], minlength=len(size) * columns)
    return cells.reshape(len(size), columns)


def _alike(place: NDArray[np.int32], edges: Int64s, usual: Int64s) -> Flags:
    """bool[cycles]: True if at least the share AGREE of the larger one's kernels is in both the cycle and the usual
    cycle. `usual`: how often each name occurs in a usual cycle. `place`: names as indices into `usual`, -1 for those
    that a usual cycle does not hold."""
    size = np.diff(edges)
    shared = np.empty(len(size), np.int64)
    rows = max(1, _CELLS // max(1, len(usual)))
    for first in range(0, len(size), rows):
        last = min(first + rows, len(size))
        cells = _counted(place[edges[first] : edges[last]], size[first:last], len(usual))
        shared[first:last] = np.minimum(cells, usual).sum(axis=1)
    larger = np.maximum(size, usual.sum())
    agrees: Flags = shared >= AGREE * larger
    return agrees


def trains(name: NDArray[np.int32], edges: Int64s) -> Flags:
    """True for each cycle with at least 70 % of a full cycle's kernel names. An evaluation has fewer: no backward pass.
    A cycle is full if it has at least 0.9 times as many distinct names as the 90th percentile of the cycles."""
    import pandas as pd

    size = np.diff(edges)
    lowest = int(name.min())
    names = int(name.max()) - lowest + 1
    held = pd.unique(np.repeat(np.arange(len(size)), size) * names + (name[edges[0] : edges[-1]] - lowest))
    cycle, which = np.divmod(held, names)  # one row for each name that a cycle holds
    distinct = np.bincount(cycle, minlength=len(size))
    full = distinct >= 0.9 * np.sort(distinct)[int(0.9 * (len(distinct) - 1))]
    usual = np.bincount(which[full[cycle]], minlength=names) >= 0.5 * full.sum()
    enough: Flags = np.bincount(cycle[usual[which]], minlength=len(size)) >= _TRAINS * usual.sum()
    return enough


@dataclass(frozen=True, slots=True)
class Boundaries:
    """The places of the first kernels of the steps, ascending. `quiet`: True if each follows a pause, the batch gap."""

    place: Int64s
    quiet: bool


def boundaries(sequence: KernelSequence, edges: Int64s) -> Boundaries:
    """Find where a step begins in each cycle [edges[i], edges[i + 1]): at the end of its longest pause between kernels.

    Memsets and copies within the GPU are subtracted from a pause.

    So that all steps begin alike, the boundary is put at the same number of kernels after an anchor in all cycles. An
    anchor is a kernel name that comes once in a cycle, or the cycle's edge. The anchor is chosen for which most cycles
    agree on the number, and among several the nearest. If a cycle has no pause there, its boundary is the usual number
    of kernels before the next anchor, or at its longest pause. In a much larger cycle, which holds an evaluation that
    belongs to the previous step, the next anchor is tried first.

    If no more than half of the cycles agree, or the pauses are as short as the GPU's own hand-over between kernels, the
    edges are returned and `quiet` is False.
    """
    pause = np.maximum(sequence.start_ns - np.append(sequence.start_ns[:1], sequence.reach_ns[:-1]), 0)
    long = np.flatnonzero(pause > HAND_OVER_NS)
    pause[long] -= intervals.total_in(sequence.own_work, sequence.start_ns[long] - pause[long], sequence.start_ns[long])
    longest = _longest(pause, edges)
    anchors, offset, share = _steadiest_anchor(sequence.name, edges, longest)
    if share <= 0.5:
        return Boundaries(edges[:-1], quiet=False)
    since = np.where(anchors >= 0, anchors + offset, longest)
    usual_pause = float(np.median(pause[since[since > 0]]))
    if usual_pause <= HAND_OVER_NS:
        return Boundaries(edges[:-1], quiet=False)
    quiet = pause > max(HAND_OVER_NS, _PAUSE_SHARE * usual_pause)
    until = _until_next_anchor(anchors, longest)
    size = np.diff(edges)
    first_choice = np.where((size > _MUCH_LARGER * np.median(size)) & quiet[until], until, since)
    place = np.select([quiet[first_choice], quiet[until], quiet[longest]], [first_choice, until, longest], since)
    if offset == 0 and quiet[edges[-1]] and 2 * (len(sequence) - edges[-1]) >= np.median(size):
        # Each edge is a boundary here, and so is the last edge if at least half a step of kernels follows.
        place = np.append(place, edges[-1])
    return Boundaries(np.unique(place), quiet=True)


def _until_next_anchor(anchors: Int64s, longest: Int64s) -> Int64s:
    """For each cycle, the place at the usual number of kernels before the next anchor; `longest` if that is not
    known."""
    following = np.append(anchors[1:], -1)
    known = (following >= 0) & (anchors >= 0)
    if not known.any():
        return longest
    before, _ = _usual((following - longest)[known], len(anchors))
    return np.where(known & (following - before > anchors), following - before, longest)


def _longest(pause: Int64s, edges: Int64s) -> Int64s:
    """For each cycle, the place of the kernel that ends its longest pause; the first one if several pauses are
    equal."""
    size = np.diff(edges)
    inside = pause[edges[0] : edges[-1]]
    cycle = np.repeat(np.arange(len(size)), size)
    most = np.maximum.reduceat(inside, edges[:-1] - edges[0])
    candidates = np.flatnonzero(inside == most[cycle])
    place = np.empty(len(size), np.int64)
    place[cycle[candidates[::-1]]] = candidates[::-1]  # the last value written is the first place of its cycle
    found: Int64s = place + edges[0]
    return found


def _steadiest_anchor(name: NDArray[np.int32], edges: Int64s, longest: Int64s) -> tuple[Int64s, int, float]:
    """Choose the anchor from which the longest pause is equally many kernels away in most cycles. Returns its place in
    each cycle (-1 unless it occurs exactly once), that number of kernels, and the share of cycles."""
    cycles = len(edges) - 1
    size = np.diff(edges)
    inside = name[edges[0] : edges[-1]]
    cycle = np.repeat(np.arange(cycles), size)
    best = (edges[:-1], *_usual(longest - edges[:-1], cycles))
    for places in _once_a_cycle(inside, cycle, cycles):
        anchors = np.full(cycles, -1, np.int64)
        anchors[cycle[places]] = places + edges[0]
        known = anchors >= 0
        offset, share = _usual(longest[known] - anchors[known], cycles)
        # The anchor must precede the pause: kernels that need no batch may swap places with the first ones of a step.
        if offset > 0 and (share, -offset) > (best[2], -best[1]):
            best = (anchors, offset, share)
    return best


def _usual(offset: Int64s, cycles: int) -> tuple[int, float]:
    """The most frequent number (of several the smallest), and the share of the cycles that have it."""
    values, counts = np.unique(offset, return_counts=True)
    most = int(counts.argmax())
    return int(values[most]), float(counts[most] / cycles)


def _once_a_cycle(inside: NDArray[np.int32], cycle: Int64s, cycles: int) -> list[Int64s]:
    """For each name that occurs exactly once in at least 90 % of the cycles: its indices into `inside`, one per
    cycle."""
    order = np.argsort(inside, kind="stable")
    _, first, counts = np.unique(inside[order], return_index=True, return_counts=True)
    found = []
    for at, count in zip(first, counts, strict=True):
        if not 0.9 * cycles <= count <= 2 * cycles:
            continue
        places = order[at : at + count]
        times = np.bincount(cycle[places], minlength=cycles)
        once = times[cycle[places]] == 1
        if once.sum() >= 0.9 * cycles:
            found.append(places[once])
    return found
