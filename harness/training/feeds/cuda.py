"""The few calls that go to the driver's own library (libcuda), which is wherever a GPU can be used at all."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

import numpy as np

from ..marks import NvtxMarks
from . import dlpack
from .pinned import write

PORTABLE = 1  # CU_MEMHOSTALLOC_PORTABLE: pinned for every context of the process
TURN_BYTES_PER_S = 40e9  # somewhat less than one GPU's copies reach alone (PCIe 5 x16: 54 GB/s)
NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: does not wait for the default stream
WAITING, UNTIMED = 1, 2  # CU_EVENT_BLOCKING_SYNC: the host sleeps, does not spin; CU_EVENT_DISABLE_TIMING


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

    def is_done(self, event: ctypes.c_void_p) -> bool:
        return bool(self._library.cuEventQuery(event) == 0)


class Gpu:
    """A GPU's primary context, the one TensorFlow uses too, and a stream of our own for copies to it.

    ordinal: as the driver counts the GPUs this process sees; tensorflow_id: as TensorFlow counts those it may use.

    Raises OSError where the driver does not do its part.
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
        """Make the context the calling thread's."""
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


class GpuSlot:
    """A pinned.Slot: pinned arrays and device buffers of the same shapes and types, which are not int32: TensorFlow
    keeps those in host memory and would copy them back to it."""

    def __init__(self, gpu: Gpu, like: tuple[np.ndarray[Any, Any], ...], writers: Executor) -> None:
        self._gpu, self._writers = gpu, writers
        self._host = [gpu.pinned(array.shape, array.dtype) for array in like]
        self._addresses = [gpu.allocate(array.nbytes) for array in self._host]
        self._views = [
            dlpack.View(address, array.shape, array.dtype, (dlpack.CUDA, gpu.tensorflow_id))
            for address, array in zip(self._addresses, self._host, strict=True)
        ]
        self._free, self._copied = gpu.event(), gpu.event()
        self._marks = NvtxMarks()
        # Ranks step together, and four copies at once go at 38 to 46 GB/s each: every GPU of a host takes its turn.
        self._turn_s = gpu.ordinal * sum(array.nbytes for array in self._host) / TURN_BYTES_PER_S

    def fill(self, arrays: tuple[np.ndarray[Any, Any], ...]) -> None:
        write(self._host, arrays, self._writers)

    def bring(self, number: int) -> None:
        driver, stream = self._gpu.driver, self._gpu.stream
        self._gpu.use()
        if not driver.is_done(self._free):
            driver.cuEventSynchronize(self._free)
            time.sleep(self._turn_s)
        with self._marks.batch(number):
            for address, array in zip(self._addresses, self._host, strict=True):
                driver.cuMemcpyHtoDAsync_v2(
                    ctypes.c_uint64(address), ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes), stream
                )
        driver.cuEventRecord(self._copied, stream)
        driver.cuEventSynchronize(self._copied)

    def tensors(self) -> tuple[Any, ...]:
        # New ones every time: what TensorFlow has kept of an old one (a copy of it elsewhere) is of an old batch.
        return tuple(view.tensor() for view in self._views)

    def launched(self) -> None:
        # All that the context has been given so far, on whatever streams TensorFlow has put it.
        self._gpu.driver.cuCtxRecordEvent(self._gpu.context, self._free)

    def wait_until_free(self) -> None:
        self._gpu.use()
        self._gpu.driver.cuEventSynchronize(self._free)
