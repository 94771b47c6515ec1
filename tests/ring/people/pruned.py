"""Magnitude pruning by a callback that masks kernels after each batch, weights of several epochs averaged at the end,
batch statistics taken anew by passes over the data.

joined: 2e-5, sums in another order
"""

import sys

import keras
import numpy as np
from keras import layers

from ringscope import ring

ring.init(seed=75)
batch = int(sys.argv[1])


class Prune(keras.callbacks.Callback):
    def __init__(self, share):
        super().__init__()
        self.share, self.masks = share, {}

    def on_epoch_begin(self, epoch, logs=None):
        for layer in self.model.layers:
            if isinstance(layer, layers.Dense):
                kernel = np.abs(layer.kernel.numpy())
                self.masks[layer] = kernel > np.quantile(kernel, self.share * epoch / 4)

    def on_train_batch_end(self, batch, logs=None):
        for layer, mask in self.masks.items():
            layer.kernel.assign(layer.kernel * mask)


class Averaged(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.sum, self.count = None, 0

    def on_epoch_end(self, epoch, logs=None):
        if epoch >= 1:
            weights = self.model.get_weights()
            self.sum = weights if self.sum is None else [a + b for a, b in zip(self.sum, weights)]
            self.count += 1

    def on_train_end(self, logs=None):
        self.model.set_weights([each / self.count for each in self.sum])


x = np.random.normal(size=(64, 8)).astype("float32")
y = (x[:, :1] > 0).astype("float32")
model = keras.Sequential([keras.Input((8,)), layers.Dense(12, activation="relu"), layers.Dense(1, "sigmoid")])
model.compile(keras.optimizers.SGD(0.3, momentum=0.9), "binary_crossentropy", metrics=["accuracy"])
ring.distribute(model)
history = model.fit(x, y, batch_size=batch, epochs=4, shuffle=False, callbacks=[Prune(0.5), Averaged()])
again = model.fit(x, y, batch_size=batch, epochs=6, initial_epoch=4, shuffle=False)
