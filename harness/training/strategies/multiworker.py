"""tf.distribute.MultiWorkerMirroredStrategy: one process per GPU, and TensorFlow's own collectives between them.

Keras 3's `fit` refuses this strategy, but its `train_step` under `strategy.run` works. Horovod only starts the ranks
and compares clocks.
"""

from __future__ import annotations

import socket
from functools import cache
from typing import Any

import tensorflow as tf

from profiles.ground.errors import RingscopeError
from profiles.runs.records import Cell
from ringscope import ring

from ..feeds import make_source
from .mirrored import training
from .ports import held
from .trainers import Trainer


def trainer(cell: Cell, device: str) -> Trainer:
    strategy = together()
    source = make_source(cell, cell.per_rank_batch, rank=ring.rank(), size=ring.size(), threads=ring.threads())

    def own(dataset: Any, options: Any) -> Any:
        return strategy.distribute_datasets_from_function(lambda _: dataset, options)

    return training(cell, strategy, source, own)


@cache
def together() -> Any:
    """The strategy over all ranks, made once per process; call this before TensorFlow is first used."""
    with held(1) as (port,):
        return _over(ring.meet("address", (socket.gethostname(), port)))


def _over(found: list[tuple[str, int]] | None) -> Any:
    if found is None:
        raise RingscopeError("a rank ended before all ranks had connected; read its log")
    one_host = len({host for host, _ in found}) == 1
    workers = [f"{'127.0.0.1' if one_host else host}:{port}" for host, port in found]
    gpus = tf.config.get_visible_devices("GPU")
    kind = tf.distribute.experimental.CommunicationImplementation
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": workers}),
        task_type="worker",
        task_id=ring.rank(),
        num_accelerators={"GPU": len(gpus)},  # without this device filter the strategy trains on the CPU
        rpc_layer="grpc",
    )
    options = tf.distribute.experimental.CommunicationOptions(implementation=kind.NCCL if gpus else kind.RING)
    return tf.distribute.MultiWorkerMirroredStrategy(resolver, options)
