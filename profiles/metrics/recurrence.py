"""Recurrent layers that run cell by cell: the same gates, kernel for kernel, time step after time step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..model.names import fitting

if TYPE_CHECKING:
    import pandas as pd

# An LSTM's cell has three sigmoids and two tanhs, a GRU's two and one; their backward passes likewise.
_LEAST_GATES = 3
# Time steps in a row, and kernels from one to the next: cells of a sequence, not layers of a model.
_LEAST_IN_A_ROW = 10
_MOST_KERNELS = 40


def cells(names: pd.Index, name: NDArray[np.signedinteger[Any]]) -> int:
    """Time steps of recurrent cells among kernels, of which `name` is the place in `names`, in runs of equal ones.

    A time step has sigmoids and tanhs, three at least together, and as many kernels as the one before. Activations of
    other models have one of the two, or one a layer.
    """
    sigmoid = np.flatnonzero(fitting(names, "(?i)sigmoid"))
    tanh = np.flatnonzero(fitting(names, "(?i)tanh"))
    if not len(sigmoid) or not len(tanh):
        return 0
    gates = np.flatnonzero(np.isin(name, sigmoid) | np.isin(name, tanh))
    is_sigmoid = np.isin(name[gates], sigmoid)
    found = 0
    for each in range(_LEAST_GATES, 9):  # gates of a cell
        # The gate `each` later is as far away, and of the same kind, as for the one before.
        if len(gates) <= 2 * each:
            break
        far = gates[each:] - gates[:-each]
        same = (is_sigmoid[each:] == is_sigmoid[:-each]) & (far <= _MOST_KERNELS)
        same[1:] &= far[1:] == far[:-1]
        mixed = np.convolve(is_sigmoid, np.ones(each, np.int64), "valid")[: len(same)]
        same &= (mixed > 0) & (mixed < each)
        edges = np.flatnonzero(np.diff(np.concatenate(([0], same.astype(np.int8), [0]))))
        runs = edges[1::2] - edges[::2]
        found = max(found, int((runs[runs >= _LEAST_IN_A_ROW * each] // each).sum()))
    return found
