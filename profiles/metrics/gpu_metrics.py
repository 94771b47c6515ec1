"""Sampled hardware counters of a GPU, averaged per owner in its ledger (docs/reference/measures.md, "GPU metrics").

A sample is a mean over its period, in which the GPU may have had several owners. So an owner's mean of a counter
weights each sample by the time that the owner had in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..gpus.operations import Gpu
from ..ground import intervals
from ..ledger import ownership as ledger
from ..ledger.account import Account
from ..model.gpu_metrics import BOUNDS, KINDS_OF_TIME, METRICS, Energy, GpuMetrics
from ..model.measures import CLASSES
from ..model.timeline import Timeline

Int64s = NDArray[np.int64]

# From this percentage of a peak on, work is bound by that peak; below, by latency. Nsight Compute's speed-of-light
# rule, too, says that less than 60 % of both peaks typically indicates latency issues.
BOUND: Final = 60
_LEAST: Final = 10  # if compute has less than this percentage of a sample, counters in whole percent are too coarse
_MIXED: Final = 90  # if compute has less than this percentage of a sample, the sample describes other time as well
_BLOCK: Final = 1 << 16  # samples processed at a time
_FARTHEST: Final = 100  # counters are shifted by up to this many samples to see whether they fit the ledger better
_BETTER: Final = 0.2  # a shift must raise the correlation with the ledger by this to be believed


def measure(
    timelines: Sequence[Timeline], shift_ns: Sequence[int], gpu: Gpu, steps: int, books: Account
) -> GpuMetrics | None:
    """Counters and energy of a GPU. steps: the number of steps in the window.

    None if the recordings have neither counters nor power of any GPU."""
    origin = shift_ns[gpu.places[0][0]]
    if not any(len(timelines[index].gpu_metrics) or len(timelines[index].power) for index, _ in gpu.places):
        return None
    found = [
        (_of(timelines[index].gpu_metrics, device), _of(timelines[index].power, device), shift_ns[index] - origin)
        for index, device in gpu.places
    ]
    samples, shift = next(((one, by) for one, _, by in found if len(one)), (found[0][0], 0))
    power, power_shift = next(((one, by) for _, one, by in found if len(one)), (found[0][1], 0))
    measured = _counters(samples, shift, books)
    measured.energy, measured.energy_unknown = _energy(power, power_shift, steps, books)
    if not len(power) and any((timelines[index].power["device"] < 0).any() for index, _ in gpu.places):
        measured.energy_unknown = "the recording does not say to which GPU its readings of power belong"
    return measured


def _of(table: pd.DataFrame, device: int) -> pd.DataFrame:
    return table[(table["device"] == device).to_numpy()]


def _counters(samples: pd.DataFrame, shift: int, books: Account) -> GpuMetrics:
    window = books.window
    at = samples["at_ns"].to_numpy() + shift
    lasts = samples["lasts_ns"].to_numpy()
    inside = np.flatnonzero((at + lasts > window.start_ns) & (at < window.end_ns) & (lasts > 0))
    values = {key: samples[key].to_numpy()[inside] for key in METRICS}
    start, end = at[inside], at[inside] + lasts[inside]
    sums = {key: np.zeros((2, len(KINDS_OF_TIME)), np.int64) for key in METRICS}  # sums of percent x ns, and of ns
    owner_ns = np.zeros(len(KINDS_OF_TIME), np.int64)
    bound = dict.fromkeys(BOUNDS, 0)
    mixed = off_by = 0
    for first in range(0, len(inside), _BLOCK):
        block = slice(first, first + _BLOCK)
        ns = _by_kind(books, start[block], end[block])
        owner_ns += ns.sum(axis=1)
        part = {key: column[block].astype(np.int64) for key, column in values.items()}
        for key, column in part.items():
            known = column >= 0
            sums[key] += np.stack((ns[:, known] @ column[known], ns[:, known].sum(axis=1)))
        told, held = _bound(ns, part)
        for name, each in told.items():
            bound[name] += each
        mixed += held
        if not first:
            off_by = _off_by(ns, part)
    means = {kind: {key: _mean(*sums[key][:, place]) for key in METRICS} for place, kind in enumerate(KINDS_OF_TIME)}
    means["window"] = {key: _mean(*sums[key].sum(axis=1)) for key in METRICS}
    unknown = _unknown(len(samples), len(inside), means["window"], books)
    return GpuMetrics(
        period_ns=int(np.median(lasts)) if len(lasts) > 1 else None,
        samples=len(inside),
        sampled_ns=int(owner_ns.sum()),
        owner_ns=dict(zip(KINDS_OF_TIME, owner_ns.tolist(), strict=True)),
        means=means,
        bound_ns=None if unknown else _checked(bound, books),
        bound_unknown=unknown,
        mixed_ns=0 if unknown else mixed,
        off_by=off_by,
        energy=None,
        energy_unknown=None,
    )


def _by_kind(books: Account, start: Int64s, end: Int64s) -> Int64s:
    """ns inside the window of each kind of time in each sample, int64[kinds of time, samples]."""
    ns = ledger.per_bin(books.ownership, start, end)
    found = np.zeros((len(KINDS_OF_TIME), len(start)), np.int64)
    for owner, each in ns.items():
        found[KINDS_OF_TIME.index(_kind(owner))] += each
    return found


def _kind(owner: str) -> str:
    if owner in KINDS_OF_TIME:
        return owner
    return "copy" if owner in CLASSES else "idle"


def _mean(percent_ns: int, ns: int) -> float | None:
    return float(percent_ns) / float(ns) / 100 if ns else None


def _unknown(recorded: int, inside: int, means: dict[str, float | None], books: Account) -> str | None:
    """The reason why the bound of compute is unknown; None if it is known."""
    if books.ledger_ns["compute"] is None:
        return "the recording has no kernels"
    if not recorded:
        return "the recording has no GPU metrics of this GPU"
    if not inside:
        return "no sample of the GPU metrics lies in the window"
    named = {"tensor_active": "Tensor Active", "dram_read": "DRAM Read", "dram_write": "DRAM Write"}
    lacking = [name for key, name in named.items() if means[key] is None]
    return f"the recording's set of GPU metrics has no {', '.join(lacking)}" if lacking else None


def _bound(ns: Int64s, values: dict[str, Int64s]) -> tuple[dict[str, int], int]:
    """ns of compute by its bound (tensor, memory or latency), and ns of compute in samples that hold other time as
    well. Only compute uses tensor cores, so their activity is divided by the share of compute in the sample. All work
    uses memory, so memory throughput is divided by the share of time in which anything ran. If compute is a small part
    of a sample, the sample counts only if one percent more or less would not change the bound."""
    compute = ns[0]
    whole = ns.sum(axis=0)
    tensor, dram = values["tensor_active"], values["dram_read"] + values["dram_write"]
    known = (tensor >= 0) & (values["dram_read"] >= 0) & (values["dram_write"] >= 0)
    rows = np.flatnonzero(known & (compute > 0))
    compute, whole, busy = compute[rows], whole[rows], ns[:3].sum(axis=0)[rows]
    coarse = 100 * compute < _LEAST * whole
    of_tensor, of_dram = np.minimum(tensor[rows] * whole / compute, 100), np.minimum(dram[rows] * whole / busy, 100)
    told = ~coarse | (_certain(of_tensor, whole / compute) & _certain(of_dram, whole / busy))
    by_tensor = told & (of_tensor >= BOUND) & (of_tensor >= of_dram)
    by_memory = told & (of_dram >= BOUND) & ~by_tensor
    parts = {"tensor": by_tensor, "memory": by_memory, "latency": told & ~by_tensor & ~by_memory}
    mixed = int(compute[told & (100 * compute < _MIXED * whole)].sum())
    return {name: int(compute[which].sum()) for name, which in parts.items()}, mixed


def _certain(percent: NDArray[np.float64], by: NDArray[np.float64]) -> NDArray[np.bool_]:
    """True where a percentage stays on the same side of BOUND if it is off by `by`."""
    sure: NDArray[np.bool_] = (percent - by >= BOUND) | (percent + by < BOUND)
    return sure


def _checked(bound: dict[str, int], books: Account) -> dict[str, int]:
    """`bound`, with the ns of compute that no sample covers. Raises AssertionError if samples cover more compute than
    the ledger has."""
    rest = (books.ledger_ns["compute"] or 0) - sum(bound.values())
    if rest < 0:
        raise AssertionError(f"the samples of GPU metrics cover {-rest} ns of compute more than the ledger has")
    return {**bound, "unsampled": rest}


def _off_by(ns: Int64s, values: dict[str, Int64s]) -> int:
    """The number of samples by which the counters lag the ledger; 0 unless a shift makes them fit clearly better."""
    active = values["gr_active"] if (values["gr_active"] >= 0).any() else values["sm_active"]
    whole = ns.sum(axis=0)
    known = np.flatnonzero((active >= 0) & (whole > 0))
    # In a short recording the shifts are limited, so that most samples are still compared.
    far = min(_FARTHEST, len(known) // 10)
    if far < 2:
        return 0
    shown, busy = active[known] / 100, 1 - ns[3][known] / whole[known]
    middle = busy[far : len(known) - far]
    agree = [_correlation(middle, shown[far + one : len(known) - far + one]) for one in range(-far, far + 1)]
    best = int(np.argmax(agree))
    return best - far if agree[best] >= agree[far] + _BETTER and abs(best - far) > 1 else 0


def _correlation(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    spread = float(first.std() * second.std())
    return float(((first - first.mean()) * (second - second.mean())).mean()) / spread if spread > 0 else 0.0


def _energy(power: pd.DataFrame, shift: int, steps: int, books: Account) -> tuple[Energy | None, str | None]:
    """Energy in the window, or the reason why it is unknown. A reading counts until the next, because NVML's value
    changes only some ten times a second."""
    if not len(power):
        return None, "the recording has no readings of this GPU's power"
    window = books.window
    at = power["at_ns"].to_numpy() + shift
    watts = power["watts"].to_numpy()
    last = int(np.median(np.diff(at))) if len(at) > 1 else 0
    until = np.append(at[1:], at[-1] + last)
    ns = intervals.total_in(window.part(intervals.span(window.start_ns, window.end_ns)), at, until)
    sampled = int(ns.sum())
    if not sampled:
        return None, "no reading of this GPU's power lies in the window"
    joules = float((watts * ns).sum()) / 1e9
    held = watts[ns > 0]
    energy = Energy(
        joules=joules,
        watts=joules / (sampled / 1e9),
        sampled_ns=sampled,
        joules_per_step=None,
        readings=1 + int((np.diff(held) != 0).sum()),
    )
    if steps and energy.covers(window.span_ns):
        energy.joules_per_step = joules / steps
    return energy, None
