"""Three outputs: lists and dictionaries of losses, weights of samples for each output, quantiles
by lambdas, weighted and plain metrics of each.

joined: 2e-5, sums in another order
"""

import functools
import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from ringscope import ring

ring.init(seed=76)
batch = int(sys.argv[1])
x = np.random.normal(size=(80, 6)).astype("float32")
price = (x[:, :1] * 3).astype("float32")
kind = (x[:, 1] > 0).astype("int32") + (x[:, 2] > 1)
weights = {"price": np.linspace(0.1, 2, 80).astype("float32"), "kind": (np.arange(80) % 3 > 0).astype("float32")}


def quantile(q, y, p):
    error = y - p
    return ops.mean(ops.maximum(q * error, (q - 1) * error), axis=-1)


def network():
    inputs = keras.Input((6,))
    h = layers.Dense(8, activation="tanh", name="h")(inputs)
    return inputs, layers.Dense(1, name="price")(h), layers.Dense(3, activation="softmax", name="kind")(h), h


inputs, p, k, h = network()
one = keras.Model(inputs, {"price": p, "kind": k})
one.compile(
    keras.optimizers.RMSprop(0.01, epsilon=1e-3),
    loss={"price": "mse", "kind": "sparse_categorical_crossentropy"},
    loss_weights={"price": 0.3, "kind": 1.0},
    metrics={"price": ["mae"], "kind": ["accuracy"]},
    weighted_metrics={"price": ["mae"], "kind": [keras.metrics.SparseCategoricalAccuracy(name="heavy")]},
)
ring.distribute(one)
first = one.fit(x, {"price": price, "kind": kind}, sample_weight=weights, batch_size=batch, epochs=2, shuffle=False)
data = tf.data.Dataset.from_tensor_slices((x, {"price": price, "kind": kind}, weights)).batch(batch)
second = one.fit(data, epochs=1, validation_data=data)

inputs, p, k, h = network()
low, high = layers.Dense(1, name="low")(h), layers.Dense(1, name="high")(h)
two = keras.Model(inputs, [low, p, high])
two.compile(
    keras.optimizers.SGD(0.05, nesterov=True, momentum=0.5),
    loss=[functools.partial(quantile, 0.1), lambda y, p: quantile(0.5, y, p), lambda y, p: quantile(0.9, y, p)],
    loss_weights=[1.0, 2.0, 1.0],
    metrics=[["mae"], ["mae", keras.metrics.RootMeanSquaredError()], None],
)
ring.distribute(two)
third = two.fit(x, [price, price, price], batch_size=batch, epochs=2, shuffle=False, validation_split=0.2)
