"""Waits of the host for the GPU, as `gpu.host_waits` lists them: the time that they lose, and their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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


def called(wait: Mapping[str, Any]) -> str:
    """One of `host_waits` in words: the call, the framework's operator around it, the direction of its copy."""
    moves = {"h2d": " to the GPU", "d2h": " to the host"}.get(wait["moves"], "") if "Memcpy" in wait["call"] else ""
    within = OPERATORS.get(wait["within"], wait["within"])
    return f"{wait['call']}{moves}" + (f" in {within}" if within else "")
