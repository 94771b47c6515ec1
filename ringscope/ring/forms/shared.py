"""One constant in the place of equal ones. TensorFlow adds a constant to the graph for each shape, axis and index that
an operation takes: a quarter of the operations of a GPT-2's step, of some fifty values.

Only whole numbers are shared. If a script's gradient tape watches a constant of floating-point numbers, its gradient
must not have the parts of equal constants.
"""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from ..internals.frameworks import tf
from ..internals.laid_over import laid_over

MOST = 16  # numbers; larger constants are rarely equal
NUMBERS = (int, np.int32)  # of both TensorFlow makes the same constants


def constants() -> AbstractContextManager[None]:
    """Within this context, equal constants of whole numbers in the current graph are one tensor. Graphs of loops in it
    keep their own."""
    from tensorflow.python.framework import ops

    own, graph = ops._create_graph_constant, tf.compat.v1.get_default_graph
    now = graph()
    known: dict[Hashable, Any] = {}

    def create(value: Any, dtype: Any, shape: Any, *given: Any, **options: Any) -> Any:
        numbers = _numbers(value) if shape is None and graph() is now else None
        if numbers is None:
            return own(value, dtype, shape, *given, **options)
        key = dtype, numbers
        if key not in known:
            made = own(value, dtype, shape, *given, **options)
            if not made.dtype.is_integer:
                return made
            known[key] = made
        return known[key]

    return laid_over(ops, _create_graph_constant=create)


def _numbers(value: Any) -> Hashable | None:
    """A few whole numbers as a key, which differs for a number, a list and an array; None for any other value."""
    if type(value) in NUMBERS:
        return int(value)
    if isinstance(value, (list, tuple)):
        return tuple(value) if len(value) <= MOST and all(type(each) in NUMBERS for each in value) else None
    if isinstance(value, (np.ndarray, np.integer)) and value.dtype.kind in "iu" and value.size <= MOST:
        return value.dtype.str, value.shape, value.tobytes()
    return None
