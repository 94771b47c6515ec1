"""Turn ids of strings into categorical columns, without ever holding one string per row."""

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
    """The strings of a recording by id. A code is the index of a string in `texts`; -1 for an id without a string.
    `numbers`: int64[n], the ids. `texts`: an Arrow array of binary, length n."""

    def __init__(self, numbers: NDArray[np.int64], texts: Any) -> None:
        self._texts = texts
        self.dtype = "int16" if len(numbers) < 1 << 15 else "int32"
        self._order = np.argsort(numbers, kind="stable")
        self._numbers = numbers[self._order]
        # Ids from 0 to a few times their count are looked up in a table: five times as fast as binary search.
        self._table: Codes | None = None
        if len(numbers) and self._numbers[0] >= 0 and self._numbers[-1] < 8 * len(numbers) + (1 << 21):
            self._table = np.full(self._numbers[-1] + 2, -1, dtype=self.dtype)
            self._table[self._numbers] = self._order

    def codes(self, numbers: NDArray[np.int64]) -> Codes:
        if self._table is not None:
            last = len(self._table) - 1  # the last entry of the table is -1, for all other ids
            inside = (numbers >= 0) & (numbers < last)
            return self._table[numbers if inside.all() else np.where(inside, numbers, last)]
        if not len(self._numbers):
            return np.full(len(numbers), -1, dtype=self.dtype)
        place = np.searchsorted(self._numbers, numbers).clip(max=len(self._numbers) - 1)
        return np.where(self._numbers[place] == numbers, self._order[place], -1).astype(self.dtype)

    def categorical(self, codes: Codes, named: Callable[[str], str] | None = None) -> pd.Categorical:
        """A categorical of the strings with these codes, each renamed by `named`; code -1 becomes UNKNOWN."""
        import pyarrow as pa

        used = np.zeros(len(self._numbers) + 1, dtype=bool)
        used[codes] = True  # code -1 takes the last entry
        known = np.flatnonzero(used[:-1])
        distinct = self._texts.take(pa.array(known)).dictionary_encode()
        texts = [value.decode("utf-8", "replace") for value in distinct.dictionary.to_pylist()]
        if named:
            texts = [named(text) for text in texts]
        place = np.full(len(self._numbers) + 1, len(texts), dtype=self.dtype)
        place[known] = distinct.indices.to_numpy()
        return categorical(place[codes], [*texts, UNKNOWN] if used[-1] else texts)


def categorical(codes: NDArray[Any], texts: Sequence[str]) -> pd.Categorical:
    """A categorical from codes, which are indices into `texts`; texts may repeat."""
    order = list(dict.fromkeys(texts))
    if len(order) < len(texts):
        place = {text: index for index, text in enumerate(order)}
        codes = np.array([place[text] for text in texts], dtype=np.int32)[codes]
    dtype = _of_few(tuple(order)) if len(order) <= _FEW else _of(order)
    return pd.Categorical.from_codes(codes, dtype=dtype)


@lru_cache(maxsize=1 << 7)
def _of_few(texts: tuple[str, ...]) -> pd.CategoricalDtype:
    """`_of`, cached: all ranks have the same names, and making their dtype takes longer than coding a small table."""
    return _of(texts)


def _of(texts: Sequence[str]) -> pd.CategoricalDtype:
    return pd.CategoricalDtype(pd.Index(texts, dtype="str"))


def either(first: pd.Categorical, second: pd.Categorical, use_first: NDArray[np.bool_]) -> pd.Categorical:
    """A categorical with the value of `first` in rows where `use_first` is True, else that of `second`."""
    codes = np.where(use_first, first.codes, second.codes.astype(np.int32) + len(first.categories))
    return categorical(codes, [*first.categories, *second.categories]).remove_unused_categories()
