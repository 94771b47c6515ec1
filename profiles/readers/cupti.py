"""What nsys and nvprof have in common: both write down CUPTI's activity records.

Numbers are those of cupti_activity.h (CUPTI 12.9): CUpti_ActivityMemcpyKind, CUpti_ActivityMemoryKind,
CUpti_ActivitySynchronizationType. nsys adds copy kinds 11 to 13 (unified memory) and numbers memory kinds from 0.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..timeline import COPY_KINDS, MEMORY_KINDS

# 0 unknown, 1 HtoD, 2 DtoH, 3 HtoA, 4 AtoH, 5 AtoA, 6 AtoD, 7 DtoA, 8 DtoD, 9 HtoH, 10 PtoP;
# nsys: 11 unified HtoD, 12 unified DtoH, 13 unified DtoD (a page that moves from one GPU to another)
_COPIES = ("other", "h2d", "d2h", "h2d", "d2h", "d2d", "d2d", "d2d", "d2d", "h2h", "p2p", "h2d", "d2h", "p2p")
NVPROF_MEMORY = ("unknown", "pageable", "pinned", "device", "array", "managed", "device", "managed")
NSYS_MEMORY = ("pageable", "pinned", "device", "array", "managed", "device", "managed", "unknown")

SYNCS = {1: "event", 2: "stream wait", 3: "stream", 4: "context"}

Ints = NDArray[np.int64]


def copy_kinds(kinds: Ints, src_device: NDArray[Any], dst_device: NDArray[Any]) -> pd.Categorical:
    """One of COPY_KINDS each. Device to device between two GPUs is a peer copy, whatever its number says."""
    codes = _coded(kinds, _COPIES, COPY_KINDS, "other")
    between = (src_device >= 0) & (dst_device >= 0) & (src_device != dst_device)
    codes[(kinds == 8) & between] = COPY_KINDS.index("p2p")
    return pd.Categorical.from_codes(codes, categories=pd.Index(COPY_KINDS, dtype="str"))


def memory_kinds(kinds: Ints, meaning: tuple[str, ...]) -> pd.Categorical:
    """One of MEMORY_KINDS each. meaning: NVPROF_MEMORY or NSYS_MEMORY, which number them differently."""
    codes = _coded(kinds, meaning, MEMORY_KINDS, "unknown")
    return pd.Categorical.from_codes(codes, categories=pd.Index(MEMORY_KINDS, dtype="str"))


def sync_names(types: Ints) -> pd.Categorical:
    names = ["unknown", *SYNCS.values()]
    codes = np.where((types >= 1) & (types <= len(SYNCS)), types, 0).astype(np.int8)
    return pd.Categorical.from_codes(codes, categories=pd.Index(names, dtype="str"))


_RUNTIME_VERSION = re.compile(r"(?<=\w)_v\d{4,}$")


def api_name(name: str) -> str:
    """As the programmer calls it: cudaLaunchKernel_v7000 is cudaLaunchKernel.

    The suffix of a runtime function is the CUDA version that brought it; the _v2 of a driver function is in its name.
    """
    return _RUNTIME_VERSION.sub("", name)


def _coded(kinds: Ints, meaning: tuple[str, ...], kept: tuple[str, ...], otherwise: str) -> NDArray[np.int8]:
    table = np.array([kept.index(name) for name in (*meaning, otherwise)], dtype=np.int8)
    outside = (kinds < 0) | (kinds >= len(meaning))
    return table[np.where(outside, len(meaning), kinds)]
