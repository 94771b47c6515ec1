"""Find recurrent layers that run cell by cell, by gate kernels that repeat at each time step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..model.names import fitting

if TYPE_CHECKING:
    import pandas as pd

# An LSTM cell has three sigmoids and two tanhs, a GRU cell two sigmoids and one tanh; their backward passes as well.
_LEAST_GATES = 3
# At least _LEAST_IN_A_ROW time steps in a row, of at most _MOST_KERNELS kernels each, are a sequence and not layers of
# a model.
_LEAST_IN_A_ROW = 10
_MOST_KERNELS = 40


def cells(names: pd.Index, name: NDArray[np.signedinteger[Any]]) -> int:
    """The number of time steps of recurrent cells among kernels in order. `name`: each kernel's index in `names`.

    A time step has both sigmoids and tanhs, at least three together, and as many kernels as the time step before. Other
    models use only one of these activations, or one per layer."""
    sigmoid = np.flatnonzero(fitting(names, "(?i)sigmoid"))
    tanh = np.flatnonzero(fitting(names, "(?i)tanh"))
    if not len(sigmoid) or not len(tanh):
        return 0
    gates = np.flatnonzero(np.isin(name, sigmoid) | np.isin(name, tanh))
    is_sigmoid = np.isin(name[gates], sigmoid)
    found = 0
    for each in range(_LEAST_GATES, 9):  # number of gates of a cell
        # True while each gate is followed, `each` gates later, by one of its kind at a constant distance in kernels.
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
