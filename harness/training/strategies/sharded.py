"""The optimizer's state in parts, one per rank (ZeRO-1, Rajbhandari et al. 2020, arXiv:1910.02054).

A step: gradients as one vector, of which every rank gets the average of its own part (reduce-scatter); each updates
that part of the weights, with optimizer state for it alone; all ranks get all parts (all-gather). An all-reduce is the
same two halves with nothing between them, so as many bytes travel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import horovod.tensorflow as hvd
import tensorflow as tf

from profiles.errors import RingscopeError
from profiles.records import Cell

from ... import ring
from ...ring.feed import Carried, as_feed, opened
from ...ring.forms import forms
from ...ring.loop import Turns
from ..feeds import FEEDS
from ..models import MODELS, build, compile_model, loss_for
from . import Trainer
from .ranks import make_source, optimizer

NARROW = {"none": tf.float32, "fp16": tf.float16}


def trainer(cell: Cell, device: str) -> Trainer:
    if cell.compression not in NARROW:
        raise RingscopeError(f"sharded gradients travel as {' or '.join(NARROW)}, not as {cell.compression}")
    model = build(cell.model, input_dtype=cell.input_dtype, precision=cell.precision, seed=cell.seed)
    compile_model(model, MODELS[cell.model].spec, optimizer=optimizer(cell))
    shards = Shards(model.trainable_variables)
    model.optimizer.build([shards.own])
    ring.broadcast(model)
    shards.begin()
    step = Step(model, shards, loss_for(MODELS[cell.model].spec), NARROW[cell.compression], cell.step == "compiled")
    source = make_source(cell, cell.per_rank_batch, rank=ring.rank(), size=ring.size(), threads=ring.threads())
    turns = Turns(step.take)
    feed = as_feed(FEEDS[cell.feed](source, device))
    return Trainer(model, lambda: turns.turn(feed), cell.per_rank_batch)


class Shards:
    """Variables as one vector, padded to a multiple of the ranks; `own` is this rank's part of it, a variable."""

    def __init__(self, variables: Sequence[Any]) -> None:
        import keras

        types = {tf.as_dtype(v.dtype) for v in variables}
        if types != {tf.float32}:
            raise RingscopeError(f"sharded updates float32 weights, and these are {', '.join(t.name for t in types)}")
        self.variables = list(variables)
        self._sizes = [math.prod(v.shape) for v in variables]
        self._padding = -sum(self._sizes) % hvd.size()
        self._length = (sum(self._sizes) + self._padding) // hvd.size()
        self.own = keras.Variable(tf.zeros([self._length]), name="own_part")

    def begin(self) -> None:
        """Take the part's values from the variables."""
        first = hvd.rank() * self._length
        self.own.assign(self.joined([v.value for v in self.variables])[first : first + self._length])

    def joined(self, values: Sequence[Any]) -> Any:
        """Values of the variables' shapes as the vector."""
        return tf.pad(tf.concat([tf.reshape(value, [-1]) for value in values], axis=0), [[0, self._padding]])

    def spread(self, vector: Any) -> None:
        """Give the variables the vector's values."""
        parts = tf.split(vector[: sum(self._sizes)], self._sizes)
        for variable, part in zip(self.variables, parts, strict=True):
            variable.assign(tf.reshape(part, variable.shape))


class Step:
    """One step, in programs that XLA compiles where it is to; what crosses between ranks stands between them."""

    def __init__(self, model: Any, shards: Shards, loss: Any, narrow: Any, compiled: bool) -> None:
        self._model, self._shards, self._loss, self._narrow, self._compiled = model, shards, loss, narrow, compiled
        self._scales = model.optimizer.scale_loss(1.0) != 1.0
        self._gradients = tf.function(self._forward_backward, autograph=False, jit_compile=compiled)
        self._update = tf.function(self._apply, autograph=False, jit_compile=compiled)
        self._spread = tf.function(shards.spread, autograph=False, jit_compile=compiled)
        self._whole = tf.function(self._one, autograph=False)

    def take(self, batch: Any) -> Any:
        data, kinds = (batch.data, batch.kinds) if isinstance(batch, Carried) else (batch, None)
        return self._whole(data, kinds)

    def _one(self, data: Any, kinds: tuple[str, ...] | None) -> Any:
        loss, gradient = self._gradients(data, kinds)
        if hvd.size() > 1:
            gradient = hvd.reducescatter(gradient, op=hvd.Average, name="gradients")
        gradient = tf.cast(gradient, tf.float32)
        own = self._update(self._finite_everywhere(gradient) if self._scales else gradient)
        self._spread(hvd.allgather(own, name="weights") if hvd.size() > 1 else own)
        self._model._loss_tracker.update_state(loss)
        return self._model.get_metrics_result()

    def _forward_backward(self, data: Any, kinds: tuple[str, ...] | None) -> tuple[Any, Any]:
        x, y = opened(data, kinds)
        with forms(self._model) if self._compiled else nullcontext(), tf.GradientTape() as tape:
            loss = self._loss(y, self._model(x, training=True))
            scaled = self._model.optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, [v.value for v in self._shards.variables])
        return loss, tf.cast(self._shards.joined(gradients), self._narrow)

    def _finite_everywhere(self, gradient: Any) -> Any:
        """An overflow in one rank's part is one in all, so that all of them skip the step and halve the scale."""
        finite = tf.cast(tf.reduce_all(tf.math.is_finite(gradient)), tf.float32)
        return tf.where(hvd.allreduce(finite, op=hvd.Min, name="finite") > 0, gradient, float("inf"))

    def _apply(self, gradient: Any) -> Any:
        self._model.optimizer.apply([gradient], [self._shards.own])
        return self._shards.own.value + 0.0
