"""The time from one kernel to the next, in CUDA graphs and outside (docs/reference/measures.md, "Kernels")."""

from __future__ import annotations

import numpy as np

from ..gpus.operations import HAND_OVER_NS, KERNELS
from ..ledger.account import Account
from ..model.measures import OWNERS

_BLOCK = 1 << 17  # spans of the ledger processed at a time, so that they fit into the CPU's cache


def hand_over_ns(books: Account) -> dict[str, dict[str, int]] | None:
    """`count` and median (`p50_ns`) of turnaround gaps that a kernel ends: `in_graphs` if the kernel is a node of a
    CUDA graph, else `launched`. None if there are no such gaps."""
    owned, operations = books.ownership, books.operations
    kinds = ("launched", "in_graphs")
    # A histogram of the gaps by length in ns, per kind, which is exact and stays small for any number of gaps.
    lengths_each = HAND_OVER_NS + 1
    seen = np.zeros(len(kinds) * lengths_each, np.int64)
    turnaround = OWNERS.index("idle_turnaround")
    for first in range(0, len(owned.owner), _BLOCK):
        piece = first + np.flatnonzero(owned.owner[first : first + _BLOCK] == turnaround)
        end = owned.end_ns[piece]
        row = np.minimum(np.searchsorted(operations.start_ns, end), len(operations) - 1)
        ended = (operations.start_ns[row] == end) & (operations.table[row] == KERNELS)
        row, lasted = row[ended], (end - owned.start_ns[piece])[ended]
        seen += np.bincount(operations.are_nodes(row) * lengths_each + lasted, minlength=len(seen))
    found = {
        kind: {"count": int(lengths.sum()), "p50_ns": _median(lengths)}
        for kind, lengths in zip(kinds, seen.reshape(len(kinds), lengths_each), strict=True)
        if lengths.any()
    }
    return found or None


def _median(lengths: np.ndarray[tuple[int], np.dtype[np.int64]]) -> int:
    """The median of a histogram: the smallest length that half of the gaps do not exceed."""
    upto = np.cumsum(lengths)
    return int(np.searchsorted(upto, (upto[-1] + 1) // 2))
