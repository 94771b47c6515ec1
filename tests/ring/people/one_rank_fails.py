"""One rank stumbles over its own data in the middle of an epoch: all end, and say which.

refused: rank 1 left the training
"""

import keras
import numpy as np

from ringscope import ring

ring.init(seed=68)


class Stumble(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 2 and ring.rank() == 1:
            raise ValueError("a broken picture")


model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
ring.distribute(model)
model.fit(np.random.rand(128, 4), np.random.rand(128, 1), batch_size=8, callbacks=[Stumble()])
