"""Find out whether the variables of a user's metric can be summed over ranks: once, while a step is traced.

A maximum, a running mean or a last value begins at 0 like a count, but its value after two batches is not the sum of
its values after each batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np

from profiles.ground.errors import RingscopeError

from ..internals.frameworks import tf
from ..internals.laid_over import STAYS, laid_over
from ..say import once
from .metrics import flat_metrics, is_summed
from .trial import made_rows, tried

ROWS = 16
NEAR, NEAR_IN_16_BITS = 1e-3, 0.05  # relative tolerance, for losses
TRIED = "tried_by_ring"  # attribute of a metric that was tried


@contextmanager
def metrics_tried(model: Any) -> Iterator[None]:
    """Within this context, each metric that is not Keras's is tried before its first update."""
    with ExitStack() as stack:
        for metric in flat_metrics(model):
            if not type(metric).__module__.startswith("keras.") and TRIED not in vars(metric):
                stack.enter_context(laid_over(metric, STAYS, update_state=_checked(metric)))
        yield


def _checked(metric: Any) -> Callable[..., Any]:
    """The metric's `update_state`, which tries the metric first."""
    update = metric.update_state

    def update_state(*args: Any, **kwargs: Any) -> Any:
        _check(metric, partial(_left_by, metric, update), args, kwargs)
        updated = update(*args, **kwargs)
        if not metric.variables:
            once(f"metric {metric.name!r} keeps no variables, so each rank's result covers only that rank's data")
        return updated

    return update_state


def _check(metric: Any, left_by: Callable[..., list[Any]], args: Any, kwargs: Any) -> None:
    """Raise RingscopeError if the metric's variables after two made-up batches are not the sum of what each batch
    gives."""
    if TRIED in vars(metric):
        return
    metric.__dict__[TRIED] = True
    places = [i for i, variable in enumerate(metric.variables) if is_summed(variable)]
    random = np.random.default_rng(0)
    given = args, {name: value for name, value in kwargs.items() if value is not None}
    one, other = (made_rows(given, random, ROWS) for _ in range(2))
    if not places or one is None:
        return

    def values() -> list[list[Any]]:
        zeros = [tf.zeros(variable.shape, variable.dtype) for variable in metric.variables]
        ones, others = left_by(zeros, one), left_by(zeros, other)
        lefts = ones, others, left_by(ones, other), left_by(ones, other)
        return [[np.asarray(left[i], np.float64) for i in places] for left in lefts]

    found = tried(values, "/CPU:0")
    if found is None:
        return
    for place, first, second, both, again in zip(places, *found, strict=True):
        variable = metric.variables[place]
        near = NEAR if tf.as_dtype(variable.dtype).size > 2 else NEAR_IN_16_BITS
        off, size = np.abs(both - (first + second)), np.abs(first) + np.abs(second)
        told = np.all(np.isfinite(both)) and np.array_equal(both, again)  # a metric that draws noise says nothing here
        if told and np.any(off > near * size + 1e-6):
            raise RingscopeError(
                f"metric {metric.name!r} keeps no sum in {variable.name!r}: after two batches the variable is not the "
                "sum of what each batch adds, so ranks cannot be summed; keep sums and counts and divide in result(), "
                "or make it with add_variable(..., aggregation='mean' or 'none')"
            )


def _left_by(metric: Any, update: Callable[..., Any], state: list[Any], batch: Any) -> list[Any]:
    """The values of the metric's variables after this batch, starting from `state`. The metric itself keeps its
    values."""
    from keras import StatelessScope

    args, kwargs = tf.nest.map_structure(tf.constant, batch)
    with StatelessScope(state_mapping=list(zip(metric.variables, state, strict=True))) as scope:
        update(*args, **kwargs)
        return [scope.get_current_value(variable) for variable in metric.variables]
