"""Collectives by kind and size, and how fast each moved its bytes (docs/reference/measures.md, "Bytes")."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..gpus.collective_kernels import KINDS
from ..gpus.operations import Operations
from ..model.collectives import OfSize
from .message_sizes import UNKNOWN, Moved

Int64s = NDArray[np.int64]
MOST = 20  # maximum number of rows (kind, size and communicator) per GPU
_NAMES = tuple(KINDS)
_ALL_REDUCE = "all_reduce"


def by_size(
    operations: Operations, kind: NDArray[np.signedinteger], moved: Moved, inside: NDArray[np.bool_]
) -> list[OfSize]:
    """A row per kind, size and communicator of the collectives with known bytes, sorted by time, the longest first.

    inside: True for each collective that counts. `with_transfers` adds the transfer times."""
    rows = np.flatnonzero(inside & (moved.bytes != UNKNOWN) & (moved.bytes > 0))
    if not len(rows):
        return []
    names, code = np.unique(moved.communicator[rows].astype(str), return_inverse=True)
    each = np.stack([kind[rows].astype(np.int64), moved.bytes[rows], code.ravel()])
    keys, which, count = np.unique(each, axis=1, return_inverse=True, return_counts=True)
    lasted = np.zeros(len(count), np.int64)
    np.add.at(lasted, which.ravel(), operations.end_ns[rows] - operations.start_ns[rows])
    order = np.argsort(-lasted, kind="stable")[:MOST].tolist()
    return [
        OfSize(
            kind=_NAMES[int(keys[0, at])],
            bytes=int(keys[1, at]),
            count=int(count[at]),
            lasted_ns=int(lasted[at]),
            transfer_ns=None,
            gb_per_s=int(keys[1, at]) * int(count[at]) / int(lasted[at]) if lasted[at] else None,
            bus_gb_per_s=None,
            communicator=str(names[keys[2, at]]) or None,
        )
        for at in order
    ]


def with_transfers(
    each: Sequence[OfSize], moved: Int64s, all_reduce: NDArray[np.bool_], transfer_ns: Int64s, ranks_of: Int64s
) -> list[OfSize]:
    """Add transfer times and bandwidths to the rows of which every collective was matched with another rank's.

    `moved` (bytes), `all_reduce`, `transfer_ns` and `ranks_of` have one entry per matched collective. They tell
    all-reduces from the rest, but not the other kinds from each other: if two rows of other kinds have equal sizes,
    both stay unchanged.
    """
    found = []
    for one in each:
        reduces = one.kind == _ALL_REDUCE
        mine = (moved == one.bytes) & (all_reduce == reduces)
        alike = [other for other in each if other.bytes == one.bytes and (other.kind == _ALL_REDUCE) == reduces]
        transfer = int(transfer_ns[mine].sum())
        if len(alike) > 1 or int(mine.sum()) != one.count or not transfer:
            found.append(one)
            continue
        ranks = ranks_of[mine]
        bus = float((one.bytes * 2 * (ranks - 1) / ranks).sum() / transfer) if reduces else None
        rate = one.bytes * one.count / transfer
        found.append(replace(one, transfer_ns=transfer, gb_per_s=rate, bus_gb_per_s=bus))
    return found
