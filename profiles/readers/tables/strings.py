"""Names as categories: from numbered strings to codes without ever holding a string a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

UNKNOWN = "(unknown)"
_FEW = 1_000

Codes = NDArray[np.signedinteger[Any]]


class Strings:
    """The numbered strings of a recording. A code is the place of a string here, -1 for a number without one.

    numbers: int64[n]; texts: an Arrow array of binary, length n.
    """

    def __init__(self, numbers: NDArray[np.int64], texts: Any) -> None:
        self._texts = texts
        self.dtype = "int16" if len(numbers) < 1 << 15 else "int32"
        self._order = np.argsort(numbers, kind="stable")
        self._numbers = numbers[self._order]
        # Numbers from 0 to a few times their count are looked up in a table, which is five times faster.
        self._table: Codes | None = None
        if len(numbers) and self._numbers[0] >= 0 and self._numbers[-1] < 8 * len(numbers) + (1 << 21):
            self._table = np.full(self._numbers[-1] + 2, -1, dtype=self.dtype)
            self._table[self._numbers] = self._order

    def codes(self, numbers: NDArray[np.int64]) -> Codes:
        if self._table is not None:
            last = len(self._table) - 1  # holds -1
            inside = (numbers >= 0) & (numbers < last)
            return self._table[numbers if inside.all() else np.where(inside, numbers, last)]
        if not len(self._numbers):
            return np.full(len(numbers), -1, dtype=self.dtype)
        place = np.searchsorted(self._numbers, numbers).clip(max=len(self._numbers) - 1)
        return np.where(self._numbers[place] == numbers, self._order[place], -1).astype(self.dtype)

    def categorical(self, codes: Codes, named: Callable[[str], str] | None = None) -> pd.Categorical:
        """Categories of the strings that occur, by `named`; UNKNOWN where the code is -1."""
        import pyarrow as pa

        used = np.zeros(len(self._numbers) + 1, dtype=bool)
        used[codes] = True  # the last is that of -1
        known = np.flatnonzero(used[:-1])
        distinct = self._texts.take(pa.array(known)).dictionary_encode()
        texts = [value.decode("utf-8", "replace") for value in distinct.dictionary.to_pylist()]
        if named:
            texts = [named(text) for text in texts]
        place = np.full(len(self._numbers) + 1, len(texts), dtype=self.dtype)
        place[known] = distinct.indices.to_numpy()
        return categorical(place[codes], [*texts, UNKNOWN] if used[-1] else texts)


def categorical(codes: NDArray[Any], texts: Sequence[str]) -> pd.Categorical:
    """Codes into texts, of which several may be equal."""
    order = list(dict.fromkeys(texts))
    if len(order) < len(texts):
        place = {text: index for index, text in enumerate(order)}
        codes = np.array([place[text] for text in texts], dtype=np.int32)[codes]
    dtype = _of_few(tuple(order)) if len(order) <= _FEW else _of(order)
    return pd.Categorical.from_codes(codes, dtype=dtype)


@lru_cache(maxsize=1 << 7)
def _of_few(texts: tuple[str, ...]) -> pd.CategoricalDtype:
    """The names of ranks are the same, and to make pandas's texts of them takes longer than a small table's codes."""
    return _of(texts)


def _of(texts: Sequence[str]) -> pd.CategoricalDtype:
    return pd.CategoricalDtype(pd.Index(texts, dtype="str"))


def either(first: pd.Categorical, second: pd.Categorical, use_first: NDArray[np.bool_]) -> pd.Categorical:
    """Row by row one of two categoricals."""
    codes = np.where(use_first, first.codes, second.codes.astype(np.int32) + len(first.categories))
    return categorical(codes, [*first.categories, *second.categories]).remove_unused_categories()
