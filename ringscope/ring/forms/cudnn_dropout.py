"""cuDNN's kernel of attention with dropout, through a custom call of ring's own.

XLA's call of that kernel takes the dropout seed as a constant of the program. Ring's call (scripts/attention_in_xla.cc)
reads the seed from GPU memory, so the layer's `SeedGenerator` can give a new seed in each step. The backward pass draws
an equal mask again instead of keeping it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ..internals.frameworks import tf
from ..internals.stablehlo import custom_call, interface

LIBRARY = "ring_attention.so"  # built by scripts/build_attention.py
CUDART = "libcudart.so.12"  # the CUDA runtime of TensorFlow 2.21


class Dropout(NamedTuple):
    """The dropout of one call. rate: the share of scores that is dropped, in (0, 1). seed: int64 (1,), in GPU
    memory."""

    rate: float
    seed: Any


@cache
def library() -> Any | None:
    """The library with the calls, registered with XLA; None if it was not built, or if this XLA does not accept it."""
    path = Path(os.environ.get("RINGSCOPE_ATTENTION") or Path(sys.prefix) / "lib" / LIBRARY)
    xla = interface()
    if xla is None or not path.exists():
        return None
    try:
        found = ctypes.CDLL(str(path), os.RTLD_NOW)
    except OSError:
        return None
    _name_cudart()
    found.ring_attention_workspace.restype = ctypes.c_int64
    return found if found.ring_attention_register(ctypes.c_void_p(xla)) else None


def _name_cudart() -> None:
    """Tell cuDNN's frontend which CUDA runtime TensorFlow uses; if it finds several, it prints a warning at each
    start."""
    with contextlib.suppress(OSError):
        ctypes.CDLL(CUDART)
        os.environ.setdefault("CUDNN_FRONTEND_CUDART_LIB_NAME", CUDART)


def workspace_bytes(
    operands: Sequence[Any], planes: Sequence[int] | None, *, scale: float, causal: bool, rate: float, back: bool
) -> int:
    """The bytes of cuDNN's workspace for these operands; -1 if cuDNN has no kernel for them. operands: query, key,
    value. planes: the bias's first two sizes, (batch or 1, heads or 1); None without a bias."""
    (batch, queries, heads, size), (_, keys, shared, _) = (each.shape for each in operands[:2])
    half = operands[0].dtype == tf.float16
    numbers = [batch, queries, keys, heads, shared, size, *(planes or (0, 0)), half, causal, back]
    found = library()
    if found is None:
        return -1
    given = (ctypes.c_int64 * len(numbers))(*map(int, numbers))
    return int(found.ring_attention_workspace(given, ctypes.c_float(scale), ctypes.c_float(rate)))


def has_kernel(
    operands: Sequence[Any], planes: Sequence[int] | None, *, scale: float, causal: bool, rate: float
) -> bool:
    """True if cuDNN has the forward and backward kernels for these query, key and value shapes."""
    how: dict[str, Any] = {"scale": scale, "causal": causal, "rate": rate}
    return all(workspace_bytes(operands, planes, **how, back=back) >= 0 for back in (False, True))


def forward(operands: Sequence[Any], bias: Sequence[Any], scale: float, causal: bool, dropout: Dropout) -> list[Any]:
    """(output in the query's shape, statistics (batch, heads, queries) in float32). operands: query, key, value."""
    query = operands[0]
    batch, queries, heads, _ = query.shape
    results = [(query.shape, query.dtype), ((batch, heads, queries), tf.float32)]
    return _call("ring_attention", operands, operands, bias, results, scale, causal, dropout)


def backward(operands: Sequence[Any], bias: Sequence[Any], scale: float, causal: bool, dropout: Dropout) -> list[Any]:
    """The gradients of query, key and value. operands: query, key, value, out, upstream, statistics."""
    results = [(each.shape, each.dtype) for each in operands[:3]]
    return _call("ring_attention_back", operands, operands[:3], bias, results, scale, causal, dropout)


def _call(
    target: str,
    operands: Sequence[Any],
    attended: Sequence[Any],
    bias: Sequence[Any],
    results: Sequence[tuple[Any, Any]],
    scale: float,
    causal: bool,
    dropout: Dropout,
) -> list[Any]:
    room = workspace_bytes(
        attended,
        bias[0].shape[:2] if bias else None,
        scale=scale,
        causal=causal,
        rate=dropout.rate,
        back=target.endswith("back"),
    )
    offset = tf.zeros([1], tf.int64)  # cuDNN adds it to the seed
    attributes = (
        f"api_version = 4 : i32, backend_config = {{scale = {scale:.9e} : f32, dropout = {dropout.rate:.9e} : f32,"
        f" is_causal = {int(causal)} : i64}}"
    )
    return custom_call(target, [*operands, *bias, dropout.seed, offset], results, attributes, room=max(room, 0))
