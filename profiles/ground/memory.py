"""The host's memory that is available, also within a container."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

# (file of the limit, file of the use, file of the parts, a part) of this process's cgroup, in version 2 and version 1;
# in a container these are the container's. The part is the cache of files that the kernel frees when memory is needed.
_GROUPS: Final = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),
)
_ROOT: Final = Path("/sys/fs/cgroup")


def available_bytes(root: Path = _ROOT) -> int:
    """Bytes that new processes may use: the host's available memory, or what is left below a container's limit."""
    import psutil

    free = [int(psutil.virtual_memory().available)]
    for limit, use, parts, cache in _GROUPS:
        with contextlib.suppress(OSError, ValueError):  # there is no such file, or the limit is `max`
            left = int((root / limit).read_text()) - int((root / use).read_text())
            rows = (line.split() for line in (root / parts).read_text().splitlines())
            free.append(left + next((int(number) for name, number in rows if name == cache), 0))
    return max(0, min(free))
