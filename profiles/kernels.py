"""Kernels of a GPU: how many, how long, how quickly they start, what they are (docs/measures.md, "Kernels")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .measures import Kernels, NamedKernel
from .operations import COLLECTIVE_NAME, TABLES, Gpu, Operations
from .steps import FoundSteps

if TYPE_CHECKING:
    import pandas as pd

SHORT_NS = 5_000
TOP = 10
KERNELS, GRAPHS = TABLES.index("kernels"), TABLES.index("graphs")
# The first that matches names the group. From the kernel names of TensorFlow, XLA, cuDNN, cuBLAS and PyTorch.
GROUPS = {
    "collective": COLLECTIVE_NAME,
    "batch_norm": r"(?i)batch_?norm|\bbn_(?:fw|bw)|bnorm",
    "optimiser": r"(?i)optimi[sz]er|Apply(?:Adam|Momentum|Rms|Gradient|Ada|Lamb|Ftrl)|_?adam|multi_tensor_apply",
    # XLA's own: what compiling has fused
    "fused": r"fusion",
    "rnn_cell": r"(?i)lstm|\bgru|rnn",
    "convolution_matmul": r"(?i)gemm|gemv|conv|[wd]grad|fprop|cutlass|xmma|nvjet|winograd|cublas|im2col"
    r"|flash_(?:fwd|bwd)|fft|dot_kernel|splitK",
    "reduction": r"(?i)reduc|softmax|BiasGrad|CleanupSegments|argm(?:ax|in)|layer_?norm|\bcub::|norm",
    # of a recurrent cell that is not cuDNN's
    "rnn_gates": r"(?i)sigmoid|tanh",
    "elementwise": r"(?i)element_?wise|EigenMetaKernel|_GPU_DT_|Bias(?:NHWC|NCHW)|fusion|op_tensor|vectorized|pointwise"
    r"|ScalarSqrt|fill",
    "other": r"",
}


def measure(gpu: Gpu, steps: FoundSteps, window: tuple[int, int]) -> Kernels:
    """The kernels that start in the window; percentiles are observed values (nearest rank)."""
    inside = gpu.operations.starting_in(window)
    kernels = inside.chosen(inside.table == KERNELS)
    lasted = kernels.end_ns - kernels.start_ns
    names, code = gpu.names, kernels.name
    group = _groups(names)
    return Kernels(
        count=len(kernels),
        graph_launches=int((inside.table == GRAPHS).sum()),
        graph_nodes=kernels.graph_nodes(),
        per_step=_per_step(kernels, steps),
        distinct=int((np.bincount(code) > 0).sum()),
        median_ns=nearest_rank(lasted, 50) if len(kernels) else None,
        share_under_5us=float((lasted < SHORT_NS).mean()) if len(kernels) else None,
        launch_latency_ns=_launch_latency(kernels),
        top=_top(names, code, lasted),
        groups=_by_group(group[code], lasted),
        short_elementwise_runs=_short_runs(kernels, group[code], lasted),
    )


def nearest_rank(values: NDArray[np.int64], percent: int) -> int:
    """The smallest observed value that at least `percent` % of the values do not exceed. Needs a value."""
    return nearest_ranks(values, percent)[0]


def nearest_ranks(values: NDArray[np.int64], *percents: int) -> list[int]:
    """The same for several percentages."""
    places = [max(-(-percent * len(values) // 100), 1) - 1 for percent in percents]
    found: list[int] = np.partition(values, places)[places].tolist()
    return found


def _groups(names: pd.Index) -> NDArray[np.int64]:
    group = np.full(len(names), -1, np.int64)
    for number, pattern in enumerate(GROUPS.values()):
        matches = np.asarray(names.str.contains(pattern, regex=True), dtype=bool)
        group[(group < 0) & matches] = number
    return group


def _per_step(kernels: Operations, steps: FoundSteps) -> int | None:
    """Median count over the measured steps."""
    if not steps.count:
        return None
    return nearest_rank(per_step(kernels.start_ns, steps), 50)


def per_step(start_ns: NDArray[np.int64], steps: FoundSteps) -> NDArray[np.int64]:
    """How many of these, in order of start, start in each measured step."""
    return np.searchsorted(start_ns, steps.end_ns) - np.searchsorted(start_ns, steps.start_ns)


def _launch_latency(kernels: Operations) -> dict[str, int] | None:
    """From the launch call's end to the kernel's start, of the kernels that started after it; None: no calls known."""
    waited = (kernels.start_ns - kernels.call_end_ns)[kernels.launched]
    waited = waited[waited > 0]
    if not len(waited):
        return None
    p50, p95 = nearest_ranks(waited, 50, 95)
    return {"p50": p50, "p95": p95}


def _top(names: pd.Index, code: NDArray[np.int32], lasted: NDArray[np.int64]) -> list[NamedKernel]:
    count = np.bincount(code, minlength=len(names))
    total = _sums(code, lasted, len(names))
    order = np.argsort(-total, kind="stable")[:TOP]
    return [NamedKernel(str(names[at]), int(count[at]), int(total[at])) for at in order if count[at]]


def _sums(code: NDArray[np.signedinteger[Any]], values: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """Sums of ns per code; exact, as whole floats are below 2**53 ns (104 days)."""
    return np.bincount(code, weights=values, minlength=length).astype(np.int64)


def _by_group(group: NDArray[np.int64], lasted: NDArray[np.int64]) -> dict[str, dict[str, int]]:
    count = np.bincount(group, minlength=len(GROUPS))
    total = _sums(group, lasted, len(GROUPS))
    return {name: {"count": int(count[at]), "total_ns": int(total[at])} for at, name in enumerate(GROUPS)}


def _short_runs(kernels: Operations, group: NDArray[np.int64], lasted: NDArray[np.int64]) -> dict[str, int]:
    """Fusion candidates: two or more element-wise kernels under 5 us in a row on one stream."""
    order = np.argsort(kernels.stream, kind="stable")
    short = ((group == list(GROUPS).index("elementwise")) & (lasted < SHORT_NS))[order]
    same = short[1:] & short[:-1] & (kernels.stream[order][1:] == kernels.stream[order][:-1])
    in_run = np.append(same, False) | np.append(False, same)[: len(short)]
    return {
        "runs": int(same.sum() and (np.diff(np.concatenate(([False], same)).astype(np.int8)) == 1).sum()),
        "kernels": int(in_run[: len(short)].sum()),
        "total_ns": int(lasted[order][in_run[: len(short)]].sum()),
    }
