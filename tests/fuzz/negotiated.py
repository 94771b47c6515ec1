"""A rank's recording that waits for another rank, and Horovod's timeline, which tells how long."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

STEPS, STEP_US, EPOCH_US = 8, 1000, 1_700_000_000_000_000


def written(folder: Path) -> tuple[Path, Path]:
    """The recording (of PyTorch's profiler) and the timeline, of which rank 1 is ready 400 us after rank 0."""
    traced: list[dict[str, Any]] = []
    names = [{"name": f"g{pid}", "start_time_since_epoch_in_micros": EPOCH_US} for pid in (1, 2)]
    told: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": pid, "args": args} for pid, args in enumerate(names, 1)
    ]
    for step in range(STEPS):
        at = step * STEP_US
        traced.append({"cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": EPOCH_US + at, "dur": STEP_US})
        traced += _launched(2 * step, "backward", EPOCH_US + at + 10, 90)
        traced += _launched(2 * step + 1, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", EPOCH_US + at + 610, 200)
        for pid in (1, 2):
            told += [
                {"ph": "B", "pid": pid, "name": "NEGOTIATE_ALLREDUCE", "ts": at + 110},
                {"ph": "X", "pid": pid, "name": "0", "ts": at + 120, "dur": 0},
                {"ph": "X", "pid": pid, "name": "1", "ts": at + 520, "dur": 0},
                {"ph": "E", "pid": pid, "ts": at + 590},
                {"ph": "B", "pid": pid, "name": "ALLREDUCE", "ts": at + 600},
                {"ph": "E", "pid": pid, "ts": at + 900},
            ]
    events = [{"ph": "X", "pid": 4000, "tid": 1, **event} for event in traced]
    ranks = {"backend": "nccl", "rank": 0, "world_size": 2}
    trace = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA"}],
        "distributedInfo": ranks,
        "traceEvents": events,
    }
    recording, timeline = folder / "negotiating", folder / "negotiated"
    recording.write_text(json.dumps(trace))
    timeline.write_text(json.dumps(told))
    return recording, timeline


def _launched(correlation: int, name: str, at_us: int, us: int) -> list[dict[str, Any]]:
    """A kernel and the call before it."""
    args = {"device": 0, "context": 1, "stream": 7, "correlation": correlation + 1}
    call = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at_us - 8, "dur": 5, "args": args}
    return [call, {"cat": "kernel", "name": name, "ts": at_us, "dur": us, "args": args}]
