"""What measuring costs: throughput through the harness, divided by that of a hand-written Keras 3 + Horovod loop.

    python -m benchmarks.harness_overhead [--ranks 2] [--model cnn_cifar] [--step fit] [--feed prefetch] [--pairs 60]
    python -m benchmarks.harness_overhead --ranks 1 --model resnet50 --per-rank-batch 256 --precision mixed_bfloat16 \\
        --step compiled --feed resident --pairs 30                                                 # on a GPU

Both train the same model on the same batches in the same processes, in turns. A pair is one window of each; which goes
first alternates. The answer is the median ratio over the pairs, with a 90 % bootstrap interval. It holds if the median
is at least 0.99 and the lower end of the interval at least 0.98. It fails if the whole interval lies below 0.99. Else
it is not resolved: use more pairs or a quieter machine.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.by_turns import interval, launched, options_of, over_all_ranks, write_verdict
from profiles.ground.files import write_whole
from profiles.runs.records import Cell

MODULE = "benchmarks.harness_overhead"
SETTLING = 5

Window = Callable[[int], float]
"""Trains so many steps; the result is their seconds, from the first rank's start to the last one's end."""


def main() -> int:
    parser = options_of(MODULE, __doc__, steps=20, pairs=60)
    parser.add_argument("--feed", default="prefetch", help="any of ringscope bench --feeds; both loops take it")
    options = parser.parse_args()
    if options.rank:
        rank(options)
        return 0
    found = launched(MODULE, options)
    return 2 if found is None else report(found, options)


def rank(options: argparse.Namespace) -> None:
    """As one rank: train in turns and write the seconds of each pair (harness, by hand) to `options.rank`."""
    from ringscope import ring

    ring.init()
    cell = Cell(
        options.model,
        ranks=ring.size(),
        per_rank_batch=options.per_rank_batch,
        feed=options.feed,
        input_dtype=options.input_dtype,
        step=options.step,
        precision=options.precision,
    )
    (theirs, harness), (ours, by_hand) = through_the_harness(cell), hand_written(cell)
    for window in (harness, by_hand):
        window(SETTLING)
    pairs: list[tuple[float, float]] = []
    for pair in range(options.pairs):
        order = (harness, by_hand) if pair % 2 == 0 else (by_hand, harness)
        seconds = {window: window(options.steps) for window in order}
        pairs.append((seconds[harness], seconds[by_hand]))
        if ring.rank() == 0:
            write_whole(options.rank, json.dumps({"pairs": pairs, "weights_apart": None}))
    if ring.rank() == 0:
        weights = zip(theirs.trainable_weights, ours.trainable_weights, strict=True)
        apart = max(float(np.max(np.abs(a.numpy() - b.numpy()))) for a, b in weights)
        write_whole(options.rank, json.dumps({"pairs": pairs, "weights_apart": apart}))


def through_the_harness(cell: Cell) -> tuple[Any, Window]:
    """The model, and its windows as the worker takes them."""
    from harness.training import strategies, windows, worker

    trainer = strategies.trainer(cell, device())
    progress = worker.Progress(Path(tempfile.mkdtemp()) / "progress")

    def window(steps: int) -> float:
        worker.barrier()
        found = windows.measure(
            lambda: trainer.turn()[1],
            steps=steps,
            synchronise=lambda: worker.synchronise(trainer),
            utc_ns=time.time_ns,
            monotonic_ns=time.perf_counter_ns,
            progress=progress.phase("train", steps),
        )
        return over_all_ranks(found.start_ns, found.end_ns)

    return trainer.model, window


def hand_written(cell: Cell) -> tuple[Any, Window]:
    """The loop that a careful user would write. From the harness it has only the model, the samples and the feed. Same
    work: it follows the mean loss, as `fit` does; and at one rank it exchanges nothing."""
    import horovod.tensorflow as hvd
    import keras
    import tensorflow as tf

    from harness.training.feeds import FEEDS
    from harness.training.feeds.sources import Synthetic
    from harness.training.models import MODELS, build, loss_for

    spec = MODELS[cell.model]
    model = build(cell.model, input_dtype=cell.input_dtype, precision=cell.precision)
    optimizer = keras.optimizers.SGD(0.01, momentum=0.9)
    optimizer.build(model.trainable_variables)
    loss_of = loss_for(spec)
    mean_loss = keras.metrics.Mean()
    compiled = cell.step == "compiled"

    @tf.function(jit_compile=compiled)
    def forward_backward(x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        mean_loss.update_state(loss, sample_weight=tf.shape(x)[0])
        return mean_loss.result(), tape.gradient(loss, model.trainable_variables)

    @tf.function(jit_compile=compiled)
    def update(gradients: list[tf.Tensor]) -> None:
        optimizer.apply(gradients, model.trainable_variables)

    @tf.function
    def train(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        loss, gradients = forward_backward(x, y)
        update(hvd.grouped_allreduce(gradients, op=hvd.Average) if hvd.size() > 1 else gradients)
        return loss

    hvd.broadcast_variables([v.value for v in (*model.variables, *optimizer.variables)], root_rank=0)
    source = Synthetic(
        spec, cell.per_rank_batch, rank=hvd.rank(), size=hvd.size(), dtype=cell.input_dtype, seed=cell.seed
    )
    batches = FEEDS[cell.feed](source, device())

    def window(steps: int) -> float:
        hvd.allreduce(tf.zeros(1), name="start").numpy()
        start_ns = time.time_ns()
        for _ in range(steps):
            loss = train(*next(batches))
        loss.numpy()
        return over_all_ranks(start_ns, time.time_ns())

    return model, window


def device() -> str:
    import tensorflow as tf

    return "/GPU:0" if tf.config.list_physical_devices("GPU") else "/CPU:0"


def report(found: dict[str, Any], options: argparse.Namespace) -> int:
    """Print the verdict; its exit code."""
    seconds = np.array(found["pairs"])
    ratios = seconds[:, 1] / seconds[:, 0]
    median, low, high = interval(ratios)
    word = verdict(median, low, high)
    samples = options.ranks * options.per_rank_batch * options.steps
    ours, theirs = (samples / float(np.median(column)) for column in seconds.T)
    print(
        f"{options.model}, {options.ranks} x {options.per_rank_batch}, {options.precision}, {options.step},"
        f" {options.feed}: harness {ours:.1f} samples/s, by hand {theirs:.1f}; ratio {median:.4f}"
        f" (90 % interval {low:.4f} to {high:.4f}, {len(ratios)} pairs of {options.steps} steps): {word}"
    )
    return write_verdict(found, options, word, median, low, high)


def verdict(median: float, low: float, high: float) -> str:
    if median >= 0.99 and low >= 0.98:
        return "holds"
    return "fails" if high < 0.99 else "not resolved"


if __name__ == "__main__":
    sys.exit(main())
