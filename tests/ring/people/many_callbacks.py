"""Everything that people hang into fit: plateau, early stopping, logs in files, TensorBoard, a callback of one's own.

joined: 1e-5, sums in another order
"""

import pathlib
import sys

import keras
import numpy as np

from ringscope import ring

ring.init(seed=33)
batch, folder = int(sys.argv[1]), pathlib.Path(sys.argv[2])
x, y = np.random.normal(size=(80, 4)).astype("float32"), np.random.normal(size=(80, 1)).astype("float32")


class LossHistory(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.losses = []

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(logs["loss"])


model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.3), "mse", metrics=["mae"])
ring.distribute(model)
callbacks = [
    keras.callbacks.ReduceLROnPlateau(patience=0, factor=0.3, min_delta=0.05),
    keras.callbacks.EarlyStopping(monitor="val_mae", patience=2),
    keras.callbacks.CSVLogger(folder / "log.csv"),
    keras.callbacks.TensorBoard(folder / "logs"),
    keras.callbacks.ModelCheckpoint(folder / "{epoch}.keras", monitor="val_loss"),
    keras.callbacks.TerminateOnNaN(),
    keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: print(epoch, logs["loss"])),
    LossHistory(),
]
history = model.fit(
    x[:64], y[:64], batch_size=batch, epochs=5, shuffle=False, validation_data=(x[64:], y[64:]), callbacks=callbacks
)
