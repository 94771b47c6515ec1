"""Kernels of a GPU: count, duration, launch latency and kind (docs/reference/measures.md, "Kernels")."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..gpus.collective_kernels import is_collective
from ..gpus.operations import GRAPHS, KERNELS, Gpu, Ints, Operations, narrow
from ..ground import intervals
from ..ground.intervals import Intervals
from ..ground.stats import nearest_rank, nearest_ranks
from ..ledger.window import Window
from ..model.analysed import Ownership
from ..model.names import fitting
from ..model.operations import Kernels, NamedKernel
from ..steps.found import FoundSteps
from . import recurrence, unfilled
from .owned import owned_ns

if TYPE_CHECKING:
    import pandas as pd

SHORT_NS = 5_000
TENTHS = 10
TOP = 100  # number of kernels kept, enough to compare recordings; views show the first ten
_BLOCK = 1 << 17  # kernels processed at a time, so that they fit into the CPU's cache
TORCH_COMPILED = r"triton_(?:poi|red|per)_fused"
# A kernel belongs to the first group whose pattern its name matches. The patterns are from the kernel names of
# TensorFlow, XLA, cuDNN, cuBLAS and PyTorch.
GROUPS = {
    "collective": r"(?!)",  # matches nothing: gpus.collective_kernels finds collectives before
    "batch_norm": r"(?i)batch_?norm|\bbn_(?:fw|bw)|bnorm",
    "optimiser": r"(?i)optimi[sz]er|Apply(?:Adam|Momentum|Rms|Gradient|Ada|Lamb|Ftrl)|_?adam|multi_tensor_apply",
    # kernels that a compiler fused: XLA's, except those fused into a matrix product, and torch.compile's
    "fused": rf"(?<!gemm_)fusion|{TORCH_COMPILED}",
    "rnn_cell": r"(?i)lstm|\bgru|rnn",
    # embedding look-ups and the summing of their gradients, which no compiler fuses into other kernels
    "embedding": r"(?i)(?<!rotary_)(?<!rope_)embedding|index_?select|gather_kernel|indexing_backward"
    r"|bounds_check_indices|permute\w{0,40}_sparse|sparse_features",
    # sorting, searching and counting
    "sort": r"(?i)sort|top_?k|\bunique|scan|histogram|DeviceSelect|searchsorted|compact_",
    "concatenation": r"(?i)CatArray|concat|\bsplit_?(?:kernel|v)|chunk_cat",
    "convolution_matmul": r"(?i)gemm|gemv|Cijk_|conv(?!er(?:sion|t))|[wd]grad|fprop|cutlass|xmma|nvjet|winograd|cublas"
    r"|im2col|flash_(?:fwd|bwd)|fft|dot_kernel|splitK",
    "reduction": r"(?i)reduc|softmax|BiasGrad|CleanupSegments|argm(?:ax|in)|layer_?norm|\bcub::|norm",
    # activations in a recurrent cell that is not cuDNN's
    "rnn_gates": r"(?i)sigmoid|tanh",
    "elementwise": r"(?i)element_?wise|EigenMetaKernel|_GPU_DT_|Bias(?:NHWC|NCHW)|fusion|op_tensor|vectorized|pointwise"
    r"|ScalarSqrt|fill",
    "other": r"",
}


# Groups that a compiler could fuse into other kernels: element-wise work, reductions and normalisation.
UNFUSED = ("elementwise", "reduction", "batch_norm", "rnn_gates")


def measure(gpu: Gpu, steps: FoundSteps, window: Window, ownership: Ownership) -> Kernels:
    """The kernels that start in the window; percentiles are observed values (nearest rank)."""
    inside = window.starting(gpu.operations)
    # Copy only the columns that are needed: most operations are kernels, so a copy of all columns would be large.
    rows = np.flatnonzero(inside.table == KERNELS).astype(np.int32)
    code, lasted = inside.name[rows], _lasted(inside, rows)
    count, total = (_sums(code, each, len(gpu.names)) for each in (np.broadcast_to(np.int8(1), len(code)), lasted))
    group = _groups(gpu.names)
    unfused = np.isin(group, [list(GROUPS).index(one) for one in UNFUSED])
    return Kernels(
        count=len(rows),
        graph_launches=int((inside.table == GRAPHS).sum()),
        graph_nodes=inside.graph_nodes(),
        per_step=median_per_step(
            gpu.operations, np.flatnonzero(gpu.operations.table == KERNELS).astype(np.int32), steps
        ),
        distinct=int((count > 0).sum()),
        median_ns=nearest_rank(lasted, 50) if len(rows) else None,
        share_under_5us=float((lasted < SHORT_NS).mean()) if len(rows) else None,
        launch_latency_ns=_launch_latency(inside, rows),
        top=_top(gpu.names, count, total, _owned(gpu, window, ownership)),
        groups=_by_group(group, count, total),
        short_elementwise_runs=_short_runs(inside.stream[rows], group[code], lasted),
        under_5us_ns=_covered(inside, rows, lasted < SHORT_NS) if len(rows) else None,
        unfused_ns=_covered(inside, rows, unfused[code]),
        recurrent_cells=recurrence.cells(gpu.names, code),
        in_tenths=in_tenths(inside, window),
        unfilled=unfilled.measure(gpu, window),
    )


def in_tenths(inside: Operations, window: Window, without: Intervals = intervals.EMPTY) -> list[int]:
    """The number of kernels and graph launches that start in each tenth of the window, after `without` is cut out of
    the window.

    `without`: times in which no kernel starts."""
    edges = np.linspace(window.start_ns, window.end_ns - without.total, TENTHS + 1).astype(np.int64)
    gone = np.append(0, np.cumsum(without.end - without.start))
    found = np.zeros(TENTHS, np.int64)
    for block in _blocks(len(inside)):
        rows = inside.start_ns[block][np.isin(inside.table[block], (KERNELS, GRAPHS))]
        rows = rows - gone[np.searchsorted(without.end, rows, side="right")]
        found += np.bincount(np.searchsorted(edges[1:-1], rows, side="right"), minlength=TENTHS)
    return [int(count) for count in found]


def _blocks(count: int) -> Iterator[slice]:
    return (slice(first, first + _BLOCK) for first in range(0, count, _BLOCK))


def _lasted(operations: Operations, rows: NDArray[np.int32]) -> Ints:
    """Durations in ns, as int32 if they fit, else int64."""
    found = np.empty(len(rows), np.int32)
    for block in _blocks(len(rows)):
        lasted = operations.end_ns[rows[block]] - operations.start_ns[rows[block]]
        if lasted.max() > np.iinfo(np.int32).max:
            return operations.end_ns[rows] - operations.start_ns[rows]
        found[block] = lasted
    return found


def _covered(operations: Operations, rows: NDArray[np.int32], chosen: NDArray[np.bool_]) -> int:
    """ns in which at least one of the chosen rows ran; since kernels of several streams overlap, a sum would be too
    much."""
    some = (rows[block][chosen[block]] for block in _blocks(len(rows)))
    return intervals.covered((operations.start_ns[each], operations.end_ns[each]) for each in some)


def _groups(names: pd.Index) -> NDArray[np.int8]:
    """The index in GROUPS of each name's group."""
    group = np.where(is_collective(names), list(GROUPS).index("collective"), -1).astype(np.int8)
    for number, pattern in enumerate(GROUPS.values()):
        group[(group < 0) & fitting(names, pattern)] = number
    return group


def of_group(names: pd.Index, group: str) -> NDArray[np.bool_]:
    """True for each name that belongs to the group."""
    found: NDArray[np.bool_] = _groups(names) == list(GROUPS).index(group)
    return found


def is_unfused(name: str) -> bool:
    """True if the kernel of this name belongs to one of the groups UNFUSED."""
    return next(group for group, pattern in GROUPS.items() if re.search(pattern, name)) in UNFUSED


def median_per_step(operations: Operations, rows: Ints, steps: FoundSteps) -> int | None:
    """Median of `per_step` over the measured steps; None if there are none."""
    return nearest_rank(per_step(operations, rows, steps), 50) if steps.count else None


def per_step(operations: Operations, rows: Ints, steps: FoundSteps) -> NDArray[np.int64]:
    """The number of these operations in each measured step, int64[steps].

    An operation belongs to the step in which it starts or, if steps overlap on the GPU and the launch calls are known,
    to the step that launched it."""
    start_ns = operations.start_ns[rows]
    if steps.launched is None:
        return _between(start_ns, steps.start_ns, steps.end_ns)
    known, called_ns, _ = operations.calls(rows)
    known = known & (operations.process[rows] == steps.launched.process)
    calls = np.sort(called_ns[known])
    # A call at the very start of a mark belongs to the mark before it (`marks.owners`), hence the + 1.
    by_call = _between(calls, steps.launched.after_ns + 1, steps.launched.until_ns + 1)
    # Leave out kernels before all known launches on their stream: they were launched before the recording began.
    first_ns = np.full(int(operations.stream.max(initial=0)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first_ns, operations.stream[rows][known], start_ns[known])
    others = ~known & (start_ns >= first_ns[operations.stream[rows]])
    return by_call + _between(start_ns[others], steps.start_ns, steps.end_ns)


def _between(times_ns: NDArray[np.int64], first: NDArray[np.int64], after: NDArray[np.int64]) -> NDArray[np.int64]:
    found: NDArray[np.int64] = np.searchsorted(times_ns, after) - np.searchsorted(times_ns, first)
    return found


def _launch_latency(operations: Operations, rows: NDArray[np.int32]) -> dict[str, int] | None:
    """Percentiles of the ns from the end of a launch call to its kernel's start. Kernels that start before the call
    returns are left out; None if no kernel remains."""
    waited: list[Ints] = [np.empty(0, np.int8)]
    for block in _blocks(len(rows)):
        kernels = rows[block]
        launched, _, call_end_ns = operations.calls(kernels)
        since = (operations.start_ns[kernels] - call_end_ns)[launched]
        waited.append(narrow(since[since > 0]))
    all_waited = np.concatenate(waited)
    if not len(all_waited):
        return None
    del waited
    p50, p95 = nearest_ranks(all_waited, 50, 95)
    return {"p50": p50, "p95": p95}


def _owned(gpu: Gpu, window: Window, ownership: Ownership) -> NDArray[np.int64]:
    """ns of the ledger that kernels of each name own, int64[names]."""
    owned = np.zeros(len(gpu.names), np.int64)
    for rows, ns in owned_ns(gpu.operations, ownership, window):
        kernels = gpu.operations.table[rows] == KERNELS
        owned += _sums(gpu.operations.name[rows[kernels]], ns[kernels], len(owned))
    return owned


def _top(
    names: pd.Index, count: NDArray[np.int64], total: NDArray[np.int64], owned: NDArray[np.int64]
) -> list[NamedKernel]:
    order = np.argsort(-total, kind="stable")[:TOP]
    return [NamedKernel(str(names[at]), int(count[at]), int(total[at]), int(owned[at])) for at in order if count[at]]


def _sums(code: Ints, values: Ints, length: int) -> NDArray[np.int64]:
    """Sums of the values of each code, int64[length]."""
    found = np.zeros(length, np.int64)
    for block in _blocks(len(code)):
        found += intervals.summed(values[block], code[block], length)
    return found


def _by_group(group: NDArray[np.int8], count: NDArray[np.int64], total: NDArray[np.int64]) -> dict[str, dict[str, int]]:
    counts, totals = _sums(group, count, len(GROUPS)), _sums(group, total, len(GROUPS))
    return {name: {"count": int(counts[at]), "total_ns": int(totals[at])} for at, name in enumerate(GROUPS)}


def _short_runs(stream: Ints, group: NDArray[np.int8], lasted: Ints) -> dict[str, int]:
    """Measures of two or more element-wise kernels under 5 µs in a row on one stream, which could be fused."""
    order = np.argsort(stream, kind="stable").astype(np.int32)
    short = ((group == list(GROUPS).index("elementwise")) & (lasted < SHORT_NS))[order]
    stream = stream[order]
    same = short[1:] & short[:-1] & (stream[1:] == stream[:-1])
    in_run = (np.append(same, False) | np.append(False, same))[: len(short)]
    return {
        "runs": int(same[:1].sum() + (same[1:] & ~same[:-1]).sum()),
        "kernels": int(in_run.sum()),
        "total_ns": int(lasted[order[in_run]].sum()),
    }
