"""Batch normalisation over the batches of all ranks, as `BatchNormalization(synchronized=True)` asks for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from profiles.ground.errors import RingscopeError

from ..exchange import sum_over_ranks
from ..internals.frameworks import tf
from ..internals.laid_over import STAYS, laid_over
from ..internals.seams import unmet

TAKEN = "moments_by_ring"  # attribute of a layer whose call has computed its moments over all ranks


def _layers(model: Any) -> list[Any]:
    from keras.layers import BatchNormalization

    return [
        layer
        for layer in model._flatten_layers(include_self=False)
        if isinstance(layer, BatchNormalization) and getattr(layer, "synchronized", False)
    ]


def is_synchronised(model: Any) -> bool:
    """True if the forward pass exchanges moments between ranks; XLA cannot compile such an exchange."""
    return bool(_layers(model))


def synchronise(model: Any) -> None:
    """Make the model's synchronised layers compute their moments over all ranks in every later step."""
    for layer in _layers(model):
        layer.__dict__["_moments"] = partial(moments_over_ranks, layer)
        layer.__dict__["call"] = partial(_called, layer)


def _called(layer: Any, inputs: Any, training: Any = None, mask: Any = None) -> Any:
    """Keras's own call of the layer. Raises RingscopeError if it did not take the moments over all ranks, because each
    rank would silently use its own."""
    layer.__dict__.pop(TAKEN, None)
    outputs = type(layer).call(layer, inputs, training=training, mask=mask)
    if training and layer.trainable and not layer.__dict__.pop(TAKEN, False):
        raise RingscopeError(unmet("keras.layers.BatchNormalization._moments", "normalisation over all ranks"))
    return outputs


@contextmanager
def alone(model: Any) -> Iterator[None]:
    """Within this context, synchronised layers take the moments of this rank's batch alone, because other ranks may not
    be computing."""
    with ExitStack() as stack:
        for layer in _layers(model):
            own = {name: getattr(type(layer), name).__get__(layer) for name in ("_moments", "call")}
            stack.enter_context(laid_over(layer, STAYS, **own))
        yield


def moments_over_ranks(layer: Any, inputs: Any, mask: Any) -> tuple[Any, Any]:
    """Mean and variance (channels,) over the inputs of all ranks; masked inputs do not count.

    Ranks sum counts, sums and sums of squares of the inputs' distances from the moving mean: by one exchange in the
    forward pass and one in the backward pass. A mean far from the moving mean would cost the variance its digits. So a
    rank takes sums of distances from its own mean, and moves them to the shared moving mean in float64.
    """
    layer.__dict__[TAKEN] = True
    axes = layer._reduction_axes
    along = [1 if dimension in axes else -1 for dimension in range(inputs.shape.rank)]
    counts = None if mask is None else tf.broadcast_to(tf.cast(mask, tf.bool)[..., tf.newaxis], tf.shape(inputs))

    def kept(values: Any) -> Any:
        return values if counts is None else tf.where(counts, values, tf.zeros((), values.dtype))

    count = tf.reduce_sum(kept(tf.ones_like(inputs)), axes)
    near = tf.stop_gradient(tf.math.divide_no_nan(tf.reduce_sum(kept(inputs), axes), count))
    distances = kept(inputs - tf.reshape(near, along))
    own = count, tf.reduce_sum(distances, axes), tf.reduce_sum(tf.square(distances), axes)
    count, total, squares = (tf.cast(each, tf.float64) for each in own)
    shared = tf.cast(tf.convert_to_tensor(layer.moving_mean), tf.float64)
    far = tf.cast(near, tf.float64) - shared
    moved = [count, total + count * far, squares + (2 * total + count * far) * far]
    count, total, squares = tf.unstack(sum_over_ranks(tf.stack(moved), "moments"), num=3)
    mean = tf.math.divide_no_nan(total, count)
    variance = tf.maximum(tf.math.divide_no_nan(squares, count) - tf.square(mean), 0)
    return tf.cast(mean + shared, inputs.dtype), tf.cast(variance, inputs.dtype)
