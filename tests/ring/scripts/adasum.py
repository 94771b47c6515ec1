"""One step by Adasum, each rank on data of its own, beside what the paper's formula gives. Under MPI. usage: adasum.py
OUT"""

import json
import sys
from pathlib import Path
from typing import Any

import horovod.tensorflow as hvd
import keras
import numpy as np
import tensorflow as tf

from ringscope import ring

ring.init()
out, rank = Path(sys.argv[1]), ring.rank()
random = np.random.default_rng(rank)
x, y = random.normal(size=(16, 4)).astype("float32"), random.normal(size=(16, 2)).astype("float32")


def adasum(a: Any, b: Any) -> Any:
    """Maleki et al. 2020, arXiv:2006.02924, of two gradients."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    dot = np.sum(a * b)
    return (1 - dot / (2 * np.sum(a * a))) * a + (1 - dot / (2 * np.sum(b * b))) * b


facts = {}
for step in ("fit", "compiled"):
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, bias_initializer="ones")])
    before = [w.numpy() for w in model.weights]
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x) - y))
    everybodys = hvd.allgather_object([g.numpy() for g in tape.gradient(loss, model.trainable_weights)])
    model.compile(keras.optimizers.SGD(1.0), "mse")
    ring.distribute(model, step=step, op="adasum")
    model.fit(x, y, batch_size=16, verbose=0, shard=False)
    expected = [w - adasum(*pair) for w, pair in zip(before, zip(*everybodys, strict=True), strict=True)]
    facts[step] = {
        "weights": [w.numpy().tolist() for w in model.weights],
        "expected": [w.tolist() for w in expected],
        "averaged": [
            (w - np.mean(pair, axis=0)).tolist() for w, pair in zip(before, zip(*everybodys, strict=True), strict=True)
        ],
    }
out.mkdir(parents=True, exist_ok=True)
(out / f"rank{rank}.json").write_text(json.dumps(facts))
