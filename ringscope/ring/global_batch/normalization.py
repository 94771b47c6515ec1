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
    forward pass and one in the backward pass. Distances avoid cancellation where the mean is large, as in
    `tf.nn.sufficient_statistics`.
    """
    layer.__dict__[TAKEN] = True
    axis = layer.axis % len(inputs.shape)
    along = [-1 if dimension == axis else 1 for dimension in range(len(inputs.shape))]
    shift = tf.cast(tf.convert_to_tensor(layer.moving_mean), inputs.dtype)
    distances = inputs - tf.reshape(shift, along)
    weights = tf.ones_like(inputs) if mask is None else tf.cast(mask, inputs.dtype)[..., tf.newaxis] + 0 * inputs
    axes = layer._reduction_axes
    own = [tf.reduce_sum(values, axes) for values in (weights, weights * distances, weights * distances**2)]
    count, total, squares = tf.unstack(sum_over_ranks(tf.stack(own), "moments"), num=3)
    mean = tf.math.divide_no_nan(total, count)
    variance = tf.maximum(tf.math.divide_no_nan(squares, count) - mean**2, 0)
    return mean + shift, variance
