"""Batch normalisation that is traced once for all layers of one kind, and takes its moments in one pass over memory.

Keras traces some 95 operations for a layer and its gradient, 0.03 to 0.07 s of CPU time before every first step: a
third of a NASNetMobile's trace, whose 192 layers differ in nothing but their weights. Here a layer is a call of a
function, and its gradient another. XLA has the calls inlined.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..internals.frameworks import tf
from . import translated


class Kind(NamedTuple):
    """The key of a traced function. shape: of the inputs; open sizes would be computed in the program. wide: the type
    that Keras computes in. axis: of the channels, from the front."""

    shape: tuple[int | None, ...]
    given: Any
    wide: Any
    made: Any
    axis: int
    momentum: float
    epsilon: float
    is_scaled: bool
    is_centred: bool


def fits(layer: Any) -> bool:
    """True for a `BatchNormalization` of one rank whose moments are taken in Keras's own way."""
    from keras.layers import BatchNormalization

    if not isinstance(layer, BatchNormalization) or layer.synchronized or getattr(layer, "renorm", False):
        return False
    own = type(layer)._moments is BatchNormalization._moments and "_moments" not in vars(layer)
    return own and isinstance(layer.momentum, float) and isinstance(layer.epsilon, float)


class Normalized:
    """Replaces the `call` of layers that `fits` allows; one object for a trace of a model."""

    def __init__(self) -> None:
        self._known: dict[Kind, Callable[..., Any]] = {}

    def __call__(
        self, layer: Any, otherwise: Callable[..., Any], inputs: Any, training: Any = None, mask: Any = None
    ) -> Any:
        """A batch's normalised maps, in the layer's type; moving statistics are updated as Keras does. With a mask, or
        where the batch's moments are not asked for, the layer's own call stays."""
        inputs = tf.convert_to_tensor(inputs)
        if mask is not None or training is not True or not layer.trainable or inputs.shape.rank is None:
            return otherwise(inputs, training=training, mask=mask)
        kind = _kind(layer, inputs)
        if kind not in self._known:
            self._known[kind] = _traced(kind)
        weights = [layer.moving_mean, layer.moving_variance, *_scale_and_centre(layer)]
        made, mean, variance = self._known[kind](
            inputs, *(tf.cast(tf.convert_to_tensor(w), kind.wide) for w in weights)
        )
        layer.moving_mean.assign(mean)
        layer.moving_variance.assign(variance)
        return made


def _scale_and_centre(layer: Any) -> list[Any]:
    return [*([layer.gamma] if layer.scale else []), *([layer.beta] if layer.center else [])]


def _kind(layer: Any, inputs: Any) -> Kind:
    from keras.backend import result_type

    wide = result_type(inputs.dtype, "float32")
    settings = layer.axis % inputs.shape.rank, layer.momentum, layer.epsilon, bool(layer.scale), bool(layer.center)
    types = inputs.dtype, tf.as_dtype(wide), tf.as_dtype(layer.compute_dtype)
    return Kind(tuple(inputs.shape), *types, *settings)


def _traced(kind: Kind) -> Callable[..., Any]:
    """A function of inputs, moving mean, moving variance, and the weights that the kind has."""

    def of(inputs: Any, *channels: Any) -> tuple[Any, Any, Any]:
        with translated.in_functions():
            return _computed(kind, inputs, *channels)

    vector = tf.TensorSpec([kind.shape[kind.axis]], kind.wide)
    count = 2 + kind.is_scaled + kind.is_centred
    whole = tf.TensorSpec(kind.shape, kind.given)
    return tf.function(of, autograph=False).get_concrete_function(whole, *[vector] * count)  # type: ignore[no-any-return]


def _computed(kind: Kind, inputs: Any, *channels: Any) -> tuple[Any, Any, Any]:
    """(normalised maps, new moving mean, new moving variance), as Keras's call computes them.

    Moments are those of the distances from a number near the mean, to avoid cancellation where the mean is large.
    """
    moving_mean, moving_variance, *weights = channels
    gamma = weights.pop(0) if kind.is_scaled else None
    beta = weights.pop(0) if kind.is_centred else None
    rank = len(kind.shape)
    axes = [axis for axis in range(rank) if axis != kind.axis]

    def along(channels: Any) -> Any:
        last = kind.axis == rank - 1
        return channels if last else tf.reshape(channels, [-1 if axis == kind.axis else 1 for axis in range(rank)])

    inputs = tf.cast(inputs, kind.wide)
    near = _near(inputs, moving_mean, kind.axis)
    count, total, squares, _ = tf.nn.sufficient_statistics(inputs, axes, shift=along(near))
    share = 1 / count  # TensorFlow's gradient of a mean would divide whole maps
    shifted = total * share
    variance = tf.maximum(squares * share - tf.square(shifted), 0)
    mean = shifted + near
    settings = [None if each is None else along(each) for each in (beta, gamma)]
    made = tf.nn.batch_normalization(inputs, along(mean), along(variance), *settings, kind.epsilon)
    statistics = (
        moving * kind.momentum + new * (1.0 - kind.momentum)
        for moving, new in ((moving_mean, mean), (moving_variance, variance))
    )
    return tf.cast(made, kind.made), *map(tf.stop_gradient, statistics)


def _near(inputs: Any, moving_mean: Any, axis: int) -> Any:
    """(channels,): the moving mean, moved into what the first and the last number of each channel span. It may be far
    from the first batches' mean: 0 where the inputs are years."""
    ends = (
        tf.reshape(inputs[tuple(slice(None) if each == axis else place for each in range(inputs.shape.rank))], [-1])
        for place in (0, -1)
    )
    one, other = map(tf.stop_gradient, ends)
    return tf.minimum(tf.maximum(moving_mean, tf.minimum(one, other)), tf.maximum(one, other))
