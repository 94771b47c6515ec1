"""Decide by the kernels whether two recordings did the same work, if no run directory names the cell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..gpus.collective_kernels import names_collective
from ..ground import numbers
from ..model.measures import GpuMeasures

MOST: Final = 30  # number of kernel names that are compared; they take nearly all the time
# Measured between recordings of one model on 1 to 4 GPUs: kernels of the same names take 61 % of the time or more, and
# the number of kernels per step differs by 0 to 13 %. Between unlike models, or compiled and not compiled: 54 % or
# less, and 18 % or more. Work is unlike if both limits are passed: a newer library that only renames kernels must still
# be judged.
_SAME_TIME, _SAME_COUNT = 0.55, 0.15


def kernels(gpu: GpuMeasures) -> dict[str, float]:
    """The kernels that take most time, collectives left out, with their shares of the time of these kernels."""
    computing = [one for one in gpu.kernels.top if not names_collective(one.name)]
    longest = sorted(computing, key=lambda one: -one.total_ns)[:MOST]
    total = sum(one.total_ns for one in longest)
    return {one.name: one.total_ns / total for one in longest} if total else {}


def unlike(before: Mapping[str, float], before_per_step: int | None, gpu: GpuMeasures) -> str:
    """The reason why the work is not the same; "" if it looks the same, or cannot be compared."""
    now, per_step = kernels(gpu), gpu.kernels.per_step
    if not before or not now or not before_per_step or not per_step:
        return ""
    common = before.keys() & now.keys()
    same = min(sum(one[name] for name in common) for one in (before, now))
    most, least = max(before_per_step, per_step), min(before_per_step, per_step)
    if same >= _SAME_TIME or most - least <= _SAME_COUNT * most:
        return ""
    return (
        f"{numbers.count(before_per_step)} kernels per step before, {numbers.count(per_step)} here, and kernels of "
        f"the same names take only {numbers.share(same)} of the time: another model, or the same model compiled in "
        "another way"
    )
