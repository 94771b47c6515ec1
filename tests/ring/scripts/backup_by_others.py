"""A job that is cut off within an epoch, and goes on with other ranks: python backup_by_others.py FOLDER cut|resume."""

import pathlib
import sys

import keras
import numpy as np

from ringscope import ring

ring.init(seed=81)
folder, how = pathlib.Path(sys.argv[1]), sys.argv[2:]
x, y = np.random.normal(size=(240, 4)).astype("float32"), np.random.normal(size=(240, 1)).astype("float32")


class CutOff(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if int(self.model.optimizer.iterations) == 17:
            raise SystemExit("cut off")


def start(*callbacks):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.05), "mse")
    ring.distribute(model)
    backup = keras.callbacks.BackupAndRestore(folder / "backup", save_freq=3)
    batch = 12 // ring.size()
    model.fit(x, y, batch_size=batch, epochs=2, shuffle=False, verbose=0, callbacks=[backup, *callbacks])
    return model


if "cut" in how:
    try:
        start(CutOff())
    except SystemExit as error:
        print(error)
if "resume" in how:
    model = start()
