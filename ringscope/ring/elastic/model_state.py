"""The state of a model that is committed and restored: weights, optimizer state, and the metrics' counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from profiles.ground.errors import RingscopeError

from ..global_batch.metrics import is_summed, sums
from ..internals.frameworks import hvd, tf
from ..models import has_weights, optimizers_of, without_loss_scale
from ..say import once


def state_of(model: Any, rates: Sequence[float | None]) -> dict[str, Any]:
    """The model's values, copied to the host. rates: the learning rates that the script set for this number of
    ranks."""
    return {
        "weights": _copies(model.variables),
        "optimizers": [_copies(optimizer.variables) for optimizer in optimizers_of(model)],
        "rates": list(rates),
    }


def give_back(model: Any, state: dict[str, Any], rates: Sequence[float | None]) -> None:
    """Restore a model's committed state. Raises RingscopeError if the model differs from the committed one.

    If the script, or `scale_learning_rate`, now sets another learning rate because the number of ranks is another one,
    the committed rate changes in proportion, so that changes by callbacks remain.
    """
    optimizers = optimizers_of(model)
    if not has_weights(model) or len(optimizers) != len(state["optimizers"]):
        raise _another()
    for optimizer, values in zip(optimizers, state["optimizers"], strict=True):
        if not optimizer.built and values:
            if len(optimizers) > 1:
                raise RingscopeError(
                    "ring does not know which weights each of several optimizers updates; under elastic Horovod call"
                    " optimizer.build(variables) before fit"
                )
            optimizer.build(model.trainable_variables)
    pairs = [(model.variables, state["weights"])]
    pairs += zip((each.variables for each in optimizers), state["optimizers"], strict=True)
    for variables, values in pairs:
        if len(variables) != len(values):
            raise _another()
        for variable, value in zip(variables, values, strict=True):
            if tuple(variable.shape) != value.shape:
                raise _another()
            variable.assign(value)
    for optimizer, was, now in zip(optimizers, state["rates"], rates, strict=True):
        committed = _rate(without_loss_scale(optimizer))
        if was and now and committed and was != now:
            without_loss_scale(optimizer).learning_rate = committed * now / was
            once(f"the learning rate goes from {committed:.6g} to {committed * now / was:.6g} with the number of ranks")


def learning_rates(model: Any) -> list[float | None]:
    """The learning rate of each optimizer; None for a schedule, which depends on the number of steps."""
    return [_rate(without_loss_scale(optimizer)) for optimizer in optimizers_of(model)]


def _rate(optimizer: Any) -> float | None:
    from keras.optimizers.schedules import LearningRateSchedule

    return None if isinstance(optimizer._learning_rate, LearningRateSchedule) else float(optimizer.learning_rate)


def _another() -> RingscopeError:
    return RingscopeError(
        "the script made another model than the committed one; elastic Horovod starts it again when ranks come or "
        "go, and it must then make the same model (ring.init() gives it the same random numbers)"
    )


def _copies(variables: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    return [_plain(np.array(variable)) for variable in variables]


def _plain(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array in a type that NumPy knows: bfloat16 and float8 become float32, which represents them exactly."""
    return value.astype(np.float32) if value.dtype.kind == "V" else value


def counts_of(model: Any) -> list[np.ndarray[Any, Any]]:
    """The counts of the metrics in this epoch, summed over ranks; all ranks must call it."""
    own = [np.array(variable, np.float64) for variable in model.metrics_variables]
    return sums(own, "counts") if own else own


def add_counts(model: Any, counts: Sequence[np.ndarray[Any, Any]]) -> None:
    """Add the counts to the metrics of rank 0, since the sum over ranks is taken later. Call this after a first step,
    because metrics have no variables before."""
    if hvd.rank() == 0:
        for variable, value in zip(model.metrics_variables, counts, strict=True):
            if is_summed(variable):
                variable.assign(tf.cast(np.asarray(variable) + value, variable.dtype))
