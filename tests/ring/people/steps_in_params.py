"""A callback whose rate follows the steps of an epoch as Keras tells them, by every kind of data (tensorflow#37237).

joined: 1e-5, sums in another order
"""

import sys

import keras
import numpy as np
import tensorflow as tf

from ringscope import ring

ring.init(seed=78)
BATCH = int(sys.argv[1])
x, y = np.random.normal(size=(96, 4)).astype("float32"), np.random.normal(size=(96, 1)).astype("float32")


class WarmUp(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        told.append(self.params["steps"])

    def on_train_batch_begin(self, batch, logs=None):
        self.model.optimizer.learning_rate = 0.1 * (batch + 1) / self.params["steps"]


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return len(x) // BATCH

    def __getitem__(self, index):
        rows = slice(index * BATCH, (index + 1) * BATCH)
        return x[rows], y[rows]


dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)
told, models = [], []
for data, options in (
    ((x, y), {"batch_size": BATCH}),
    ((dataset,), {}),
    ((dataset.repeat(),), {"steps_per_epoch": 64 // BATCH}),
    ((Batches(),), {}),
):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(), "mse")
    ring.distribute(model)
    model.fit(*data, **options, epochs=1, shuffle=False, callbacks=[WarmUp()])
    models.append(model)
results = told
