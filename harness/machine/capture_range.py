"""The CUDA capture range: a profiler started by `nsys profile -c cudaProfilerApi` or `nvprof --profile-from-start off`
waits for it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def opened() -> Iterator[None]:
    """Within this context the profiler records this process; without a loaded CUDA runtime nothing happens."""
    cudart = _cudart()
    if cudart is not None:
        # Without this call the CUDA runtime would make a context on GPU 0 in every rank.
        cudart.cudaSetDevice(_device_in_use(cudart))
        cudart.cudaProfilerStart()
    try:
        yield
    finally:
        if cudart is not None:
            cudart.cudaProfilerStop()


def _cudart() -> ctypes.CDLL | None:
    """The CUDA runtime that a framework has loaded into this process; None if there is none."""
    maps = Path("/proc/self/maps").read_text() if Path("/proc/self/maps").exists() else ""
    loaded = {line.split()[-1] for line in maps.splitlines() if "/libcudart.so" in line}
    return ctypes.CDLL(sorted(loaded)[0]) if loaded else None


def _device_in_use(cudart: ctypes.CDLL) -> int:
    """The device of this thread if this process has a context on it, so that the script keeps its device; else the
    first device with a context; 0 if there is none. Devices are numbered among the visible ones."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    current, count, device, flags, active = (ctypes.c_int() for _ in range(5))
    if cudart.cudaGetDevice(ctypes.byref(current)) or cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
        return 0
    for ordinal in (current.value, *range(count.value)):
        cuda.cuDeviceGet(ctypes.byref(device), ordinal)
        asked = cuda.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active))
        if not asked and active.value:
            return int(ordinal)
    return 0
