"""Self-training: predictions on rows without labels, the surest taken as labels, hard rows seen again, fitted anew; the
rate found by a sweep before, the weights put back after it.

joined: 5e-5, sums in another order
"""

import sys

import keras
import numpy as np
from keras import layers

from ringscope import ring

ring.init(seed=81)
batch = int(sys.argv[1])
x = np.random.normal(size=(96, 6)).astype("float32")
y = (x[:, :1] + 0.2 * np.random.normal(size=(96, 1)) > 0).astype("float32")
known_x, known_y, rest = x[:48], y[:48], x[48:]
model = keras.Sequential([keras.Input((6,)), layers.Dense(8, activation="tanh"), layers.Dense(1, activation="sigmoid")])
model.compile(keras.optimizers.SGD(0.2, momentum=0.5), keras.losses.BinaryFocalCrossentropy(gamma=2), metrics=["AUC"])
ring.distribute(model)
results = []
for _ in range(3):
    model.fit(known_x, known_y, batch_size=batch, epochs=2, shuffle=False, verbose=0)
    sure = model.predict(rest, verbose=0)[:, 0]
    order = np.argsort(-np.abs(sure - 0.5))[:16]
    known_x, known_y = np.concatenate([known_x, rest[order]]), np.concatenate([known_y, np.round(sure[order, None])])
    rest = np.delete(rest, order, 0)
    hard = np.argsort(-np.abs(model.predict_on_batch(known_x[:32])[:, 0] - known_y[:32, 0]))[:16]
    model.fit(known_x[hard], known_y[hard], batch_size=batch, shuffle=False, verbose=0, sample_weight=np.full(16, 0.3))
    results.append(model.evaluate(x, y, batch_size=batch, verbose=0)[0])
