"""tf.distribute.MirroredStrategy: one process, `cell.ranks` replicas, TensorFlow's own all-reduce."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from profiles.runs.records import Cell
from ringscope import ring
from ringscope.ring.feed import as_feed
from ringscope.ring.fit.loop import Turns

from ..feeds import make_source
from ..feeds.sources import Source
from ..models import of_cell
from . import devices
from .trainers import Trainer


def trainer(cell: Cell, device: str) -> Trainer:
    """Train with MirroredStrategy. Without GPUs the replicas are logical CPU devices; TensorFlow must not have used the
    CPU before."""
    strategy = tf.distribute.MirroredStrategy(devices.take(device, cell.ranks))
    source = make_source(cell, cell.per_rank_batch * cell.ranks, rank=0, size=1, threads=ring.threads())
    return training(cell, strategy, source, strategy.experimental_distribute_dataset)


def training(cell: Cell, strategy: Any, source: Source, distributed: Callable[[Any, Any], Any]) -> Trainer:
    """A trainer that runs Keras's train step under a strategy of tf.distribute. source: the samples of this process.
    distributed: (data set, its options) -> a data set that gives each replica its part."""
    with strategy.scope():
        model = of_cell(cell)
        model.optimizer.build(model.trainable_variables)
    dataset = source.dataset()
    if cell.feed == "prefetch":
        dataset = dataset.prefetch(tf.data.AUTOTUNE)
    where = tf.distribute.InputOptions(experimental_fetch_to_device=cell.feed == "device")
    batches = iter(distributed(dataset, where))

    @tf.function(autograph=False)
    def step(batch: object) -> object:
        logs = strategy.run(model.train_step, args=(batch,))
        return {name: tf.add_n(own := strategy.experimental_local_results(v)) / len(own) for name, v in logs.items()}

    turns = Turns(step)
    feed = as_feed(batches)
    return Trainer(model, lambda: turns.turn(feed), source.batch, source=source)
