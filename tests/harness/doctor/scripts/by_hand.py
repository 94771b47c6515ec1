"""Horovod by hand in a loop of the script's own, without ring. usage: by_hand.py together|forgotten

`forgotten`: the gradients are not exchanged."""

import sys

import horovod.tensorflow as hvd
import keras
import numpy as np
import tensorflow as tf

hvd.init()
random = np.random.default_rng(0)
x, y = random.normal(size=(320, 20)).astype("float32"), random.integers(0, 3, size=320)
model = keras.Sequential([keras.Input((20,)), keras.layers.Dense(3)])
optimizer = keras.optimizers.SGD(0.1)
optimizer.build(model.trainable_variables)
hvd.broadcast_variables([v.value for v in model.variables], root_rank=0)
loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@tf.function
def train(x: tf.Tensor, y: tf.Tensor) -> None:
    with tf.GradientTape() as tape:
        loss = loss_of(y, model(x))
    if sys.argv[1] == "together":
        tape = hvd.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, [variable.value for variable in model.trainable_variables])
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))


for _ in range(100):
    for batch in tf.data.Dataset.from_tensor_slices((x, y)).shard(hvd.size(), hvd.rank()).batch(16):
        train(*batch)
