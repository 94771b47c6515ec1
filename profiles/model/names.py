"""Find names that match a pattern. Results are cached, since the recordings of a run's ranks hold the same names.

Letters, digits and words in patterns are ASCII. A pattern must match in a time linear in the name's length, since
a recording may hold any name. So a pattern with `\\w*` or `.*` on both sides of a word needs a look-ahead or a
bound on the repetition (tests/readers/test_long_names.py).
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

# With more names or bytes than this, RE2 matches all names without a cache: they are numbered ranges or long
# templates, which other recordings do not share.
_FEW: Final = 4_096
_SHORT: Final = 1 << 18
# id of an index -> its names as a tuple. pandas would convert the names anew at each access.
_texts: Final[dict[int, tuple[weakref.ref[pd.Index] | None, tuple[str, ...] | None]]] = {}
_LOOKS_AROUND: Final = re.compile(r"\(\?<?[=!]")
_BRACKETS: Final = re.compile(r"\\.|[()]", re.DOTALL)

_Told = TypeVar("_Told")


def fitting(names: pd.Index, pattern: str) -> NDArray[np.bool_]:
    """True for each name that contains a match of the regular expression."""
    return _fits(names, pattern, whole=False)


def wholly(names: pd.Index, pattern: str) -> NDArray[np.bool_]:
    """True for each name that the regular expression matches as a whole."""
    return _fits(names, pattern, whole=True)


def rows_of(codes: NDArray[np.signedinteger], fits: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """True for each row whose name matches. `codes`: for each row, the index into `fits`, or -1 for no name (False)."""
    found: NDArray[np.bool_] = np.append(fits, False)[codes]
    return found


def rows_named(table: pd.DataFrame, pattern: str, pid: int | None = None, *, whole: bool = False) -> NDArray[np.int64]:
    """Indices of the rows whose name matches; with `whole`, as a whole. `pid`: of this process only; None: of all."""
    names = table["name"].cat
    fits = _fits(names.categories, pattern, whole)
    rows = np.flatnonzero(rows_of(names.codes.to_numpy(), fits)) if fits.any() else np.empty(0, np.int64)
    return rows if pid is None else rows[table["pid"].to_numpy()[rows] == pid]


def _fits(names: pd.Index, pattern: str, whole: bool) -> NDArray[np.bool_]:
    if (few := _few(names)) is not None:
        return _few_fit(pattern, whole, few)
    import pyarrow as pa
    import pyarrow.compute as pc

    # RE2 is fifty times as fast as `re`, but has no lookaround: it finds candidates, which `re` checks again.
    loose = _without_looks(pattern)
    asked = rf"\A(?:{loose})\z" if whole else loose
    found: NDArray[np.bool_] = np.array(pc.match_substring_regex(pa.array(names.array), asked), bool)
    if loose != pattern:
        look = _look(pattern, whole)
        found[found] = [look(name) is not None for name in names[found].tolist()]
    return found


@lru_cache(maxsize=1 << 10)
def _without_looks(pattern: str) -> str:
    """The pattern without lookaround, for RE2: it matches all that `pattern` matches, and perhaps more."""
    while look := _LOOKS_AROUND.search(pattern):
        depth, end = 1, look.end()
        while depth and (bracket := _BRACKETS.search(pattern, end)):
            depth += {"(": 1, ")": -1}.get(bracket[0], 0)
            end = bracket.end()
        pattern = pattern[: look.start()] + pattern[end:]
    return re.sub(r"(?<!\\)\$", r"\\n?\\z", pattern)


def _few(names: pd.Index) -> tuple[str, ...] | None:
    """The names of an index as a tuple, cached; None if there are many, or long ones."""
    key = id(names)
    whose, texts = _texts.get(key, (None, None))
    if whose is None or whose() is not names:
        texts = tuple(names.tolist()) if len(names) <= _FEW and names.nbytes <= _SHORT else None
        _texts[key] = weakref.ref(names, lambda _: _texts.pop(key, None)), texts
    return texts


def once_for_few(told: Callable[[pd.Index], _Told]) -> Callable[[pd.Index], _Told]:
    """Decorate a function of an index of names: its result is cached if the names are few, since ranks share them. The
    function must return an immutable value."""

    @lru_cache(maxsize=8)
    def of_few(names: tuple[str, ...]) -> _Told:
        import pandas as pd

        return told(pd.Index(names, dtype="str"))

    def of(names: pd.Index) -> _Told:
        return told(names) if (few := _few(names)) is None else of_few(few)

    return wraps(told)(of)


@lru_cache(maxsize=1 << 8)
def _few_fit(pattern: str, whole: bool, names: tuple[str, ...]) -> NDArray[np.bool_]:
    """True for each name that matches. Cached, since each table is searched again and again."""
    found = np.fromiter((_one_fits(pattern, whole, name) for name in names), bool, len(names))
    found.setflags(write=False)
    return found


@lru_cache(maxsize=1 << 17)
def _one_fits(pattern: str, whole: bool, name: str) -> bool:
    return _look(pattern, whole)(name) is not None


def _look(pattern: str, whole: bool) -> Callable[[str], re.Match[str] | None]:
    compiled = re.compile(pattern, re.ASCII)
    return compiled.fullmatch if whole else compiled.search
