"""The few functions of the CUDA driver's library (libcuda) that ring calls; every machine with a usable GPU has this
library."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

PORTABLE = 1  # CU_MEMHOSTALLOC_PORTABLE: pinned for every context of the process
NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: does not wait for the default stream
WAITING, UNTIMED = 1, 2  # CU_EVENT_BLOCKING_SYNC: the host sleeps instead of spinning; CU_EVENT_DISABLE_TIMING


class Driver:
    """Driver functions by their names; each raises OSError with CUDA's message if it fails."""

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

    def is_done(self, event: ctypes.c_void_p) -> bool:
        return bool(self._library.cuEventQuery(event) == 0)


class Gpu:
    """A GPU's primary context, which TensorFlow uses, too, and a separate stream for copies to the GPU.

    ordinal: number among the GPUs that this process sees. tensorflow_id: number among the GPUs that TensorFlow may use.
    Raises OSError if the driver fails.
    """

    def __init__(self, ordinal: int, tensorflow_id: int) -> None:
        self.driver, self.ordinal, self.tensorflow_id = Driver(), ordinal, tensorflow_id
        device, self.context, self.stream = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        self.driver.cuInit(0)
        self.driver.cuDeviceGet(ctypes.byref(device), ordinal)
        self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), device)
        self.use()
        self.driver.cuStreamCreate(ctypes.byref(self.stream), NON_BLOCKING)

    def use(self) -> None:
        """Make the GPU's context current in the calling thread."""
        self.driver.cuCtxSetCurrent(self.context)

    def event(self) -> ctypes.c_void_p:
        event = ctypes.c_void_p()
        self.driver.cuEventCreate(ctypes.byref(event), WAITING | UNTIMED)
        return event

    def pinned(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """An array in page-locked memory, kept until the process ends: the copy engine reads it directly."""
        count = int(np.prod(shape)) * dtype.itemsize
        address = ctypes.c_void_p()
        self.driver.cuMemHostAlloc(ctypes.byref(address), ctypes.c_size_t(count), PORTABLE)
        memory = (ctypes.c_ubyte * count).from_address(address.value or 0)
        return np.frombuffer(memoryview(memory), dtype).reshape(shape)

    def allocate(self, count: int) -> int:
        """The address of `count` bytes on the device, kept until the process ends."""
        address = ctypes.c_uint64()
        self.driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(count))
        return address.value
