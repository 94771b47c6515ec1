"""Make custom calls that no TensorFlow operation makes, as StableHLO text in a program that XLA compiles."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .frameworks import has_gpu, tf

VERSION = 10  # version of the XlaCallModule operation
TYPES = {tf.bfloat16: "bf16", tf.float16: "f16", tf.float32: "f32", tf.float64: "f64"}
WORDS = TYPES | {tf.int64: "i64"}


def tensor_type(shape: Sequence[int], dtype: Any) -> str:
    return f"tensor<{''.join(f'{n}x' for n in shape)}{WORDS[dtype]}>"


def _layout(axes: Sequence[int]) -> str:
    """The layout of a tensor, as text for a custom call. axes: in the order in which the tensor lies in memory, the
    axis whose entries are adjacent last. XLA chooses layouts that the text does not fix."""
    return f"dense<{list(reversed(axes))}> : tensor<{len(axes)}xindex>"


def custom_call(
    target: str,
    operands: Sequence[Any],
    results: Sequence[tuple[Sequence[int], Any]],
    attributes: str,
    *,
    room: int | None = None,
    turned: Sequence[int] = (),
) -> list[Any]:
    """The results of one custom call. results: (shape, type) of each. attributes: of the call, besides the layouts.
    room: bytes of its workspace, the call's last result, which is not returned; None: it has no workspace. turned:
    results with as many axes as this lie in memory, and are returned, with their axes in this order."""
    given = [tensor_type(each.shape, each.dtype) for each in operands]
    made, workspace = [tensor_type(*each) for each in results], [] if room is None else [f"tensor<{room}xui8>"]
    orders = [list(turned if len(shape) == len(turned) else range(len(shape))) for shape, _ in results]
    stored = [(tuple(shape[i] for i in order), kind) for (shape, kind), order in zip(results, orders, strict=True)]
    operand_layouts = ", ".join(_layout(range(len(each.shape))) for each in operands)
    result_layouts = ", ".join(map(_layout, [*orders, *([0] for _ in workspace)]))
    lines = [
        f"%made:{len(made + workspace)} = stablehlo.custom_call @{json.dumps(target)}"
        f"({', '.join(f'%arg{i}' for i in range(len(given)))}) {{{attributes}, operand_layouts = [{operand_layouts}],"
        f" result_layouts = [{result_layouts}]}} : ({', '.join(given)}) -> ({', '.join(made + workspace)})"
    ]
    names, kinds = [], [tensor_type(*each) for each in stored]
    for i, order in enumerate(orders):
        names.append(f"%made#{i}")
        if order != sorted(order):
            lines.append(f"%out{i} = stablehlo.transpose %made#{i}, dims = {order} : ({made[i]}) -> {kinds[i]}")
            names[i] = f"%out{i}"
    lines.append(f"return {', '.join(names)} : {', '.join(kinds)}")
    arguments, body = ", ".join(f"%arg{i}: {each}" for i, each in enumerate(given)), "\n    ".join(lines)
    head = f"func.func public @main({arguments}) -> ({', '.join(kinds)})"
    return call_module(f"module {{\n  {head} {{\n    {body}\n  }}\n}}\n", operands, stored)


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
