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

Share = Callable[[Any], Any]
"""This rank's denominator -> the denominator of all ranks together."""

_shares: list[Share] = []  # Shares of the steps that are being traced, innermost last
_looked_for: list[list[Any]] = []  # not empty while a function is tried, because then ranks exchange nothing


def sum(values: Any, axis: Any = None) -> Any:  # a name as in `tf.reduce_sum`
    """The sum of `values` over the samples of all ranks: along `axis`, or of all elements. For losses that divide by
    this sum.

    Call it on all ranks. Its gradient, averaged over ranks as the optimizer does, is the gradient of the joined batch.
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
    """The mean of `values` over the samples of all ranks, weighted or masked by `weights`; 0 where all weights are 0.

    Call it on all ranks; gradients are as with `ring.sum`. Raises RingscopeError if the shapes of values and weights do
    not broadcast.
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
    # A masked value may be anything, such as the logarithm of a padding label.
    return tf.math.divide_no_nan(sum(tf.math.multiply_no_nan(values, weights)), sum(weights))


def of_all(own: Any, share: Share, ranks: int) -> Any:
    """The sum over ranks of this rank's sum `own`, with the gradient of `own` times `ranks`."""
    if not own.dtype.is_floating:
        return tf.cast(share(tf.cast(own, tf.float32)), own.dtype)
    many = own * ranks
    return share(tf.stop_gradient(own)) + (many - tf.stop_gradient(many))


def shared_inline(own: Any, name: str | None = None) -> Any:
    # On the host, where shapes are known; these few bytes are not worth a launch of NCCL.
    with outside_scopes(), on_host():
        everybodys = tf.cast(own, summed_as(own.dtype)) * tf.cast(one(), summed_as(own.dtype))
        total = hvd.allreduce(everybodys, op=hvd.Sum, name=name or name_in_graph("denominator"))
        return tf.cast(total, own.dtype)


@cache
def one() -> Any:
    """A variable that is 1, by which a denominator is multiplied so that it is no constant.

    A batch of a fixed shape has a constant denominator, and TensorFlow would fold an all-reduce of a constant while it
    optimises the graph: ranks would exchange once and never again. A rank that alone met a batch of another shape would
    then wait forever.
    """
    with tf.init_scope():
        return tf.Variable(1.0, trainable=False, name="one")


@contextmanager
def sharing(share: Share) -> Iterator[None]:
    """Within this context, sums over all ranks are taken by `share`."""
    _shares.append(share)
    try:
        yield
    finally:
        _shares.pop()


@contextmanager
def looked_for() -> Iterator[list[Any]]:
    """Within this context `sum` covers this rank alone, because other ranks may not try this function; the results of
    `sum` are kept."""
    _looked_for.append([])
    try:
        yield _looked_for[-1]
    finally:
        _looked_for.pop()
