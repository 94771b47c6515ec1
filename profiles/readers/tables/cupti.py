"""Decode the values that recordings of nsys and nvprof share, since both store CUPTI's activity records.

Numbers are those of cupti_activity.h (CUPTI 12.9): CUpti_ActivityMemcpyKind, CUpti_ActivityMemoryKind,
CUpti_ActivitySynchronizationType. nsys adds copy kinds 11 to 13 (unified memory) and numbers memory kinds from 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ...model.tables import COPY_KINDS, MEMORY_KINDS, MOST_BLOCKS
from .gathering import constant
from .scan import Column, present
from .sqlite import Database
from .strings import categorical

# Kinds of copies by number: 0 unknown, 1 HtoD, 2 DtoH, 3 HtoA, 4 AtoH, 5 AtoA, 6 AtoD, 7 DtoA, 8 DtoD, 9 HtoH, 10
# PtoP; in nsys also 11 unified HtoD, 12 unified DtoH, 13 unified DtoD (a page that moves from one GPU to another).
_COPIES = ("other", "h2d", "d2h", "h2d", "d2h", "d2d", "d2d", "d2d", "d2d", "h2h", "p2p", "h2d", "d2h", "p2p")
_UNIFIED = 11
NVPROF_MEMORY = ("unknown", "pageable", "pinned", "device", "array", "managed", "device", "managed")
NSYS_MEMORY = ("pageable", "pinned", "device", "array", "managed", "device", "managed", "unknown")

_GRID = ("gridX", "gridY", "gridZ")
SYNCS = {1: "event", 2: "stream wait", 3: "stream", 4: "context"}

Ints = NDArray[np.int64]


def copies(columns: Mapping[str, Any], memory: tuple[str, ...]) -> dict[str, Any]:
    """The columns of a Timeline's table `copies`. `memory`: NVPROF_MEMORY or NSYS_MEMORY, the kinds of memory by
    number. A device-to-device copy between two GPUs becomes a peer copy (p2p), and a copy of an unknown kind what its
    kinds of memory tell."""
    count = len(columns["start_ns"])
    source, target = (columns.get(name, constant(-1, count, "int32")) for name in ("src_device", "dst_device"))
    kind = _coded(columns["kind"], _COPIES, COPY_KINDS, "other")
    memory_of = {name: _memory(columns.get(name, constant(-1, count)), memory) for name in ("src_kind", "dst_kind")}
    unified = (columns["kind"] >= _UNIFIED) & (columns["kind"] < len(_COPIES))  # nsys records no memory kind for these
    if unified.any():
        memory_of = {name: _managed(kinds, unified) for name, kinds in memory_of.items()}
    unsaid = kind == COPY_KINDS.index("other")
    kind[unsaid] = _by_memory(*memory_of.values())[unsaid]
    kind[(columns["kind"] == 8) & (source >= 0) & (target >= 0) & (source != target)] = COPY_KINDS.index("p2p")
    return {
        **columns,
        "kind": categorical(kind, COPY_KINDS),
        **memory_of,
        "src_device": source,
        "dst_device": target,
    }


def _by_memory(source: pd.Categorical, target: pd.Categorical) -> NDArray[np.int8]:
    """For each copy, the kind that its kinds of memory tell, as an index into COPY_KINDS; "other" for managed and
    unknown memory."""
    host, on_gpu = ("pageable", "pinned"), ("device", "array")
    found = np.full(len(source), COPY_KINDS.index("other"), np.int8)
    ends_of = {"h2d": (host, on_gpu), "d2h": (on_gpu, host), "d2d": (on_gpu, on_gpu), "h2h": (host, host)}
    for kind, (starts, ends) in ends_of.items():
        found[source.isin(starts) & target.isin(ends)] = COPY_KINDS.index(kind)
    return found


def size(column: str) -> Column:
    """A column of bytes; a number below 0, which no operation moves, becomes 0."""
    return Column(column, convert=lambda values: np.maximum(values, 0))


def grid_columns(database: Database, table: str) -> dict[str, Column]:
    """The columns of a table of kernels from which `with_blocks` computes a column."""
    extents = {name: Column(name, convert=_extent, dtype="int16") for name in _GRID}
    return present(database, table, extents)


def _extent(values: Ints) -> NDArray[np.int16]:
    return np.clip(values, 0, MOST_BLOCKS).astype(np.int16)


def with_blocks(kernels: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a Timeline's table `kernels`, with `blocks` if the extents of the kernels' grids are known."""
    grid = [kernels[name] for name in _GRID if name in kernels]
    if len(grid) < len(_GRID):
        return dict(kernels)
    found = grid[0].astype(np.int32)
    for extent in grid[1:]:
        np.minimum(found * extent, MOST_BLOCKS, out=found)
    return {**kernels, "blocks": found.astype(np.int16)}


def _memory(kinds: Ints, meaning: tuple[str, ...]) -> pd.Categorical:
    codes = _coded(kinds, meaning, MEMORY_KINDS, "unknown")
    return categorical(codes, MEMORY_KINDS)


def _managed(kinds: pd.Categorical, rows: NDArray[np.bool_]) -> pd.Categorical:
    unknown = kinds.codes == MEMORY_KINDS.index("unknown")
    codes = np.where(rows & unknown, MEMORY_KINDS.index("managed"), kinds.codes)
    return pd.Categorical.from_codes(codes, categories=kinds.categories)


def sync_names(types: Ints) -> pd.Categorical:
    names = ["unknown", *SYNCS.values()]
    codes = np.where((types >= 1) & (types <= len(SYNCS)), types, 0).astype(np.int8)
    return categorical(codes, names)


_RUNTIME_VERSION = re.compile(r"(?<=\w)_v\d{4,}$")


def api_name(name: str) -> str:
    """The function's name in a program's source: cudaLaunchKernel for cudaLaunchKernel_v7000.

    The suffix of a runtime function is the CUDA version that introduced it. The _v2 of a driver function is kept,
    since it is a part of the name.
    """
    return _RUNTIME_VERSION.sub("", name)


def _coded(kinds: Ints, meaning: tuple[str, ...], kept: tuple[str, ...], otherwise: str) -> NDArray[np.int8]:
    table = np.array([kept.index(name) for name in (*meaning, otherwise)], dtype=np.int8)
    outside = (kinds < 0) | (kinds >= len(meaning))
    return table[np.where(outside, len(meaning), kinds)]
