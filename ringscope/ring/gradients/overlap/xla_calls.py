"""Horovod's calls inside an XLA program (scripts/horovod_in_xla.cc): one that sums and waits, and two that start a sum
and wait for it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

from ...internals.frameworks import hvd, tf
from ...internals.stablehlo import TYPES, custom_call, interface
from ..types import sums_bfloat16

PROGRAM = "step"  # one name is enough, because a process runs one program with these calls at a time


@cache
def is_registered() -> bool:
    """True if XLA knows Horovod's calls: this Horovod must have them, and this TensorFlow must show the interface for
    them."""
    known = interface()
    horovod = hvd.mpi_ops._basics.MPI_LIB_CTYPES
    if known is None or not hasattr(horovod, "horovod_register_sums_in_xla"):
        return False
    return bool(horovod.horovod_register_sums_in_xla(ctypes.c_void_p(known)))


def is_sent(gradient: Any) -> bool:
    dense = isinstance(gradient, tf.Tensor) and gradient.shape.is_fully_defined() and gradient.dtype in TYPES
    return dense and (gradient.dtype != tf.bfloat16 or sums_bfloat16())


def sums(tensors: Sequence[Any], passing: Sequence[Any], name: str, op: Any) -> list[Any]:
    """The sums of `tensors` over ranks, grouped by type under the names `name` + type, then `passing` unchanged.
    `passing` is computed before the exchange starts, so that it serves to order programs' operations."""
    return _called("ring_sum", [*tensors, *passing], _settings(tensors, name, op))


def hand_over(tensors: Sequence[Any], passing: Sequence[Any], name: str, op: Any) -> list[Any]:
    """Start to sum tensors of one type over ranks while the program continues. Returns the tensors, then `passing`
    unchanged.

    The returned tensors hold the sums only after `summed`. `passing` is computed before the exchange starts.
    """
    with tf.control_dependencies(None):
        handed = _called("ring_exchange", [*tensors, *passing], _settings(tensors, name, op))
    # Otherwise TensorFlow would run the call after all stateful operations traced before, including XLA calls such as
    # attention's. Some of those use `passing`, which would make a cycle.
    manager = getattr(handed[0].graph, "experimental_acd_manager", None)
    if manager is not None:
        manager.run_independently(handed[0].op)
    return handed


def summed(handed_over: Sequence[Any]) -> list[Any]:
    """Wait for all sums that were handed over, and return them."""
    return _called("ring_exchanged", handed_over)


def _settings(tensors: Sequence[Any], name: str, op: Any) -> str:
    return f'name = "{name}", op = {int(op)} : i64, count = {len(tensors)} : i64'


def _called(target: str, operands: Sequence[Any], settings: str = "") -> list[Any]:
    """The results of one of Horovod's calls: for each operand one result, in the operand's memory."""
    several = len(operands) > 1
    aliases = ", ".join(
        f"#stablehlo.output_operand_alias<output_tuple_indices = [{i if several else ''}], operand_index = {i},"
        " operand_tuple_indices = []>"
        for i in range(len(operands))
    )
    settings = ", ".join(filter(None, (f'program = "{PROGRAM}"', settings)))
    attributes = (
        f"api_version = 4 : i32, has_side_effect = true, backend_config = {{{settings}}},"
        f" output_operand_aliases = [{aliases}]"
    )
    # The call fixes layouts. Without that XLA transposes a convolution kernel's gradient between the call that starts
    # and the one that waits.
    return custom_call(target, operands, [(tuple(each.shape), each.dtype) for each in operands], attributes)
