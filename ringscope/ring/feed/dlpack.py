"""View device memory as a TensorFlow tensor, without a copy, by DLPack.

The structures are those of DLPack 0.8's `dlpack.h` (https://dmlc.github.io/dlpack/latest/c_api.html).
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

CPU, CUDA = 1, 2  # kDLCPU, kDLCUDA
CODES = {"i": 0, "u": 1, "f": 2}  # DLDataTypeCode by NumPy's kind


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


class _Device(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("id", ctypes.c_int32))


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _ManagedTensor(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class View:
    """Memory of this shape and type at an address; it must outlive every tensor made from it."""

    def __init__(
        self, address: int, shape: tuple[int, ...], dtype: np.dtype[Any], device: tuple[int, int] = (CUDA, 0)
    ) -> None:
        self._shape = (ctypes.c_int64 * len(shape))(*shape)
        kind = _DataType(CODES[dtype.kind], 8 * dtype.itemsize, 1)
        tensor = _Tensor(address, _Device(*device), len(shape), kind, self._shape, None, 0)
        # No deleter, because the tensor does not own the memory.
        self._managed = _ManagedTensor(tensor, None, None)
        # TensorFlow reads the deleter when it frees the last tensor, so this object must live to the end of the
        # process.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._managed))

    def tensor(self) -> Any:
        """A new tensor over the memory as it is now."""
        import tensorflow as tf

        capsule = _new_capsule(ctypes.addressof(self._managed), b"dltensor", None)
        return tf.experimental.dlpack.from_dlpack(capsule)
