"""Memory of the host: how much may be had, and the words in which programs say that there is no more."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

OUT_OF_MEMORY = re.compile(
    r"RESOURCE_EXHAUSTED|ResourceExhausted|OOM when|CUDA_ERROR_OUT_OF_MEMORY|out of memory|"
    r"CUDNN_STATUS_ALLOC_FAILED|CUBLAS_STATUS_ALLOC_FAILED|std::bad_alloc|MemoryError|Cannot allocate memory"
)
# (limit, use) of this process's control group, version 2 and 1; a container sees its own at this place.
_GROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def available_bytes() -> int:
    """Bytes that processes started now may take: of the host's memory, and of the limit of a container."""
    import psutil

    free = [int(psutil.virtual_memory().available)]
    for limit, use in _GROUPS:
        with contextlib.suppress(OSError, ValueError):  # no such group, or `max`
            free.append(int(Path(limit).read_text()) - int(Path(use).read_text()))
    return max(0, min(free))
