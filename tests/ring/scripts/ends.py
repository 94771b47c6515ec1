"""Training that is stopped from outside its callbacks, by one rank; parts of it on one rank alone; and weights that end
apart. usage: ends.py OUT"""

import json
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import horovod.tensorflow as hvd
import keras
import numpy as np
import tensorflow as tf
from asked import refused

from ringscope import ring
from ringscope.ring.alike import ending
from ringscope.ring.fit import evaluation
from ringscope.ring.ranks import channel

ring.init(process_sets="dynamic")
out, rank = Path(sys.argv[1]), ring.rank()
facts: dict[str, Any] = {}
x, y = np.random.normal(size=(64, 4)).astype("float32"), np.random.randint(0, 3, 64)
loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
LONGER_S = max(channel.GRACE_S, evaluation.LATE_S, ending.LIMIT_S) + 1
begun = threading.Event()
MOST = 4000  # epochs of 4 steps: minutes


def classifier(step: str = "fit") -> keras.Model:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    model.compile(keras.optimizers.SGD(0.01), loss_of)
    return ring.distribute(model, step=step)


def stop(model: keras.Model) -> None:
    model.stop_training = True


def by_a_thread(model: keras.Model) -> None:
    def later() -> None:
        begun.wait()
        stop(model)

    threading.Thread(target=later).start()


def by_a_signal(model: keras.Model) -> None:
    def told(*_: Any) -> None:
        if begun.is_set():
            stop(model)

    signal.signal(signal.SIGALRM, told)
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)


def between_epochs(model: keras.Model) -> None:
    """After the ranks have agreed to go on, before Keras looks: the history is the last to hear of an epoch."""
    own = keras.callbacks.History.on_epoch_end

    def heard(history: Any, epoch: int, logs: Any = None) -> None:
        own(history, epoch, logs)
        if epoch == 1:
            stop(model)

    keras.callbacks.History.on_epoch_end = heard


def stopped(ask: Callable[[keras.Model], None], step: str) -> list[Any]:
    model = classifier(step)
    begun.clear()
    if rank == 1:
        ask(model)
    # Keras's `fit` begins by taking back what was asked before.
    begins = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: epoch and begun.set())
    model.fit(x, y, batch_size=8, epochs=MOST, verbose=0, callbacks=[begins])
    signal.setitimer(signal.ITIMER_REAL, 0)
    return [int(model.optimizer.iterations), [w.numpy().tolist() for w in model.weights]]


history = keras.callbacks.History.on_epoch_end
for step in ("fit", "compiled"):
    for name, ask in (("thread", by_a_thread), ("signal", by_a_signal), ("between epochs", between_epochs)):
        facts[f"{name}, {step}"] = stopped(ask, step)
        keras.callbacks.History.on_epoch_end = history


# A rank that is busy for longer than any limit, here between two steps and after an epoch, has not left.
def busy(*_: Any) -> None:
    if rank == 1:
        time.sleep(LONGER_S)


model = classifier()
late = keras.callbacks.LambdaCallback(on_train_batch_begin=lambda batch, logs: batch == 1 and busy(), on_epoch_end=busy)
model.fit(x, y, batch_size=8, epochs=1, verbose=0, validation_data=(x, y), callbacks=[late])
facts["after a late rank"] = [int(model.optimizer.iterations), [w.numpy().tolist() for w in model.weights]]

# Some ranks alone.
sets = [hvd.add_process_set([0]), hvd.add_process_set([1])]
(mine,) = ring.average_gradients([tf.fill([2], 1.0 + rank)], process_set=sets[rank])
(ours,) = ring.average_gradients([tf.fill([2], 1.0 + rank)])
facts["averages"] = [mine.numpy().tolist(), ours.numpy().tolist()]
facts["a model of one rank"] = refused(lambda: ring.distribute(classifier(), process_set=sets[0]))

# A loop that updates past every optimizer; the ranks never meet in it.
model = classifier()
for _ in range(4):
    with tf.GradientTape() as tape:
        loss = loss_of(y[rank::2], model(x[rank::2]))
    for variable, gradient in zip(model.weights, tape.gradient(loss, model.trainable_weights), strict=True):
        variable.assign(variable - 0.1 * gradient)
facts["distributed on one rank"] = refused(lambda: classifier() if rank else model.fit(x, y, verbose=0))
(out / f"rank{rank}.json").write_text(json.dumps(facts))
