"""Split the time of a call on a GPU into copies, compute and launches, by a recording of several such calls."""

from __future__ import annotations

from dataclasses import replace

from ..model.measures import GpuMeasures
from .records import Call

COPIES = ("h2d", "d2h", "p2p", "d2d", "memset")
COMPUTE = ("compute", "collective")


def of_call(call: Call, gpu: GpuMeasures, recorded: int) -> Call:
    """The call with its mean time of compute and of exposed copies; the rest of `call.call_ns` counts as launches.

    `gpu`: measures of the whole recording, which holds `recorded` calls. Recording makes calls slower, but not the
    GPU's work in them.
    """
    copies, compute = (sum(gpu.ledger_ns[owner] or 0 for owner in owners) // recorded for owners in (COPIES, COMPUTE))
    if any(gpu.ledger_ns[owner] is None for owner in (*COPIES, *COMPUTE)):
        return replace(call, why="the recording lacks some copies")
    launches = call.call_ns - copies - compute
    if launches < 0:
        return replace(call, why="the recorded calls worked longer than the measured ones took")
    return replace(
        call,
        copies_ns=copies,
        compute_ns=compute,
        launches_ns=launches,
        kernels=round(gpu.kernels.count / recorded),
    )
