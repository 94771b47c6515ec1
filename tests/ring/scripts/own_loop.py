"""A training loop of the user's own. usage: own_loop.py OUT BATCH [STEP]"""

import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from harness.doctor import equality
from ringscope import ring

ring.init()  # <- the first line

out, batch = Path(sys.argv[1]), int(sys.argv[2])
random = np.random.default_rng(0)
x = random.normal(size=(320, 20)).astype("float32")
y = random.integers(0, 3, size=320)
keras.utils.set_random_seed(ring.rank())
model = keras.Sequential([keras.Input((20,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(3)])
optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(optimizer)
ring.distribute(model, step=sys.argv[3] if sys.argv[3:] else "fit")  # <- the second line


@tf.function
def train(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    with tf.GradientTape() as tape:
        loss = loss_of(y, model(x, training=True))
    optimizer.apply_gradients(
        zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
    )
    return loss


batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(batch)
for _ in range(2):
    for data in batches.shard(ring.size(), ring.rank()):  # each rank its share
        train(*data)
ring.average_statistics(model)
equality.save_weights(model, out / f"rank{ring.rank()}.npz")
