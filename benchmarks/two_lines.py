"""What ring's two lines cost a script on one process: `model.fit` with them and without, in turn.

    CUDA_VISIBLE_DEVICES= python -m benchmarks.two_lines --pairs 40
    CUDA_VISIBLE_DEVICES= python -m benchmarks.two_lines --model dense --steps 500   # the host's part of a step

Two copies of one model, from the same weights, take `--steps` steps each per pair on the same batches; which goes first
alternates. The answer is the median ratio of their times over the pairs, with a 90 % bootstrap interval, and the same
of their CPU times, which other programs on the machine disturb less. It holds if the median, of wall or CPU time
(`--by`), is at most 1.02; exit code 0: it holds, 1: it does not.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.by_turns import interval

MOST = 1.02  # with the two lines / without


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--model", choices=tuple(MODELS), default="convolutions")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--samples", type=int, default=32, help="of a batch")
    parser.add_argument("--by", choices=("wall", "cpu"), default="wall", help="which time the verdict is of")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    from ringscope import ring

    ring.init(seed=0)
    import tensorflow as tf

    with_lines, without = (model(MODELS[options.model]()) for _ in range(2))
    without.set_weights(with_lines.get_weights())
    ring.distribute(with_lines)
    random = np.random.default_rng(0)
    count = 4 * options.samples
    images = random.normal(size=(count, 48, 48, 3)).astype("float32")
    labels = random.integers(0, 10, count).astype("int32")
    data = tf.data.Dataset.from_tensor_slices((images, labels)).batch(options.samples, drop_remainder=True).repeat()

    def took(trained: Any) -> tuple[float, float]:
        began_s, cpu_s = time.perf_counter(), time.process_time()
        trained.fit(data, epochs=1, steps_per_epoch=options.steps, verbose=0)
        return time.perf_counter() - began_s, time.process_time() - cpu_s

    for each in (with_lines, without):  # traced
        took(each)
    pairs = []
    for number in range(options.pairs):
        order = (with_lines, without) if number % 2 else (without, with_lines)
        seconds = {id(each): took(each) for each in order}
        pairs.append((*seconds[id(with_lines)], *seconds[id(without)]))
    weights = zip(with_lines.get_weights(), without.get_weights(), strict=True)
    apart = max(float(np.abs(a - b).max()) for a, b in weights)
    return report(pairs, apart, options)


def convolutions() -> list[Any]:
    from keras import layers

    parts: list[Any] = []
    for filters in (32, 64, 64):
        parts += [layers.Conv2D(filters, 3, strides=2), layers.BatchNormalization(), layers.ReLU()]
    return [*parts, layers.GlobalAveragePooling2D()]


def dense() -> list[Any]:
    """So little that the host's part of a step is most of it."""
    from keras import layers

    return [layers.GlobalAveragePooling2D(), layers.Dense(8, activation="relu")]


MODELS = {"convolutions": convolutions, "dense": dense}


def model(parts: list[Any]) -> Any:
    import keras

    made = keras.Sequential([keras.Input((48, 48, 3)), *parts, keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile(keras.optimizers.SGD(0.01, momentum=0.9), loss, metrics=["accuracy"])
    return made


def report(pairs: list[tuple[float, ...]], apart: float, options: argparse.Namespace) -> int:
    seconds = np.array(pairs)
    ratios = {name: interval(seconds[:, kind] / seconds[:, 2 + kind]) for kind, name in enumerate(("wall", "cpu"))}
    holds = ratios[options.by][0] <= MOST
    step_ms = 1e3 * float(np.median(seconds[:, 2])) / options.steps
    said = [f"{name} {found[0]:.4f} (90 % interval {found[1]:.4f} to {found[2]:.4f})" for name, found in ratios.items()]
    print(
        f"with the two lines / without, {len(pairs)} pairs of {options.steps} steps of {step_ms:.1f} ms:"
        f" {', '.join(said)}; by {options.by} {'holds' if holds else 'fails'}; weights apart by {apart:.1e}"
    )
    if options.json:
        facts = {"ratios": ratios, "step_ms": step_ms, "weights_apart": apart, "pairs": pairs}
        options.json.write_text(json.dumps(facts) + "\n")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
