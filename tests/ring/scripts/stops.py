"""Rank 1 alone stops within an epoch, then leaves by an exception. usage: stops.py OUT"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np

from ringscope import ring

ring.init()
out, rank = Path(sys.argv[1]), ring.rank()
x, y = np.random.normal(size=(64, 4)).astype("float32"), np.random.randint(0, 3, 64)
facts: dict[str, Any] = {"first drawn": float(x[0, 0])}


def classifier(step: str) -> keras.Model:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    model.compile(keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return ring.distribute(model, step=step)


class StopAt(keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if rank == 1 and batch == 2:
            self.model.stop_training = True


class Fails(keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if rank == 1 and batch == 1:
            raise ValueError("a mistake of one rank")


for step in ("fit", "compiled"):
    model = classifier(step)
    model.fit(x, y, batch_size=2, epochs=3, verbose=0, callbacks=[StopAt()])
    weights = [weight.numpy().tolist() for weight in model.trainable_weights]
    facts[step] = {"steps": int(model.optimizer.iterations), "weights": weights}
(out / f"rank{rank}.json").write_text(json.dumps(facts))

try:
    classifier("fit").fit(x, y, batch_size=2, epochs=3, verbose=0, callbacks=[Fails()])
except ValueError:
    time.sleep(1 << 20)  # it lives on, so that its end tells the others nothing
