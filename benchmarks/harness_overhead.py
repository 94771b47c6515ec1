"""What does measuring cost: throughput through the harness over that of a hand-written Keras 3 + Horovod loop.

    python benchmarks/harness_overhead.py [--ranks 2] [--model cnn_cifar] [--batch 32] [--step fit] [--pairs 60]

Both train the same model on the same batches in the same processes, by turns: a pair is one window of each, and which
goes first alternates. The answer is the median ratio over the pairs with a 90 % bootstrap interval. It holds at a
median of at least 0.99 with the interval's lower end at 0.98 or above; it fails where the interval lies below 0.99;
else it is not resolved, and more pairs or a quieter machine are needed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from harness.launch.environment import allowed

SETTLING = 5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--model", default="cnn_cifar")
    parser.add_argument("--batch", type=int, default=32, help="per rank")
    parser.add_argument("--step", default="fit", choices=("fit", "compiled"))
    parser.add_argument("--steps", type=int, default=20, help="in a window")
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--json", type=Path, help="write the ratios and the verdict there")
    parser.add_argument("--rank", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        rank(options)
        return 0
    launcher = ["horovodrun", "-np", str(options.ranks)] if options.ranks > 1 else []
    with tempfile.TemporaryDirectory() as folder:
        ratios = Path(folder) / "ratios.json"
        command = [*launcher, sys.executable, *sys.argv, "--rank", str(ratios)]
        subprocess.run(command, check=True, env=allowed(os.environ))
        return report(np.array(json.loads(ratios.read_text())), options)


def rank(options: argparse.Namespace) -> None:
    from harness import ring

    ring.init()
    harness, by_hand = through_the_harness(options), hand_written(options)
    for window in (harness, by_hand):
        window(SETTLING)
    ratios = []
    for pair in range(options.pairs):
        order = (harness, by_hand) if pair % 2 == 0 else (by_hand, harness)
        seconds = {window: window(options.steps) for window in order}
        ratios.append(seconds[by_hand] / seconds[harness])
    if ring.rank() == 0:
        options.rank.write_text(json.dumps(ratios))


def through_the_harness(options: argparse.Namespace) -> Callable[[int], float]:
    """A window of so many steps as the worker takes it; the result is its seconds over all ranks."""
    from harness import marks, windows, worker
    from harness.strategies.ranks import ranks
    from profiles.records import Cell

    trainer = ranks(cell(options, Cell), device())
    progress = worker.Progress(Path(tempfile.mkdtemp()) / "progress")

    def window(steps: int) -> float:
        worker.barrier()
        found = windows.measure(
            trainer.step,
            trainer.batches,
            steps=steps,
            synchronise=worker.synchronise,
            utc_ns=time.time_ns,
            monotonic_ns=time.perf_counter_ns,
            marks=marks.NvtxMarks(),
            progress=progress.phase("train", steps),
        )
        return over_all_ranks(found.start_ns, found.end_ns)

    return window


def hand_written(options: argparse.Namespace) -> Callable[[int], float]:
    """The loop that a careful user would write: nothing of the harness but the model and the samples. Same work: it
    follows the mean loss, as `fit` does."""
    import horovod.tensorflow as hvd
    import keras
    import tensorflow as tf

    from harness.models import MODELS, build
    from harness.sources import Synthetic

    spec = MODELS[options.model].spec
    model = build(options.model)
    optimizer = keras.optimizers.SGD(0.01, momentum=0.9)
    optimizer.build(model.trainable_variables)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    mean_loss = keras.metrics.Mean()
    compiled = options.step == "compiled"

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
        update(hvd.grouped_allreduce(gradients, op=hvd.Average))
        return loss

    hvd.broadcast_variables([v.value for v in (*model.variables, *optimizer.variables)], root_rank=0)
    source = Synthetic(spec, options.batch, rank=hvd.rank(), size=hvd.size(), threads=1)
    batches = iter(source.dataset().prefetch(tf.data.AUTOTUNE))

    def window(steps: int) -> float:
        hvd.allreduce(tf.zeros(1), name="start").numpy()
        start_ns = time.time_ns()
        for _ in range(steps):
            loss = train(*next(batches))
        loss.numpy()
        return over_all_ranks(start_ns, time.time_ns())

    return window


def over_all_ranks(start_ns: int, end_ns: int) -> float:
    """Seconds from the first rank's start to the last one's end (ranks of one host)."""
    import horovod.tensorflow as hvd

    edges = hvd.allgather_object((start_ns, end_ns), name="edges")
    return (max(end for _, end in edges) - min(start for start, _ in edges)) / 1e9


def cell(options: argparse.Namespace, kind: type) -> object:
    import horovod.tensorflow as hvd

    return kind(options.model, hvd.size(), options.batch, feed="prefetch", step=options.step)


def device() -> str:
    import tensorflow as tf

    return "/GPU:0" if tf.config.list_physical_devices("GPU") else "/CPU:0"


def report(ratios: np.ndarray, options: argparse.Namespace) -> int:
    median = float(np.median(ratios))
    draws = np.random.default_rng(0).choice(ratios, (10_000, len(ratios)))
    low, high = np.percentile(np.median(draws, axis=1), [5, 95])
    holds, fails = median >= 0.99 and low >= 0.98, high < 0.99
    verdict = "holds" if holds else "fails" if fails else "not resolved"
    print(
        f"{options.model}, {options.ranks} ranks x {options.batch}, {options.step}: harness / hand-written ="
        f" {median:.4f} (90 % interval {low:.4f} to {high:.4f}, {len(ratios)} pairs): {verdict}"
    )
    if options.json:
        options.json.write_text(json.dumps({"verdict": verdict, "median": median, "ratios": ratios.tolist()}) + "\n")
    return 0 if holds else 1 if fails else 2


if __name__ == "__main__":
    sys.exit(main())
