"""The few calls that go to the driver's own library (libcuda), which is wherever a GPU can be used at all."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

PORTABLE = 1  # CU_MEMHOSTALLOC_PORTABLE: pinned for every context of the process


class Driver:
    """Driver calls by their names; each raises OSError with CUDA's own words when it fails."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")

    def __getattr__(self, name: str) -> Callable[..., None]:
        function = getattr(self._library, name)

        def call(*arguments: Any) -> None:
            if status := function(*arguments):
                words = ctypes.c_char_p()
                self._library.cuGetErrorString(status, ctypes.byref(words))
                raise OSError(f"{name}: {(words.value or b'unknown error').decode()}")

        return call


def use(cuda: Driver, ordinal: int) -> None:
    """Make the GPU's primary context, the one TensorFlow uses too, this thread's; it lives as long as the process."""
    device, context = ctypes.c_int(), ctypes.c_void_p()
    cuda.cuInit(0)
    cuda.cuDeviceGet(ctypes.byref(device), ordinal)
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    cuda.cuCtxSetCurrent(context)


def pinned_bytes(cuda: Driver, count: int) -> memoryview:
    """`count` bytes of page-locked memory, kept until the process ends: the GPU's copy engine reads them directly."""
    address = ctypes.c_void_p()
    cuda.cuMemHostAlloc(ctypes.byref(address), ctypes.c_size_t(count), ctypes.c_uint(PORTABLE))
    return memoryview((ctypes.c_ubyte * count).from_address(address.value or 0))
