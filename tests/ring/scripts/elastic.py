"""elastic.py CASE DIR: a training among ranks that come and go, and what it ended in, for test_elastic.py.

Every rank writes a line of DIR/steps for each step that it takes. The script itself lets ranks be lost and hosts come,
by what has happened so far: it is begun again each time.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from ringscope import ring

ring.init(seed=7)

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

CASE, OUT = sys.argv[1], Path(sys.argv[2])
ROWS, BATCH = 240, 8
rng = np.random.default_rng(0)
x = rng.normal(size=(ROWS, 5)).astype(np.float32)
targets = (x @ rng.normal(size=(5, 1)) + 0.3).astype(np.float32)
y = np.concatenate([targets, np.arange(ROWS, dtype=np.float32)[:, None]], axis=1)


class Taken(keras.metrics.Metric):
    """How often the rows were taken in an epoch: the most or the least often of them."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name)
        self.times = self.add_variable((ROWS,), "zeros", name="times")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.times.assign_add(tf.reduce_sum(tf.one_hot(tf.cast(y_true[:, 1], tf.int32), ROWS), axis=0))

    def result(self) -> Any:
        return (tf.reduce_max if self.name == "most" else tf.reduce_min)(self.times.value)


def error(y_true: Any, y_pred: Any) -> Any:
    return tf.square(y_true[:, 0] - y_pred[:, 0])


def write(name: str, **facts: Any) -> None:
    with (OUT / name).open("a") as file:
        file.write(json.dumps(facts) + "\n")


def lines(name: str) -> list[dict[str, Any]]:
    path = OUT / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def lose(this: bool) -> None:
    """This process is killed if it is the one, once."""
    if this and not (OUT / "lost").exists():
        (OUT / "lost").write_text(str(time.monotonic_ns()))
        os.kill(os.getpid(), signal.SIGKILL)


def now_there(hosts: str) -> None:
    """All at once: the launcher reads the file every second."""
    if (OUT / "hosts").read_text() != hosts:
        (OUT / "next").write_text(hosts)
        (OUT / "next").replace(OUT / "hosts")


class Events(keras.callbacks.Callback):
    """seen: epochs that it has seen, which it remembers while the script is begun again."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        write(f"steps{os.getpid()}", rank=ring.rank(), ranks=ring.size(), epoch=self.epoch, batch=batch)
        if CASE == "lost" and self.epoch == 2 and batch == 6:
            # Which host's ranks come first is up to the launcher, which leaves a whole host out.
            lose(os.environ["HOROVOD_HOSTNAME"] == "127.0.0.1")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.seen += 1
        if CASE == "hosts" and ring.rank() == 0:
            sizes = [line["ranks"] for line in lines(f"steps{os.getpid()}")]
            if ring.size() == 1 and 2 not in sizes:
                now_there("localhost:1\n127.0.0.1:1\n")
            elif ring.size() == 2:
                now_there("localhost:1\n")
            elif 2 in sizes:
                self.model.stop_training = True


def make(learning_rate: float) -> Any:
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.layers.Input((5,)), keras.layers.Dense(1, kernel_initializer="zeros")])
    metrics = [Taken("most"), Taken("least")]
    model.compile(keras.optimizers.SGD(learning_rate, momentum=0.9), error, metrics=metrics)
    return model


def fitted() -> None:
    model = make(0.02)
    shuffle = CASE == "lost"
    ring.distribute(model, commit_steps=3 if CASE == "lost" else 0, scale_learning_rate=CASE == "hosts")
    events = Events()
    if CASE == "lost":
        data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(ROWS, seed=5).batch(BATCH)
        history = model.fit(data, epochs=5, verbose=0, callbacks=[events])
        order = tf.data.Dataset.range(ROWS).shuffle(ROWS, seed=5)
        iter(order)  # ring begins the first epoch so too
        orders = []
        for _ in range(5):
            orders.append([int(i) for i in order])
            iter(order)  # Keras, that knows the length, begins the next epoch ahead, and then again
    else:
        history = model.fit(x, y, batch_size=BATCH, epochs=100_000, shuffle=False, verbose=0, callbacks=[events])
        orders = []
    assert shuffle == bool(orders)
    end(model, epochs=history.epoch, history=history.history, seen=events.seen, orders=orders, pauses=history.pauses)


def looped() -> None:
    """Rank 0 is lost within the second epoch; a learning rate that goes with the number of ranks."""
    model = make(0.01 * ring.size())
    ring.distribute(model)
    state = ring.state(model, epoch=0, row=0)
    first = [state.epoch, state.row]
    while state.epoch < 3:
        while state.row + BATCH * ring.size() <= ROWS:
            mine = slice(state.row + ring.rank(), state.row + BATCH * ring.size(), ring.size())
            model.train_on_batch(x[mine], y[mine])
            write(f"steps{os.getpid()}", rank=ring.rank(), ranks=ring.size(), epoch=state.epoch, row=state.row)
            state.row += BATCH * ring.size()
            if state.epoch == 1 and state.row == 128:
                lose(ring.rank() == 0)
            if state.row == 96:
                state.commit()
        state.epoch, state.row = state.epoch + 1, 0
        state.commit()
    end(model, first=first)


def refused() -> None:
    """What is not supported, and then an error of the script's own on all ranks."""
    said = {}

    def generator() -> Any:
        yield x[:BATCH], y[:BATCH]

    of_floats = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)
    cases: dict[str, dict[str, Any]] = {
        "own shares": {"x": of_floats, "shard": False},
        "unknown length": {"x": of_floats.filter(lambda *_: True)},
        "steps_per_epoch": {"x": of_floats.repeat(), "steps_per_epoch": 3},
        "generator": {"x": generator(), "shard": False},
        "lists": {"x": [[0.0] * 5] * 16, "y": [[0.0, 0.0]] * 16},
    }
    for name, options in cases.items():
        model = make(0.01)
        ring.distribute(model, commit_steps=2)
        try:
            model.fit(**options, verbose=0)
        except Exception as error:
            said[name] = f"{type(error).__name__}: {error}"
    model = make(0.01)
    try:
        ring.state(model, epoch=0)
    except Exception as error:
        said["a model that is not distributed"] = f"{type(error).__name__}: {error}"
    (OUT / "refused.json").write_text(json.dumps(said))
    raise KeyError("the script's own error")


def end(model: Any, **facts: Any) -> None:
    weights = [np.asarray(weight) for weight in model.get_weights()]
    rate = float(model.optimizer.learning_rate)
    facts |= {"weights": [w.ravel().tolist() for w in weights], "bits": [w.tobytes().hex() for w in weights]}
    (OUT / f"end{ring.rank()}.json").write_text(json.dumps(facts | {"ranks": ring.size(), "learning rate": rate}))


{"lost": fitted, "hosts": fitted, "loop": looped, "refused": refused}[CASE]()
