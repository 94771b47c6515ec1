"""Host-device copy bandwidth of each GPU, from pageable and from pinned memory, in GB/s (1e9 bytes).

`python -m harness.doctor.bandwidth` prints one line of JSON. A separate process measures, so that its CUDA contexts end
with it.
"""

from __future__ import annotations

import ctypes
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from ringscope.ring.feed.cuda import Driver

COPY_BYTES = 256 << 20  # bytes; a copy takes 5 ms at 55 GB/s, so its fixed costs do not count
REPEATS = 8


def measure() -> list[dict[str, Any]]:
    """The bandwidth of each GPU: {"device", "pageable": {"h2d_gb_per_s", "d2h_gb_per_s"}, "pinned": {the same
    keys}}."""
    cuda = Driver()
    cuda.cuInit(0)
    count = ctypes.c_int()
    cuda.cuDeviceGetCount(ctypes.byref(count))
    return [_measure_device(cuda, device) for device in range(count.value)]


def _measure_device(cuda: Driver, index: int) -> dict[str, Any]:
    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    cuda.cuDeviceGet(ctypes.byref(device), index)
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    try:
        cuda.cuCtxSetCurrent(context)
        cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(COPY_BYTES))
        pinned = ctypes.c_void_p()
        cuda.cuMemHostAlloc(ctypes.byref(pinned), ctypes.c_size_t(COPY_BYTES), ctypes.c_uint(0))
        pageable = ctypes.create_string_buffer(COPY_BYTES)
        ctypes.memset(pageable, 1, COPY_BYTES)  # write the memory once, so that every page is mapped before the timing
        answer = {
            "device": index,
            "pageable": _both_ways(cuda, memory, ctypes.cast(pageable, ctypes.c_void_p)),
            "pinned": _both_ways(cuda, memory, pinned),
        }
        cuda.cuMemFreeHost(pinned)
        cuda.cuMemFree_v2(memory)
        return answer
    finally:
        cuda.cuDevicePrimaryCtxRelease_v2(device)


def _both_ways(cuda: Driver, device: ctypes.c_uint64, host: ctypes.c_void_p) -> dict[str, float]:
    size = ctypes.c_size_t(COPY_BYTES)
    return {
        "h2d_gb_per_s": _median_gb_per_s(cuda, lambda: cuda.cuMemcpyHtoD_v2(device, host, size)),
        "d2h_gb_per_s": _median_gb_per_s(cuda, lambda: cuda.cuMemcpyDtoH_v2(host, device, size)),
    }


def _median_gb_per_s(cuda: Driver, copy: Callable[[], None]) -> float:
    copy()
    times_ns = []
    for _ in range(REPEATS):
        start_ns = time.perf_counter_ns()
        copy()
        cuda.cuCtxSynchronize()  # a copy from pageable memory may return before its last piece has arrived
        times_ns.append(time.perf_counter_ns() - start_ns)
    return COPY_BYTES / statistics.median(times_ns)  # bytes per ns are GB per s


if __name__ == "__main__":
    try:
        print(json.dumps(measure()))
    except OSError as error:
        sys.exit(str(error))
