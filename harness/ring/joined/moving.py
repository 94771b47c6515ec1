"""What layers keep beside trained weights: moving statistics, each rank's of its own batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..exchange import IN_STREAM, hvd, tf, traced_for_each_model
from ..say import once

__all__ = ["average_statistics", "is_stateful"]


def is_stateful(model: Any) -> bool:
    """Whether it keeps the states of a batch's sequences for the next batch (`stateful=True` of an RNN)."""
    return any(getattr(layer, "stateful", None) is True for layer in model._flatten_layers())


def average_statistics(model: Any) -> None:
    """Average moving statistics (batch normalisation's) over ranks; weights that agree everywhere keep their bits.

    What layers of the user's own keep (a counter, the largest value, a queue of features) is averaged like them, and
    may be no average: one line names it.
    """
    variables = [v for v in model.non_trainable_weights if tf.as_dtype(v.dtype).is_floating]
    if not variables or hvd.size() == 1:
        return
    unlike = _average_where_unlike([v.value for v in variables])
    own = _of_own_layers(model)
    if tf.executing_eagerly() and any(id(v) in own for v in variables):
        names = [v.path for v, differs in zip(variables, unlike.numpy(), strict=True) if differs and id(v) in own]
        if names:
            once(
                f"each rank has kept {', '.join(names)} of its own batches; the ranks' values are averaged before"
                " evaluation and after each epoch. If they are no averages, write what all ranks have into them"
                " (hvd.allgather, hvd.allreduce)"
            )


def _of_own_layers(model: Any) -> set[int]:
    """The ids of variables that layers of the user's own hold, which are not trained."""
    own = [layer for layer in model._flatten_layers() if not type(layer).__module__.startswith("keras.")]
    return {id(variable) for layer in own for variable in layer._non_trainable_variables}


@tf.function(autograph=False)
def _average_where_unlike(variables: Sequence[Any]) -> Any:
    """Returns (variables,) bool: which were unlike."""
    widest = tf.float64 if any(v.dtype == tf.float64 for v in variables) else tf.float32
    flat = tf.concat([tf.reshape(tf.cast(v, widest), [-1]) for v in variables], axis=0)
    lowest, highest, mean = (
        hvd.allreduce(flat, op=op, name=f"{IN_STREAM}_{name}")
        for name, op in (("min", hvd.Min), ("max", hvd.Max), ("mean", hvd.Average))
    )
    sizes = [v.shape.num_elements() for v in variables]
    agreed = tf.split(tf.where(lowest == highest, flat, mean), sizes)
    for variable, values in zip(variables, agreed, strict=True):
        variable.assign(tf.cast(tf.reshape(values, variable.shape), variable.dtype))
    return tf.stack([tf.reduce_any(part) for part in tf.split(lowest != highest, sizes)])


traced_for_each_model(_average_where_unlike)
