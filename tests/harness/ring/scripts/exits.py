"""How a script ends whose ranks hold unlike weights, or say what they train. usage: exits.py CASE"""

import sys
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from harness import ring

ring.init(seed=3)
rank = ring.rank()
x, y = np.random.normal(size=(64, 4)).astype("float32"), np.random.normal(size=(64, 1)).astype("float32")


def model(**options: Any) -> keras.Model:
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    made.compile(keras.optimizers.SGD(0.1), "mse")
    return ring.distribute(made, step="fit", **options)


def part(trained: keras.Model) -> None:
    """Leave the ranks apart, past every optimizer."""
    for _ in range(3):
        trained.trainable_weights[0].assign_add(tf.fill((4, 1), 1.0 + rank))


def after_a_fit() -> keras.Model:
    trained = model()
    trained.fit(x, y, batch_size=8, verbose=0)
    part(trained)
    return trained


def on_one_rank_after_a_fit() -> keras.Model:
    trained = model()
    trained.fit(x, y, batch_size=8, verbose=0)
    if rank == 0:
        part(trained)
    return trained


def alone_on_purpose() -> keras.Model:
    trained = model(reduce=False)
    trained.fit(x[rank::2], y[rank::2], batch_size=8, verbose=0)
    part(trained)
    return trained


def by_an_error() -> keras.Model:
    part(model())
    raise ValueError("a mistake of the script")


def batches() -> keras.Model:
    trained = model()
    rows = tf.data.Dataset.from_tensor_slices((x, y))
    for _ in range(2):
        trained.fit(x, y, batch_size=8, verbose=0)
    trained.fit(rows.batch(4), verbose=0)
    trained.fit(forever(), steps_per_epoch=2, verbose=0, shard=False)
    return trained


def forever() -> Any:
    while True:
        yield x[:8], y[:8]


CASES: dict[str, Callable[[], keras.Model]] = {
    "after a fit": after_a_fit,
    "on one rank after a fit": on_one_rank_after_a_fit,
    "alone on purpose": alone_on_purpose,
    "by an error": by_an_error,
    "batches": batches,
}
alive = (CASES[sys.argv[1]](),)  # what has gone before the end is not compared
