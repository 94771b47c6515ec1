"""How a script ends whose ranks hold unlike weights, or say what they train. usage: exits.py CASE OUT"""

import ctypes
import gc
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import horovod.tensorflow as hvd
import keras
import numpy as np
import tensorflow as tf

from ringscope import ring
from ringscope.ring.ranks import channel_server

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


def after_horovods_end() -> keras.Model:
    """As scripts do that were written for Horovod: they start it again, and so its end comes before ring's."""
    hvd.init()
    return after_a_fit()


def by_an_error() -> keras.Model:
    part(model())
    raise ValueError("a mistake of the script")


def well() -> list[keras.Model]:
    """Nothing that is to be compared: what one rank has changed since, what ranks train alone."""
    changed, alone = model(), model(reduce=False)
    rows = tf.data.Dataset.from_tensor_slices((x, y))
    for _ in range(2):
        changed.fit(x, y, batch_size=8, verbose=0)
    changed.fit(rows.batch(4), verbose=0)
    changed.fit(forever(), steps_per_epoch=2, verbose=0, shard=False)
    if rank == 0:
        part(changed)
    alone.fit(x[rank::2], y[rank::2], batch_size=8, verbose=0)
    alone.train_on_batch(x[:8], y[:8])
    part(alone)
    forgotten = keras.models.clone_model(changed)
    forgotten.name = "forgotten"
    forgotten.compile(keras.optimizers.SGD(0.1), "mse")
    forgotten.fit(x, y, batch_size=8, verbose=0)
    forgotten.train_on_batch(x[:8], y[:8])
    meet_while_rank_0_holds_python()
    return [changed, alone, forgotten]


class Slow:
    """A connection that lets other threads run after each message."""

    def __init__(self, own: Any) -> None:
        self.own = own

    def sendall(self, line: bytes) -> None:
        self.own.sendall(line)
        time.sleep(0.5)


def meet_while_rank_0_holds_python() -> None:
    """Rank 0 waits for rank 1 in C without letting Python's threads run, as TensorFlow does when it starts its
    services."""
    pipe = Path(sys.argv[2]) / "pipe"
    if rank == 0:
        os.mkfifo(pipe)
        (server,) = (each for each in gc.get_objects() if isinstance(each, channel_server.Server))
        server._connections = {number: Slow(each) for number, each in server._connections.items()}
    signal.alarm(240)  # its end, where rank 1 is not told
    ring.meet("held", None)
    os.close(ctypes.PyDLL(None).open(str(pipe).encode(), os.O_RDONLY) if rank == 0 else os.open(pipe, os.O_WRONLY))
    signal.alarm(0)


def forever() -> Any:
    while True:
        yield x[:8], y[:8]


CASES: dict[str, Callable[[], Any]] = {
    "after a fit": after_a_fit,
    "after Horovod's end": after_horovods_end,
    "by an error": by_an_error,
    "well": well,
}
alive = (CASES[sys.argv[1]](),)  # what has gone before the end is not compared
