"""Layers on different GPUs of one process (`split`), and several such processes under Horovod (`hybrid`).

The batch is cut into micro-batches, so that the stages work on different micro-batches at the same time.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import tensorflow as tf

from profiles.ground.errors import RingscopeError
from profiles.runs.records import Cell
from ringscope import ring
from ringscope.ring.feed import as_feed
from ringscope.ring.fit.loop import Turns

from ..feeds import FEEDS, make_source
from ..models import MODELS, build, compile_model, loss_for, optimizer
from . import devices
from .parts import Plan, train_step
from .stages import cut
from .trainers import Trainer

TIMED_ALONE = 5


def trainer(cell: Cell, device: str) -> Trainer:
    import keras

    places = devices.take(device, cell.gpus_per_process, local_rank=ring.local_rank())
    with tf.device("/CPU:0"):
        whole = build(cell.model, input_dtype=cell.input_dtype, precision=cell.precision, seed=cell.seed)
    stages = cut(whole, places)
    model = keras.Sequential(stages, name=cell.model)
    model.build(stages[0].input_shape)  # without this call only the first batch would build the model
    spec = MODELS[cell.model]
    compile_model(model, spec, optimizer=optimizer(cell))
    model.optimizer.build(model.trainable_variables)
    averaged = partial(ring.average_gradients, compression=cell.compression)
    exchange = [averaged] * len(stages) if ring.size() > 1 else None
    batch = cell.per_rank_batch * cell.gpus_per_process
    if batch % cell.micro_batches:
        raise RingscopeError(
            f"a batch of {batch} does not divide into {cell.micro_batches} micro-batches; give a batch that does"
        )
    plan = Plan(stages, [places] * cell.micro_batches)
    source = make_source(cell, batch, rank=ring.rank(), size=ring.size(), threads=ring.threads())
    turns = Turns(train_step(model, plan, loss_for(spec), exchange))
    feed = as_feed(FEEDS[cell.feed](source, places[0]))
    return Trainer(
        model, lambda: turns.turn(feed), batch, tried=lambda: pipeline_facts(stages, places, cell.micro_batches, batch)
    )


def pipeline_facts(stages: Sequence[Any], places: Sequence[str], parts: int, batch: int) -> dict[str, Any]:
    """Facts of the pipeline: for one micro-batch the time of each stage alone (ns, forward and backward), and the bytes
    between stages."""
    borders = [stage.outputs[0] for stage in stages[:-1]]
    crossing = sum(math.prod(t.shape[1:]) * tf.as_dtype(t.dtype).size for t in borders) * batch * 2
    return {
        "pipeline": {
            "micro_batches": parts,
            "stage_ns": [alone_ns(s, place, batch // parts) for s, place in zip(stages, places, strict=True)],
            "transfer_bytes_per_step": crossing,
            "parameters": [stage.count_params() for stage in stages],
        }
    }


def alone_ns(stage: Any, place: str, samples: int) -> int:
    """The median ns of a stage's forward and backward pass for `samples`, with no other work under way."""
    with tf.device(place):
        x = tf.zeros((samples, *stage.inputs[0].shape[1:]), stage.inputs[0].dtype)
        left = stage.outputs[0]
        gradient = tf.ones((samples, *left.shape[1:]), left.dtype)
        plan = Plan([stage], [[place]])

        @tf.function(autograph=False)
        def there_and_back() -> Any:
            pieces = plan.forward(x)
            # no training computes the gradient of the first stage's input
            return pieces[0][-1].left, plan.backward(pieces, gradient)

        return timed(there_and_back)


def timed(call: Callable[[], Any]) -> int:
    """The median ns of a call and of the work that it launches, measured after two untimed calls."""
    took = []
    for number in range(TIMED_ALONE + 2):
        began = time.perf_counter_ns()
        call()
        tf.test.experimental.sync_devices()
        if number >= 2:
            took.append(time.perf_counter_ns() - began)
    return int(statistics.median_low(took))
