"""Sums over the samples of all ranks: `ring.sum` and `ring.mean`, and the sums of a step that is traced.

The mean of the ranks' gradients must equal the joined batch's gradient. So a sum has the value over all ranks, and the
gradient of the rank's own sum times the number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from profiles.ground.errors import RingscopeError

from ..exchange import name_in_graph, on_host, outside_scopes, summed_as
from ..internals.frameworks import hvd, tf

__all__ = ["Share", "looked_for", "mean", "of_all", "one", "shared_inline", "sharing", "sum"]

Share = Callable[[Any], Any]
"""This rank's denominator -> the one of all ranks together."""

_shares: list[Share] = []  # of the steps that are traced now
_looked_for: list[list[Any]] = []  # not empty: while a function is tried, ranks exchange nothing


def sum(values: Any, axis: Any = None) -> Any:  # as `tf.reduce_sum`
    """The sum of these over the samples of all ranks: along `axis`, or of all elements. For a loss that divides by it.

    To be called on all ranks. Its gradient, averaged over ranks as the optimizer does, is that of the joined batch.
    """
    own = tf.reduce_sum(tf.convert_to_tensor(values), axis)
    if _looked_for:
        own = tf.identity(own)
        _looked_for[-1].append(own)
        return own
    if hvd.size() == 1:
        return own
    return of_all(own, _shares[-1] if _shares else shared_inline, hvd.size())


def mean(values: Any, weights: Any = None) -> Any:
    """The mean of these over the samples of all ranks, weighted or masked by `weights` if there are any; 0 where all
    weights are. To be called on all ranks; gradients are as with `ring.sum`.

    Raises RingscopeError where values and weights are not of one shape, or of shapes that fit by broadcasting.
    """
    values = tf.convert_to_tensor(values)
    if weights is None:
        return sum(values) / sum(tf.cast(tf.size(values), values.dtype))
    try:
        weights = tf.cast(weights, values.dtype) * tf.ones_like(values)
    except (ValueError, tf.errors.InvalidArgumentError) as error:
        raise RingscopeError(
            f"ring.mean of values of shape {values.shape} with weights of {tf.shape(weights)}: give both the same shape"
        ) from error
    # A masked value may be anything, as the logarithm of a label that is none.
    return tf.math.divide_no_nan(sum(tf.math.multiply_no_nan(values, weights)), sum(weights))


def of_all(own: Any, share: Share, ranks: int) -> Any:
    """A sum of this rank's -> that of all, with as many times its own gradient."""
    if not own.dtype.is_floating:
        return tf.cast(share(tf.cast(own, tf.float32)), own.dtype)
    many = own * ranks
    return share(tf.stop_gradient(own)) + (many - tf.stop_gradient(many))


def shared_inline(own: Any, name: str | None = None) -> Any:
    # Shapes are known on the host, and these few bytes are not worth a launch of NCCL.
    with outside_scopes(), on_host():
        everybodys = tf.cast(own, summed_as(own.dtype)) * tf.cast(one(), summed_as(own.dtype))
        total = hvd.allreduce(everybodys, op=hvd.Sum, name=name or name_in_graph("denominator"))
        return tf.cast(total, own.dtype)


@cache
def one() -> Any:
    """A variable that is 1. A batch of a fixed shape has a constant denominator, and TensorFlow takes an all-reduce of
    a constant for a constant too: it would exchange it once, while it optimises the graph, and no more. A rank that met
    a batch of another shape alone then waited for ever for ranks which had theirs already."""
    with tf.init_scope():
        return tf.Variable(1.0, trainable=False, name="one")


@contextmanager
def sharing(share: Share) -> Iterator[None]:
    """While it lasts, sums of all ranks are taken so."""
    _shares.append(share)
    try:
        yield
    finally:
        _shares.pop()


@contextmanager
def looked_for() -> Iterator[list[Any]]:
    """While it lasts `sum` is of this rank alone, and what it gives is kept: other ranks need not try what this one
    does."""
    _looked_for.append([])
    try:
        yield _looked_for[-1]
    finally:
        _looked_for.pop()
