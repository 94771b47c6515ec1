"""EarlyStopping on rank 0 alone, which puts the best weights back there (horovod#4027, #3140).

joined: 1e-5, sums in another order
"""

import sys

import keras
import numpy as np

from ringscope import ring

ring.init(seed=72)
x, y = np.random.normal(size=(64, 4)).astype("float32"), np.random.normal(size=(64, 1)).astype("float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.2), "mse")
ring.distribute(model)
stops = keras.callbacks.EarlyStopping("val_loss", patience=2, restore_best_weights=True)
history = model.fit(
    x,
    y,
    batch_size=int(sys.argv[1]),
    epochs=8,
    shuffle=False,
    validation_data=(x, 3 - y),  # gets worse
    callbacks=[stops] if ring.rank() == 0 else [],
)
results = [len(history.epoch)]
