"""Make custom calls that no TensorFlow operation makes, as StableHLO text in a program that XLA compiles."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .frameworks import has_gpu, tf

VERSION = 10  # version of the XlaCallModule operation
TYPES = {tf.bfloat16: "bf16", tf.float16: "f16", tf.float32: "f32", tf.float64: "f64"}


def tensor_type(shape: Sequence[int], dtype: Any) -> str:
    return f"tensor<{''.join(f'{n}x' for n in shape)}{TYPES[dtype]}>"


def row_major(shape: Sequence[int]) -> list[int]:
    """TensorFlow's row-major layout, in the order minor-to-major: first the axis whose entries are adjacent in
    memory."""
    return list(reversed(range(len(shape))))


def layout(minor_to_major: Sequence[int]) -> str:
    """A layout as text for a custom call; XLA chooses layouts that the text does not fix."""
    return f"dense<[{', '.join(map(str, minor_to_major))}]> : tensor<{len(minor_to_major)}xindex>"


def call_module(text: str, operands: Sequence[Any], results: Sequence[tuple[Sequence[int], Any]]) -> list[Any]:
    """The results of the function `main` in a module. text: the StableHLO module. results: (shape, type) of each."""
    from tensorflow.compiler.tf2xla.python import xla

    platform = "CUDA" if has_gpu() else "CPU"
    shapes, types = zip(*results, strict=True)
    return list(
        xla.call_module(
            list(operands), version=VERSION, module=text, Tout=list(types), Sout=list(shapes), platforms=[platform]
        )
    )


def interface() -> int | None:
    """The address of XLA's foreign function interface (xla/ffi/api/c_api.h); None if there is none. TensorFlow's
    packages for GPUs and for CPUs have it in different libraries."""
    for name in ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2"):
        try:
            get = ctypes.CDLL(str(Path(tf.sysconfig.get_lib()) / name))._ZN3xla3ffi12GetXlaFfiApiEv
        except (OSError, AttributeError):
            continue
        get.restype = ctypes.c_void_p
        return get()  # type: ignore[no-any-return]
    return None
