"""The optimizer's state in parts, one per rank (ZeRO-1, Rajbhandari et al. 2020, arXiv:1910.02054).

In a step, gradients form one vector, and each rank gets the average of its own part (reduce-scatter). It updates this
part of the weights, for which alone it keeps the optimizer's state, and then all ranks get all parts (all-gather). An
all-reduce consists of the same two halves, so the same number of bytes travels.

A rank's part of the vector is a segment of each weight, empty for most weights. Keras's optimizer updates segments like
weights: in their order, under their names. In each step the segments are first read from the weights, so that other
changes to the weights count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from profiles.ground.errors import RingscopeError

from ...exchange import name_in_graph, on_device_of, outside_scopes
from ...internals.frameworks import hvd, tf
from ...models import without_loss_scale
from .parts import Parts

NARROW = {"none": tf.float32, "fp32": tf.float32, "fp16": tf.float16}
# These optimizers update each number by itself, so that a segment is updated as it would be within the whole weight.
ONE_BY_ONE = ("SGD", "Adam", "AdamW", "Adamax", "Nadam", "RMSprop", "Adagrad", "Adadelta", "Ftrl", "Lion")


def check_sharded(optimizers: Sequence[Any], compression: str, **others: Any) -> None:
    """Raise RingscopeError for a combination that cannot be sharded. others: option -> (its value, the only allowed
    value)."""
    import keras

    if len(optimizers) != 1:
        raise RingscopeError(
            f"sharded=True needs one optimizer, and this model has {len(optimizers)}; leave sharded=True out"
        )
    for name, (value, only) in others.items():
        if value != only:
            raise RingscopeError(
                f"sharded=True works only with {name}={only}, not with {name}={value}; leave one of them out"
            )
    if compression not in NARROW:
        raise RingscopeError(
            f"sharded=True works only with compression={' or '.join(NARROW)}, not with compression={compression};"
            " leave one of them out"
        )
    inner = without_loss_scale(optimizers[0])
    if type(inner) not in [getattr(keras.optimizers, name) for name in ONE_BY_ONE]:
        raise RingscopeError(
            f"sharded=True needs an optimizer that updates each number of a weight by itself ({', '.join(ONE_BY_ONE)});"
            f" {type(inner).__name__} would train something else on parts of a weight"
        )
    if inner.use_ema or inner.gradient_accumulation_steps:
        raise RingscopeError(
            "sharded=True supports neither use_ema nor gradient_accumulation_steps; for the latter use "
            "ring.distribute(..., aggregate=k)"
        )


class Shards:
    """Takes an optimizer's step in parts, by the optimizer's current `apply`. narrow: the type in which gradients
    travel."""

    def __init__(self, optimizer: Any, narrow: Any) -> None:
        self._optimizer, self._narrow = optimizer, narrow
        self._apply: Callable[[Sequence[Any], Any], None] = optimizer.apply
        self._inner = without_loss_scale(optimizer)
        self._scales = optimizer is not self._inner  # a loss-scaling optimizer, for float16
        self._clips = bool(self._inner.clipnorm or self._inner.global_clipnorm)
        self._missing: list[bool] = []  # for each weight, True if it has no gradient
        self._clip_by: tuple[Any, list[Any]] = (None, [])  # norm of all gradients, and of each gradient of this rank
        self._programs: dict[tuple[Any, ...], Any] = {}
        self.parts = Parts(optimizer)
        if self._clips:
            self._inner._clip_gradients = self._clipped
        optimizer.parts_by_ring = self._inner.parts_by_ring = self.parts

    def pack(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """The gradients as one vector, padded to a multiple of the number of ranks."""
        self._missing = [gradient is None for gradient in gradients]
        kind = next((g.dtype for g in gradients if g is not None), tf.float32)
        sizes = [math.prod(variable.shape) for variable in variables]  # a gradient's own shape may be unknown
        flat = [
            tf.zeros([size], kind) if g is None else tf.reshape(tf.convert_to_tensor(g), [size])
            for g, size in zip(gradients, sizes, strict=True)
        ]
        vector = tf.concat(flat, axis=0)
        return [tf.pad(vector, [[0, -vector.shape[0] % hvd.size()]])]

    def update(self, packed: Sequence[Any], variables: Sequence[Any], *, compiled: bool) -> None:
        """Take one step with this rank's packed gradients. compiled: True if XLA compiles everything but the
        exchanges."""
        self.parts.cut(variables)
        gradient = tf.cast(packed[0], self._narrow)
        with outside_scopes(), on_device_of(gradient):
            own = hvd.reducescatter(gradient, op=hvd.Average, name=name_in_graph("gradients"))
        norms = self._over_ranks(self._run(self._norms, compiled)(own)) if self._scales or self._clips else None
        values = self._run(self._update, compiled)(own, norms)
        with outside_scopes(), on_device_of(values):
            joined = hvd.allgather(values, name=name_in_graph("weights"))
        self._run(self._assign_weights, compiled)(joined)

    def _run(self, function: Callable[..., Any], compiled: bool) -> Callable[..., Any]:
        if not compiled:
            return function
        key = function.__name__, *self._missing
        if key not in self._programs:
            self._programs[key] = tf.function(function, autograph=False, jit_compile=True)
        return self._programs[key]  # type: ignore[no-any-return]

    @staticmethod
    def _over_ranks(own: Any) -> Any:
        with outside_scopes(), on_device_of(own):
            return hvd.allreduce(own, op=hvd.Sum, name=name_in_graph("norms"))

    def _norms(self, own: Any) -> Any:
        """1 if a number of this part overflowed, else 0; then each weight's sum of squares in this part."""
        gradient = tf.cast(own, tf.float32)
        overflow = 1 - tf.cast(tf.reduce_all(tf.math.is_finite(gradient)), tf.float32)
        return tf.stack([overflow, *(tf.reduce_sum(part**2) for part in self.parts.split(gradient))])

    def _update(self, own: Any, norms: Any) -> Any:
        """Update the segments; returns this rank's part of the vector of weights. norms: as `_norms` gives them, summed
        over ranks; None if the optimizer needs none."""
        gradient = tf.cast(own, tf.float32)
        if self._scales:  # an overflow on one rank counts on all: all skip the step and halve the scale
            gradient = tf.where(norms[0] > 0, float("inf"), gradient)
        self.parts.read()
        trained = [i for i, segment in enumerate(self.parts.segments) if segment.shape[0]]
        trained = trained or [0]  # with more ranks than weights, a rank without any must still count its steps
        if self._clips:
            scale = self._optimizer.scale_loss(1.0)
            squares = [norms[1 + i] for i in trained if not self._missing[i]]
            self._clip_by = tf.sqrt(tf.reduce_sum(norms[1:])) / scale, [tf.sqrt(each) / scale for each in squares]
        gradients = self.parts.split(gradient)
        self._apply(
            [None if self._missing[i] else gradients[i] for i in trained], [self.parts.segments[i] for i in trained]
        )
        return self.parts.joined([segment.value for segment in self.parts.segments])

    def _clipped(self, gradients: Sequence[Any]) -> list[Any]:
        """Replaces the optimizer's own clipping, which would use the norms of this rank's parts only."""
        (of_all, of_each), inner = self._clip_by, self._inner
        limit = inner.clipnorm or inner.global_clipnorm
        norms = of_each if inner.clipnorm else [of_all] * len(gradients)
        return [g * limit / tf.maximum(norm, limit) for g, norm in zip(gradients, norms, strict=True)]

    def _assign_weights(self, joined: Any) -> None:
        """Give the weights the values in the vector of all ranks' parts."""
        for variable, part in zip(self.parts.variables, self.parts.whole(joined), strict=True):
            variable.assign(part)
