"""Values that layers keep beside trained weights, such as moving statistics: each rank computes them from its own
batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..exchange import IN_STREAM
from ..internals.frameworks import hvd, tf, traced_for_each_model
from ..say import once


def is_stateful(model: Any) -> bool:
    """True if a layer keeps the states of sequences for the next batch (`stateful=True` of an RNN)."""
    return any(getattr(layer, "stateful", None) is True for layer in model._flatten_layers())


def average_statistics(model: Any, *, set_by_one: str = "") -> None:
    """Average moving statistics (batch normalisation's) over ranks; values that are equal on all ranks keep their bits.

    Values that users' layers keep (a counter, a maximum, a queue of features) are averaged too, which may be wrong: one
    line names them. Whole numbers stay as they are; one line names those that differ, and sums (`aggregation`).
    set_by_one: given if no rank has taken a step since the values were equal, so that the script must have set them on
    one rank: a phrase that says when, for the line that names the first value that differs.
    """
    if hvd.size() == 1:
        return
    own = _of_own_layers(model)
    floating = [v for v in model.non_trainable_weights if tf.as_dtype(v.dtype).is_floating]
    whole = [v for v in model.non_trainable_weights if id(v) in own and tf.as_dtype(v.dtype).is_integer]
    variables = floating if set_by_one else floating + whole
    if not variables:
        return
    looked_at = [place for place, variable in enumerate(variables) if set_by_one or id(variable) in own]
    unlike = _average_where_unlike([v.value for v in variables], tuple(looked_at))
    if tf.executing_eagerly() and looked_at:
        differing = [place for place, differs in zip(looked_at, unlike.numpy(), strict=True) if differs]
        averaged = [variables[place].path for place in differing if place < len(floating)]
        if set_by_one:
            if averaged:
                once(unlike_before(averaged[0], set_by_one) + "the ranks' values are averaged")
            return
        counts = [v.path for v in model.non_trainable_weights if id(v) in own and _is_counted(v)]
        counts += [variables[place].path for place in differing if place >= len(floating)]
        _tell_of_own(averaged, list(dict.fromkeys(counts)))


def _is_counted(variable: Any) -> bool:
    """True for a sum over ranks, by its `aggregation`, that has been counted."""
    return variable.aggregation == "sum" and bool(np.any(variable.numpy()))


def _tell_of_own(averaged: Sequence[str], counts: Sequence[str]) -> None:
    """Print a line on values that the ranks have averaged, and one on counts that each rank keeps (paths)."""
    if averaged:
        once(
            f"each rank has computed {', '.join(averaged)} from its own batches; the ranks' values are averaged "
            "before evaluation and after each epoch. If they are not averages, combine them yourself "
            "(hvd.allgather, hvd.allreduce)"
        )
    if counts:
        once(
            f"each rank has counted {', '.join(counts)} on its own batches alone; the ranks' counts are not summed. "
            "To count on the batches of all ranks, make the weight without aggregation='sum', and add ring.sum(number) "
            "to it in place of the number"
        )


def unlike_before(name: str, when: str) -> str:
    return (
        f"{name} differs between the ranks {when}, although no rank has taken a step since they were equal: the script "
        "has set it on one rank only, or from that rank's batches; set the same value on all ranks. "
    )


def _of_own_layers(model: Any) -> set[int]:
    """Ids of the variables that users' layers hold and do not train."""
    own = [layer for layer in model._flatten_layers() if not type(layer).__module__.startswith("keras.")]
    return {id(variable) for layer in own for variable in layer._non_trainable_variables}


@tf.function(autograph=False)
def _average_where_unlike(variables: Sequence[Any], looked_at: tuple[int, ...]) -> Any:
    """Average the floating-point variables that differ between ranks. Returns (len(looked_at),) bool: True for
    variables at these places that differed."""
    wide = any(v.dtype == tf.float64 or not v.dtype.is_floating for v in variables)
    widest = tf.float64 if wide else tf.float32
    flat = tf.concat([tf.reshape(tf.cast(v, widest), [-1]) for v in variables], axis=0)
    highest, not_lowest = tf.split(_over_ranks(tf.concat([flat, -flat], axis=0), hvd.Max, "extremes"), 2)
    differs = highest != -not_lowest
    sizes = [v.shape.num_elements() for v in variables]
    agreed = tf.split(tf.where(differs, _over_ranks(flat, hvd.Average, "mean"), flat), sizes)
    for variable, values in zip(variables, agreed, strict=True):
        if variable.dtype.is_floating:
            variable.assign(tf.cast(tf.reshape(values, variable.shape), variable.dtype))
    if not looked_at:
        return tf.zeros([0], tf.bool)
    parts = tf.split(differs, sizes)
    return tf.stack([tf.reduce_any(parts[place]) for place in looked_at])


def _over_ranks(values: Any, op: Any, name: str) -> Any:
    return hvd.allreduce(values, op=op, name=f"{IN_STREAM}_{name}")


traced_for_each_model(_average_where_unlike)
