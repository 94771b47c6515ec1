"""tf.distribute.ParameterServerStrategy: workers that do not wait for each other (asynchronous SGD, Li et al. 2014).

This process coordinates: it keeps every worker supplied with steps. It starts `cell.ranks` workers, each a process with
a GPU, and one parameter server, which holds the weights in host memory:

python -m harness.training.strategies.parameter_server CLUSTER worker|ps INDEX

CLUSTER is JSON: job -> addresses.

A worker reads the weights, computes gradients on its own samples and applies them, whatever the other workers did
meanwhile: `staleness` is the number of updates by others in between.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from typing import Any

import tensorflow as tf

from profiles.ground.errors import RingscopeError
from profiles.runs.records import Cell
from ringscope import ring
from ringscope.ring import marks

from ..feeds import make_source
from ..feeds.sources import scaled
from ..models import MODELS, loss_for, of_cell
from .ports import held
from .trainers import Trainer

AHEAD = 2  # steps of each worker that may be scheduled before the oldest one is finished
UNKNOWN_WAIT = "each worker fetches its own batches"


def trainer(cell: Cell, device: str) -> Trainer:
    cluster = Cluster.of(cell.ranks, device)
    strategy, coordinator = cluster.strategy, cluster.coordinator
    with strategy.scope():
        model = of_cell(cell)
        model.optimizer.build(model.trainable_variables)
        updates = tf.Variable(0, dtype=tf.int64, trainable=False, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)
    # Every worker gets all samples once, as uint8, and converts its own to float32.
    as_bytes = replace(cell, input_dtype="uint8")
    source = make_source(as_bytes, cell.per_rank_batch * cell.ranks, rank=0, size=1, threads=ring.threads())

    def own_batches() -> Any:
        """This worker's share of each joined batch."""
        first = tf.distribute.coordinator.experimental_get_current_worker_index() * cell.per_rank_batch

        def share(x: Any, y: Any) -> tuple[Any, Any]:
            mine = slice(first, first + cell.per_rank_batch)
            return scaled(x[mine], cell.input_dtype), y[mine]

        batches = source.dataset().map(share)
        return batches.prefetch(tf.data.AUTOTUNE) if cell.feed == "prefetch" else batches

    batches = iter(coordinator.create_per_worker_dataset(own_batches))
    step = update_of(strategy, model, loss_for(MODELS[cell.model]), updates)
    run = Asynchronous(lambda: coordinator.schedule(step, args=(batches,)), coordinator, cell.ranks, cluster.check)
    return Trainer(
        model,
        run.turn,
        cell.per_rank_batch * cell.ranks,
        settle=run.settle,
        facts=lambda: run.facts(cell.warmup),
    )


def update_of(strategy: Any, model: Any, loss: Any, updates: Any) -> Any:
    """A worker's step. Returns (loss, number of updates before it read the weights, number of updates including its
    own, index of the worker)."""

    def replica(x: Any, y: Any) -> tuple[Any, Any, Any, Any]:
        read = tf.identity(updates)
        # read the counter of updates before any weight
        with tf.control_dependencies([read]), tf.GradientTape() as tape:
            value = loss(y, model(x, training=True))
            scaled = model.optimizer.scale_loss(value)
        gradients = tape.gradient(scaled, [v.value for v in model.trainable_variables])
        model.optimizer.apply(gradients, model.trainable_variables)
        # A graph orders only operations on the same variable. Reading all variables waits until every update is made.
        applied = [v.value.read_value() for v in model.trainable_variables]
        with tf.control_dependencies(applied):
            count = updates.assign_add(1, read_value=True)
        return value, read, count, tf.distribute.coordinator.experimental_get_current_worker_index()

    @tf.function(autograph=False)
    def step(batches: Any) -> Any:
        return strategy.run(replica, args=next(batches))

    return step


class Asynchronous:
    """Schedules steps ahead of their results: a turn schedules one step per worker and waits for overdue results."""

    def __init__(self, schedule: Callable[[], Any], coordinator: Any, workers: int, check: Callable[[], None]) -> None:
        self._schedule, self._coordinator, self._workers, self._check = schedule, coordinator, workers, check
        self._begun: list[Any] = []  # results of the scheduled steps, in their order; some are pending

    def turn(self) -> tuple[dict[str, Any], int]:
        with marks.step(len(self._begun) // self._workers):
            self._begun += [self._schedule() for _ in range(self._workers)]
            overdue = len(self._begun) - self._workers * AHEAD
            if overdue > 0:
                self._begun[overdue - 1].get()
            self._check()
        return {}, 0

    def settle(self) -> None:
        self._coordinator.join()

    def facts(self, warmup: int) -> dict[str, Any]:
        """The mean loss, the staleness of every update and the worker that made it, over the steps after the
        warm-up."""
        timed = self._coordinator.fetch(self._begun[warmup * self._workers :])
        return {
            "logs": {"loss": sum(float(value) for value, *_ in timed) / len(timed)},
            "staleness": [int(applied) - 1 - int(read) for _, read, applied, _ in timed],
            "workers": [int(worker) for *_, worker in timed],
            "input_wait_unknown": UNKNOWN_WAIT,
        }


class Cluster:
    """The processes of the workers and of the parameter server, which end with this process."""

    def __init__(self, workers: int, gpus: Sequence[str]) -> None:
        self._held = ExitStack()  # ports stay reserved as long as this process lives
        ports = self._held.enter_context(held(workers + 1))
        jobs = [("worker", index) for index in range(workers)] + [("ps", 0)]
        addresses = [f"127.0.0.1:{port}" for port in ports]
        spec = {"worker": addresses[:workers], "ps": addresses[workers:]}
        self._tasks = {}
        for job, index in jobs:
            visible = gpus[index] if job == "worker" and gpus else "-1"
            argv = [sys.executable, "-m", __name__, json.dumps(spec), job, str(index)]
            environ = {**os.environ, "CUDA_VISIBLE_DEVICES": visible}
            self._tasks[f"{job} {index}"] = subprocess.Popen(argv, env=environ)
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec(spec), rpc_layer="grpc")
        self.strategy = tf.distribute.ParameterServerStrategy(resolver)
        self.coordinator = tf.distribute.coordinator.ClusterCoordinator(self.strategy)

    @staticmethod
    @cache
    def of(workers: int, device: str) -> Cluster:
        """The cluster of this process, made once; the process itself uses no GPU."""
        gpus = []
        if "GPU" in device:
            found = len(tf.config.list_physical_devices("GPU"))
            if found < workers:
                raise RingscopeError(f"{workers} workers need as many GPUs; there are {found}; ask for fewer ranks")
            named = os.environ.get("CUDA_VISIBLE_DEVICES", "")
            gpus = named.split(",") if named else [str(number) for number in range(found)]
        tf.config.set_visible_devices([], "GPU")
        return Cluster(workers, gpus)

    def check(self) -> None:
        """Raise RingscopeError if a worker or the parameter server has ended, because the coordinator would wait for
        it."""
        for name, task in self._tasks.items():
            if task.poll() is not None:
                raise RingscopeError(f"{name} ended with code {task.returncode}; its output is in this rank's log")


def main(addresses: str, job: str, index: str) -> None:
    """Serve as a worker or as the parameter server until the coordinator's process ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: no task outlives its coordinator
    cluster = json.loads(addresses)
    threads = max(1, len(os.sched_getaffinity(0)) // sum(map(len, cluster.values())))
    config = tf.compat.v1.ConfigProto()
    config.intra_op_parallelism_threads, config.inter_op_parallelism_threads = threads, max(2, threads)
    config.gpu_options.allow_growth = True
    server = tf.distribute.Server(
        tf.train.ClusterSpec(cluster), job_name=job, task_index=int(index), protocol="grpc", config=config
    )
    server.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
