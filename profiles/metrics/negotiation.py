"""Launch idle while Horovod negotiates: a rank's tensors are handed in and their all-reduce is not launched yet."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..gpus.operations import COLLECTIVE, Gpu
from ..ledger import ownership
from ..ledger.account import Account
from ..timeline import Timeline
from .message_sizes import last_open

_NEVER = np.iinfo(np.int64).max


def negotiation_ns(timelines: Sequence[Timeline], shift_ns: Sequence[int], gpu: Gpu, books: Account) -> int | None:
    """ns of `idle_launch` between a collective's handing in and its launch (docs/reference/measures.md, "Collectives").

    Horovod launches a collective once every rank has handed its tensors in; until then the host of one that has waits
    outside of any CUDA call. None where Horovod's ranges hold no launch of the window, or launch idle is not known.
    """
    if books.ledger_ns["idle_launch"] is None:
        return None
    operations = books.operations
    rows = np.flatnonzero((operations.kind == COLLECTIVE) & operations.launched)
    rows = rows[books.window.holds(operations.start_ns[rows])]
    mine = operations.at(rows)
    origin = shift_ns[gpu.places[0][0]]
    handed_in = np.full(len(rows), _NEVER)
    for process, (recording, pid) in enumerate(gpu.processes):
        told = timelines[recording].exchanges
        told = told[(told["pid"] == pid).to_numpy() & (told["library"] == "Horovod").to_numpy()]
        told = told.sort_values("start_ns", kind="stable")
        of_process = np.flatnonzero(mine.process == process)
        shift = shift_ns[recording] - origin
        last = last_open(told, mine.call_start_ns[of_process] - shift)
        held = last >= 0
        handed_in[of_process[held]] = told["start_ns"].to_numpy()[last[held]] + shift
    known = handed_in != _NEVER
    if not known.any():
        return None
    # Idle counts from when the GPU ran dry, and only before the collective itself: other launches wait for nobody.
    dry = np.maximum.accumulate(operations.end_ns)[np.maximum(rows - 1, 0)]
    first = np.maximum(np.maximum(dry, handed_in), books.window.start_ns)
    waited = known & (rows > 0) & (first < mine.start_ns)
    return int(ownership.per_bin(books.ownership, first[waited], mine.start_ns[waited])["idle_launch"].sum())
