"""tf.distribute.MirroredStrategy: one process, `cell.ranks` replicas, TensorFlow's own all-reduce."""

from __future__ import annotations

import tensorflow as tf

from profiles.errors import RingscopeError
from profiles.records import Cell

from ... import ring
from ...ring.feed import as_feed
from ...ring.loop import Turns
from ..models import MODELS, build, compile_model
from . import Trainer
from .ranks import make_source, optimizer

FEEDS = ("host", "prefetch", "device")


def mirrored(cell: Cell, device: str) -> Trainer:
    """The cell's model on all its replicas. Raises RingscopeError where there are fewer GPUs than replicas.

    Without GPUs the replicas share the CPU, cut into as many logical devices; it must not have been used before.
    """
    kind = device.strip("/").split(":")[0]
    physical = tf.config.list_physical_devices(kind)
    if kind == "CPU":
        tf.config.set_logical_device_configuration(
            physical[0], [tf.config.LogicalDeviceConfiguration() for _ in range(cell.ranks)]
        )
    elif len(physical) < cell.ranks:
        raise RingscopeError(f"{cell.ranks} replicas but {len(physical)} GPUs; ask for at most {len(physical)}")
    strategy = tf.distribute.MirroredStrategy([f"/{kind}:{i}" for i in range(cell.ranks)])
    with strategy.scope():
        model = build(cell.model, input_dtype=cell.input_dtype, precision=cell.precision, seed=cell.seed)
        name = dict(cell.options).get("optimizer", "sgd")
        compile_model(model, MODELS[cell.model].spec, optimizer=optimizer(name))
        model.optimizer.build(model.trainable_variables)
    source = make_source(cell, cell.per_rank_batch * cell.ranks, rank=0, size=1, threads=ring.threads())
    dataset = source.dataset()
    if cell.feed == "prefetch":
        dataset = dataset.prefetch(tf.data.AUTOTUNE)
    where = tf.distribute.InputOptions(experimental_fetch_to_device=cell.feed == "device")
    batches = iter(strategy.experimental_distribute_dataset(dataset, where))

    @tf.function
    def step(batch: object) -> object:
        logs = strategy.run(model.train_step, args=(batch,))
        return {name: strategy.experimental_local_results(value)[0] for name, value in logs.items()}

    turns = Turns(step)
    feed = as_feed(batches)
    return Trainer(model, lambda: turns.turn(feed), cell.per_rank_batch * cell.ranks)
