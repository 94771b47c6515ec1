"""Say why a PyTorch trace holds no GPU work that can be measured, and what to record instead."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import pandas as pd

from ...doubts.recordings import CAPTURE_REMEDY, LOSES_LESS
from ...ground import numbers
from ...model import launching
from ...model.timeline import WITHOUT_TIMES

_CATEGORY: Final = "category "
# Categories of accelerators other than GPUs, from PyTorch's libkineto/include/ActivityType.h.
_OTHERS: Final = (
    (r"mtia_\w+", "MTIA"),
    (r"hpu_\w+", "Gaudi (HPU)"),
    (r"glow_\w+", "Glow"),
    (r"privateuse1_\w+", "PyTorch's PrivateUse1"),
)
# The category of CUPTI's range profiler, which reads counters; Kineto records no kernels while counters are on.
_COUNTERS: Final = "cuda_profiler_range"
_GPUS: Final = (
    "ringscope measures what NVIDIA's and AMD's GPUs did: give a trace of one of these, or see this one in PyTorch's "
    "own viewer or Perfetto"
)
_NO_COUNTERS: Final = (
    "record again without counters: torch.profiler.profile without profiler_metrics in its experimental_config"
)
_COPY: Final = r"^(?:cu|cuda|hip)Mem(?:cpy|set)"
_USE_A_GPU: Final = "move the model and its inputs to the GPU, and record while it computes"
_RECORD: Final = "record with CUDA activities on; for TensorFlow's profiler give the .xplane.pb beside it"


def reason(left_out: Mapping[str, int], api: pd.DataFrame | None, host: int) -> tuple[str, str]:
    """(problem, remedy). `left_out`: reason -> number of events not read. `host`: number of host events that were
    read."""
    if damaged := left_out.get(WITHOUT_TIMES, 0):
        of_them = numbers.counted(damaged, "event")
        return f"a trace without a GPU event that has a possible time ({of_them} without one)", "record it again"
    unread = {name.removeprefix(_CATEGORY): of for name, of in left_out.items() if name.startswith(_CATEGORY)}
    for pattern, accelerator in _OTHERS:
        if theirs := sum(of for name, of in unread.items() if re.fullmatch(pattern, name)):
            return f"a trace of {accelerator}, an accelerator that is not a GPU: {theirs:,} of the events", _GPUS
    if counted := unread.get(_COUNTERS, 0):
        return f"a trace of CUPTI's range profiler: {counted:,} ranges with counters in place of kernels", _NO_COUNTERS
    if api is not None:
        launched = launching.named(api, f"{launching.KERNEL}|{launching.GRAPH}")
        in_graphs = int((launched & launching.captured(api)).sum())
        if 2 * in_graphs > launched.sum():
            return (
                f"a capture of a CUDA graph: {in_graphs:,} launches were only recorded into a graph, and ran nothing"
            ), CAPTURE_REMEDY
        launched = launched if launched.any() else launching.named(api, _COPY)
        if launched.any():
            problem = f"{numbers.counted(launched.sum(), 'launch')} without operations: the profiler dropped them"
            return problem, LOSES_LESS["kineto"]
        return f"a trace with {numbers.counted(len(api), 'call')} of CUDA or HIP, and no work for a GPU", _USE_A_GPU
    host += sum(unread.values())
    return (
        f"a trace with {numbers.counted(host, 'event')} of the host and none of a GPU"
        if host
        else "a trace without GPU events",
        _RECORD,
    )
