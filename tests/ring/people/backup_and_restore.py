"""A job that is cut off in its third epoch and started again, with BackupAndRestore.

joined: 1e-5, sums in another order
"""

import pathlib
import sys

import keras
import numpy as np

from ringscope import ring

ring.init(seed=26)
batch, folder = int(sys.argv[1]), pathlib.Path(sys.argv[2])
x, y = np.random.normal(size=(64, 5)), np.random.normal(size=(64, 1))


class CutOff(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2:
            raise RuntimeError("cut off")


def start(*callbacks):
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse")
    ring.distribute(model)
    backup = keras.callbacks.BackupAndRestore(folder / "backup")
    history = model.fit(x, y, batch_size=batch, epochs=4, shuffle=False, verbose=0, callbacks=[backup, *callbacks])
    return model, history


try:
    start(CutOff())
except RuntimeError as error:
    print(error)
model, history = start()
