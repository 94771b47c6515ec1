"""A loop whose every rank keeps checkpoints by one manager in one folder, and reads the latest again.

joined: 1e-5, sums in another order
"""

import pathlib
import sys

import keras
import numpy as np
import tensorflow as tf

from ringscope import ring

ring.init(seed=78)
batch, folder = int(sys.argv[1]), pathlib.Path(sys.argv[2])
x, y = np.random.normal(size=(96, 40)).astype("float32"), np.random.normal(size=(96, 1)).astype("float32")
model = keras.Sequential([keras.Input((40,)), keras.layers.Dense(300, activation="relu"), keras.layers.Dense(1)])
model.compile("adam")
ring.distribute(model)
checkpoint = tf.train.Checkpoint(step=tf.Variable(0), optimizer=model.optimizer, model=model)
manager = tf.train.CheckpointManager(checkpoint, folder / "checkpoints", max_to_keep=2)


@tf.function
def step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
    model.optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))


for start in [*range(0, 96, 16)] * 3:
    rows = slice(start + ring.rank() * batch, start + (ring.rank() + 1) * batch)
    step(x[rows], y[rows])
    checkpoint.step.assign_add(1)
    manager.save()
    before = model.get_weights()
    model.set_weights([0 * w for w in before])
    checkpoint.restore(manager.latest_checkpoint).assert_existing_objects_matched()
    assert all(np.array_equal(a, b) for a, b in zip(before, model.get_weights()))
results = [int(checkpoint.step)]
