"""The kernels of a GPU as a sequence of names, cut into cycles: do they agree, and where does a step begin in them?"""

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

# Collectives that sum gradients; one kernel may stand for all kinds. Sends, broadcasts and gathers mark no step.
_REDUCTIONS = [list(KINDS).index(kind) for kind in ("all_reduce", "reduce_scatter")]
_FOR_ALL = r"Generic|mscclKernel_Sum"
# Two cycles agree when at least this share of the larger one's kernels is in both: order inside a step jitters.
AGREE = 0.98
_TRAINS = 0.7
# A pause is a batch gap above this share of the usual one.
_PAUSE_SHARE = 0.1
_MUCH_LARGER = 1.5
# A reference is the element-wise median of at most this many cycles, spread evenly: enough, and bounded in memory.
_SAMPLE = 512
_CELLS = 4_000_000  # cells of a (cycle x name) table handled at once


@dataclass(frozen=True, slots=True)
class KernelSequence:
    """Kernels and CUDA graph launches of one GPU, int64[n] ns, in order of start.

    `name`: int32[n], equal where the names are; negative: a launch of a whole graph. `reduces`: a collective that sums,
    as gradients are. `call_start_ns` counts where `launched`. `own_work`: when the GPU filled or copied its own memory,
    which is no pause though no kernel runs.
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
        """The latest end so far."""
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
    """Cycles [edges[i], edges[i + 1]) that hold the multiset of names that is usual among them: bool[cycles].

    Usual is the element-wise median of the cycles whose size is within 4 % of the median size.
    """
    size = np.diff(edges)
    usual_size = np.median(size)
    alike = np.flatnonzero(np.abs(size - usual_size) <= 0.04 * usual_size)
    if not len(alike):
        return np.zeros(len(size), np.bool_)
    sample = alike[np.linspace(0, len(alike) - 1, min(_SAMPLE, len(alike))).astype(np.int64)]
    lowest = int(name.min())
    names = int(name.max()) - lowest + 1
    counted = [np.bincount(name[edges[i] : edges[i + 1]] - lowest, minlength=names) for i in sample]
    usual = np.median(np.vstack(counted), axis=0).astype(np.int64)
    return _alike(name - lowest, edges, usual)


def _alike(dense: NDArray[np.int32], edges: Int64s, usual: Int64s) -> Flags:
    """Cycles that share at least `AGREE` of their kernels, or of the usual ones where those are more, with `usual`.

    dense: names as indices into `usual`, how often each is in a usual cycle.
    """
    size = np.diff(edges)
    shared = np.empty(len(size), np.int64)
    rows = max(1, _CELLS // len(usual))
    for first in range(0, len(size), rows):
        last = min(first + rows, len(size))
        cycle = np.repeat(np.arange(last - first), size[first:last])
        cells = np.bincount(
            cycle * len(usual) + dense[edges[first] : edges[last]], minlength=(last - first) * len(usual)
        )
        shared[first:last] = np.minimum(cells.reshape(last - first, len(usual)), usual).sum(axis=1)
    larger = np.maximum(size, usual.sum())
    agrees: Flags = shared >= AGREE * larger
    return agrees


def trains(name: NDArray[np.int32], edges: Int64s) -> Flags:
    """True for each cycle with at least 70 % of a full cycle's kernel names: an evaluation has no backward pass.

    A full cycle has almost as many distinct names as the richest, leaving one in ten aside.
    """
    size = np.diff(edges)
    lowest = int(name.min())
    holds = np.zeros((len(size), int(name.max()) - lowest + 1), np.bool_)
    holds[np.repeat(np.arange(len(size)), size), name[edges[0] : edges[-1]] - lowest] = True
    distinct = holds.sum(axis=1)
    full = distinct >= 0.9 * np.sort(distinct)[int(0.9 * (len(distinct) - 1))]
    usual = holds[full].mean(axis=0) >= 0.5
    enough: Flags = holds[:, usual].sum(axis=1) >= _TRAINS * usual.sum()
    return enough


@dataclass(frozen=True, slots=True)
class Boundaries:
    """Beginnings of the steps: ascending places in the sequence. quiet: after a pause of the GPU, the batch gap."""

    place: Int64s
    quiet: bool


def boundaries(sequence: KernelSequence, edges: Int64s) -> Boundaries:
    """The end of the longest kernel-free span of each cycle [edges[i], edges[i + 1]), held steady.

    Memsets and copies within the GPU do not shorten a span.

    Steady: as many kernels since the anchor as in most cycles. The anchor is the kernel name, once in a cycle, from
    which the most cycles agree on that number, the nearest of several; or the cycles' own edges. A cycle without a
    pause there is a changed one: then as many kernels before the next anchor as in most cycles, or its longest pause.
    A much larger cycle holds an evaluation, that belongs to the step before it: there the next anchor comes first.
    Where less than half of the cycles agree, or the pause is the GPU's own hand-over, there is no quiet span: the
    edges are returned.
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
        # The edges are the boundaries themselves, so the last one is too, where a good part of a step follows.
        place = np.append(place, edges[-1])
    return Boundaries(np.unique(place), quiet=True)


def _until_next_anchor(anchors: Int64s, longest: Int64s) -> Int64s:
    """Places of cuts, as many kernels before the next anchor as most cycles' longest pause is; `longest` if not
    known."""
    following = np.append(anchors[1:], -1)
    known = (following >= 0) & (anchors >= 0)
    if not known.any():
        return longest
    before, _ = _usual((following - longest)[known], len(anchors))
    return np.where(known & (following - before > anchors), following - before, longest)


def _longest(pause: Int64s, edges: Int64s) -> Int64s:
    """The kernel that ends the longest pause of each cycle, the first of several."""
    size = np.diff(edges)
    inside = pause[edges[0] : edges[-1]]
    cycle = np.repeat(np.arange(len(size)), size)
    most = np.maximum.reduceat(inside, edges[:-1] - edges[0])
    candidates = np.flatnonzero(inside == most[cycle])
    place = np.empty(len(size), np.int64)
    place[cycle[candidates[::-1]]] = candidates[::-1]  # the last written is the first of its cycle
    found: Int64s = place + edges[0]
    return found


def _steadiest_anchor(name: NDArray[np.int32], edges: Int64s, longest: Int64s) -> tuple[Int64s, int, float]:
    """Place of the anchor in each cycle (-1: not there once), the usual number of kernels from it to the longest
    pause, and the share of cycles in which it is that number."""
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
        # Since the anchor, not until it: kernels that need no batch change places with the first ones of a step.
        if offset > 0 and (share, -offset) > (best[2], -best[1]):
            best = (anchors, offset, share)
    return best


def _usual(offset: Int64s, cycles: int) -> tuple[int, float]:
    """The most frequent of the numbers (the smallest of several) and its share of the cycles."""
    values, counts = np.unique(offset, return_counts=True)
    most = int(counts.argmax())
    return int(values[most]), float(counts[most] / cycles)


def _once_a_cycle(inside: NDArray[np.int32], cycle: Int64s, cycles: int) -> list[Int64s]:
    """Places of each name that comes once in at least 9 of 10 cycles, in those cycles."""
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
