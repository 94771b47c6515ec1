"""A model compiled again with its own optimizer: for another loss, with a frozen layer, and traced anew by a callback.

joined: 1e-5, sums in another order
"""

import sys

import keras
import numpy as np

from ringscope import ring

ring.init(seed=12)
batch = int(sys.argv[1])
x, y = np.random.normal(size=(96, 4)).astype("float32"), np.random.normal(size=(96, 1)).astype("float32")


class Scaled(keras.Model):
    def __init__(self):
        super().__init__()
        self.factor = 1.0
        self.hidden, self.out = keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)

    def build(self, shape):
        self.hidden.build(shape)
        self.out.build((None, 8))
        self.built = True

    def call(self, x):
        return self.out(self.hidden(x)) * self.factor


class Curriculum(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.model.factor = 1.0 + epoch
        self.model.make_train_function(force=True)


def first_weights_of(model):
    model.build((None, 4))
    return model


model = first_weights_of(Scaled())
model.compile(keras.optimizers.SGD(0.05), "mse")
ring.distribute(model)
model.fit(x, y, batch, shuffle=False)
model.compile(model.optimizer, "mae", metrics=["mse"])
other_loss = model.fit(x, y, batch, shuffle=False)
model.hidden.trainable = False
model.compile(model.optimizer, "mse")
frozen = model.fit(x, y, batch, shuffle=False, callbacks=[Curriculum()], epochs=3)
model.hidden.trainable = True
model.compile(model.optimizer, "mse")
r = slice(ring.rank() * batch, (ring.rank() + 1) * batch)
model.train_on_batch(x[r], y[r])
