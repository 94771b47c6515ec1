"""A stateful LSTM over long series cut into windows, each pass from fresh states; tested and asked by the same windows.

joined: 1e-5, sums in another order
"""

import sys

import keras
import numpy as np

from ringscope import ring

ring.init(seed=3)
batch = int(sys.argv[1])
series = np.cumsum(np.random.normal(size=(16, 31, 1)), axis=1).astype("float32")
x = np.concatenate([series[:, i * 6 : i * 6 + 6] for i in range(5)])
y = np.concatenate([series[:, i * 6 + 6, 0] for i in range(5)])
model = keras.Sequential(
    [keras.Input((6, 1), batch_size=batch), keras.layers.LSTM(5, stateful=True), keras.layers.Dense(1)]
)
model.compile("adam", "mse", metrics=["mae"])
ring.distribute(model)
results = []
for epoch in range(2):
    history = model.fit(x[:64], y[:64], batch_size=batch, epochs=1, shuffle=False, validation_data=(x[64:], y[64:]))
    results += [history.history["loss"][0], history.history["val_loss"][0], history.history["val_mae"][0]]
    model.layers[0].reset_state()
results += model.evaluate(x, y, batch_size=batch)
model.layers[0].reset_state()
results += model.predict(x, batch_size=batch)[:, 0].tolist()
