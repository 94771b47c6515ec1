"""Group the elements of an array by value."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray


def by_value(values: NDArray[np.signedinteger[Any]]) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """Each distinct value, ascending, and the indices of its elements, ascending. It takes one sort, however many
    values there are."""
    order = np.argsort(values, kind="stable")
    inside = values[order]
    for rows in np.split(order, np.flatnonzero(inside[1:] != inside[:-1]) + 1) if len(order) else ():
        yield int(values[rows[0]]), rows


def rows_by_value(values: NDArray[np.signedinteger[Any]]) -> defaultdict[int, NDArray[np.intp]]:
    """As `by_value`, by value; a value that no element has gets no indices."""
    return defaultdict(lambda: np.empty(0, np.intp), by_value(values))
