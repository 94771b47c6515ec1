"""Waits of the host for the GPU, as `gpu.host_waits` lists them: the time that they lose, and their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..model.measures import GpuMeasures

# PyTorch's operators that wait for the GPU, as a script writes them.
OPERATORS = {
    "aten::item": ".item()",
    "aten::_local_scalar_dense": ".item()",
    "aten::is_nonzero": "an if on a tensor",
    "aten::nonzero": "nonzero() or boolean indexing",
    "aten::to": ".to() or .cpu()",
}


def lost_by(waits: Sequence[Mapping[str, Any]]) -> int:
    """ns of idle time after these waits, without idle time in which work is launched already."""
    return sum(one["ns"] - one.get("held_ns", 0) + one.get("launch_ns", 0) for one in waits)


def mostly_after_waits(gpu: GpuMeasures) -> bool:
    """True if the host is late mostly by what it does between a wait and its next launch, and not by launching."""
    own_ns: int = sum(one.get("own_ns", 0) for one in gpu.host_waits)
    return own_ns > (gpu.outside_calls_ns or 0)


def called(wait: Mapping[str, Any]) -> str:
    """One of `host_waits` in words: the call, the framework's operator around it, the direction of its copy."""
    moves = {"h2d": " to the GPU", "d2h": " to the host"}.get(wait["moves"], "") if "Memcpy" in wait["call"] else ""
    within = OPERATORS.get(wait["within"], wait["within"])
    return f"{wait['call']}{moves}" + (f" in {within}" if within else "")
