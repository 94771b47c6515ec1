"""Waits of the host for the GPU (entries of `gpu.host_waits`): the idle time that they cause, and their names."""

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
    """ns of idle time that these waits cause, less idle time in which the next work was already launched."""
    return sum(one["ns"] - one.get("held_ns", 0) + one.get("launch_ns", 0) for one in waits)


def mostly_after_waits(gpu: GpuMeasures) -> bool:
    """True if the host launches late mostly because of code that it runs right after a wait for the GPU."""
    own_ns: int = sum(one.get("own_ns", 0) for one in gpu.host_waits)
    return own_ns > (gpu.outside_calls_ns or 0)


def called(wait: Mapping[str, Any]) -> str:
    """A wait as text: the waiting call, the direction of the copy that it waits for, and the framework's operator
    around it."""
    moves = {"h2d": " to the GPU", "d2h": " to the host"}.get(wait["moves"], "") if "Memcpy" in wait["call"] else ""
    within = OPERATORS.get(wait["within"], wait["within"])
    return f"{wait['call']}{moves}" + (f" in {within}" if within else "")
