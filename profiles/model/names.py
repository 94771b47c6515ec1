"""Which of some names fit a pattern. Recordings of a run's ranks hold the same names: each is looked at once."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

# More names than this are looked at by pandas, all anew: they are numbered ranges, which nobody else has.
_FEW: Final = 4_096


def fitting(names: pd.Index, pattern: str) -> NDArray[np.bool_]:
    """Of each name, is the regular expression found in it?"""
    if len(names) > _FEW:
        return np.asarray(names.str.contains(pattern, regex=True), dtype=bool)
    return np.fromiter((_searched(pattern, name) for name in names.tolist()), bool, len(names))


def wholly(names: pd.Index, pattern: str) -> NDArray[np.bool_]:
    """Of each name, does the regular expression fit all of it?"""
    if len(names) > _FEW:
        return np.asarray(names.str.fullmatch(pattern), dtype=bool)
    return np.fromiter((_matched(pattern, name) for name in names.tolist()), bool, len(names))


def rows_of(codes: NDArray[np.signedinteger], fits: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Of each row, does its name fit? A code of -1 is no name."""
    found: NDArray[np.bool_] = np.append(fits, False)[codes]
    return found


@lru_cache(maxsize=1 << 17)
def _searched(pattern: str, name: str) -> bool:
    return re.search(pattern, name) is not None


@lru_cache(maxsize=1 << 17)
def _matched(pattern: str, name: str) -> bool:
    return re.fullmatch(pattern, name) is not None
