"""Memory of the host: the available bytes, and the texts by which programs say that they ran out of memory."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

OUT_OF_MEMORY = re.compile(
    r"RESOURCE_EXHAUSTED|ResourceExhausted|OOM when|CUDA_ERROR_OUT_OF_MEMORY|out of memory|"
    r"CUDNN_STATUS_ALLOC_FAILED|CUBLAS_STATUS_ALLOC_FAILED|std::bad_alloc|MemoryError|Cannot allocate memory"
)
# (file of the limit, file of the use) of this process's cgroup, in version 2 and version 1; in a container these are
# the container's.
_GROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def available_bytes() -> int:
    """Bytes that new processes may use: the host's available memory, or what is left below a container's limit."""
    import psutil

    free = [int(psutil.virtual_memory().available)]
    for limit, use in _GROUPS:
        with contextlib.suppress(OSError, ValueError):  # there is no such file, or the limit is `max`
            free.append(int(Path(limit).read_text()) - int(Path(use).read_text()))
    return max(0, min(free))
