"""The rate set before every batch by a callback, predictions looked at after every epoch, training stopped by itself.

joined: 1e-5, sums in another order
"""

import sys

import keras
import numpy as np

from ringscope import ring

ring.init(seed=3)
x, y = np.random.normal(size=(96, 4)).astype("float32"), np.random.normal(size=(96, 1)).astype("float32")


class OneCycle(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.total = self.params["steps"] * self.params["epochs"]
        self.step, self.rates = 0, []

    def on_train_batch_begin(self, batch, logs=None):
        place = abs(2 * self.step / self.total - 1)
        self.model.optimizer.learning_rate = 0.1 * (1 - place) + 0.001
        self.rates.append(float(self.model.optimizer.learning_rate))
        self.step += 1


class Look(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.seen = []

    def on_epoch_end(self, epoch, logs=None):
        self.seen.append(float(np.mean(self.model.predict(x[:30], verbose=0))))
        self.seen.append(self.model.evaluate(x[50:], y[50:], verbose=0)[0])
        if logs["val_loss"] < 0.2 or epoch == 3:
            self.model.stop_training = True


model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse", metrics=["mae"])
ring.distribute(model)
look, cycle = Look(), OneCycle()
history = model.fit(x, y, int(sys.argv[1]), 9, shuffle=False, validation_data=(x[:20], y[:20]), callbacks=[cycle, look])
results = look.seen + cycle.rates
