"""Find reasons why launched work may wait on the GPU before it starts."""

from __future__ import annotations

from collections.abc import Sequence

from ..gpus.operations import Gpu
from ..model.names import rows_named
from ..model.timeline import Timeline

_CALLS = {
    "event": r"StreamWait(?:Event|Value)|WaitExternalSemaphores",
    "host": r"LaunchHostFunc|StreamAddCallback",
    "graphics": r"GraphicsMap|GLMapBuffer|EGLStream(?:Consumer|Producer)",
    "managed": r"(?:Malloc|MemAlloc)Managed",
}


def waits_on(timelines: Sequence[Timeline], gpu: Gpu) -> list[str] | None:
    """`stream` and `process` if the GPU has several; and by the calls of its processes: `event` (waits for an event),
    `host` (a host function on a stream), `graphics` (resources shared with a graphics API), `managed` (memory that the
    driver moves). None if no calls are recorded."""
    tables = [(timelines[index].api, pid) for index, pid in gpu.processes]
    if not any(len(api) for api, _ in tables):
        return None
    found = ["stream"] * (len(gpu.streams) > 1) + ["process"] * (len(gpu.processes) > 1)
    return found + [
        name for name, pattern in _CALLS.items() if any(len(rows_named(api, pattern, pid)) for api, pid in tables)
    ]
