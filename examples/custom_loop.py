"""A training loop of one's own: the same two lines, the share of the data, and the moving averages at the end.

horovodrun -np 2 python examples/custom_loop.py
"""

import keras
import numpy as np
import tensorflow as tf

from ringscope import ring

ring.init()  # <- first: one GPU for each process

random = np.random.default_rng(0)
x = random.normal(size=(2048, 20)).astype("float32")
y = x[:, :5].sum(axis=1, keepdims=True)

model = keras.Sequential(
    [keras.Input((20,)), keras.layers.Dense(64), keras.layers.BatchNormalization(), keras.layers.Dense(1)]
)
optimizer = keras.optimizers.Adam(0.01)
loss_of = keras.losses.MeanSquaredError()
model.compile(optimizer)  # nothing else is wanted
ring.distribute(model)  # <- the optimizer averages gradients wherever it is called


@tf.function
def train(x, y):
    with tf.GradientTape() as tape:
        loss = loss_of(y, model(x, training=True))
    variables = model.trainable_variables
    optimizer.apply(tape.gradient(loss, variables), variables)
    return loss


batches = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(2048, seed=1).batch(64, drop_remainder=True)
mine = batches.shard(ring.size(), ring.rank())  # <- as many batches on every rank
history = []
for _epoch in range(5):
    losses = [train(*batch) for batch in mine]
    history.append(float(tf.reduce_mean(losses)))  # fetched once per epoch, not once per step

ring.average_statistics(model)  # <- moving averages, before you evaluate or save
if ring.rank() == 0:
    print(f"loss {history[0]:.3f} -> {history[-1]:.3f} on {ring.size()} ranks")
