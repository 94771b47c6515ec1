"""Callbacks that are added on the way to Keras's `fit`: by the model's own class, and by what a tracker of experiments
lays over `keras.Model.fit`.

joined: 1e-5, sums in another order
"""

import sys

import keras
import numpy as np

from ringscope import ring

tracked: list[float] = []
run = keras.Model.fit


def fit(self, *args, **kwargs):
    callbacks = list(kwargs.get("callbacks") or [])
    callbacks.append(keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: tracked.append(logs["val_loss"])))
    return run(self, *args, **{**kwargs, "callbacks": callbacks})


keras.Model.fit = fit
ring.init(seed=5)


class Model(keras.Model):
    def fit(self, *args, callbacks=None, **kwargs):
        added = [keras.callbacks.ReduceLROnPlateau(monitor="loss", patience=0, min_delta=1e3)]
        return super().fit(*args, callbacks=(callbacks or []) + added, **kwargs)


x, y = np.random.normal(size=(64, 4)).astype("float32"), np.random.normal(size=(64, 1)).astype("float32")
inputs = keras.Input((4,))
model = Model(inputs, keras.layers.Dense(1)(inputs))
model.compile("adam", "mse")
ring.distribute(model)
stop = keras.callbacks.EarlyStopping(monitor="loss", patience=3)
history = model.fit(x, y, batch_size=int(sys.argv[1]), epochs=3, shuffle=False, validation_split=0.25, callbacks=[stop])
results = tracked
assert len(results) == 3 and "learning_rate" in history.history
