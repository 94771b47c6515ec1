"""A callback that sets the learning rate after each batch by the loss that its rank sees.

refused: so that their weights differ; set it from what all ranks have
"""

import sys

import keras
import numpy as np

from ringscope import ring

ring.init(seed=79)


class BoldDriver(keras.callbacks.Callback):
    loss = np.inf

    def on_train_batch_end(self, batch, logs=None):
        faster = 1.05 if logs["loss"] < self.loss else 0.7
        self.loss = logs["loss"]
        self.model.optimizer.learning_rate = float(self.model.optimizer.learning_rate) * faster


x, y = np.random.normal(size=(192, 4)).astype("float32"), np.random.normal(size=(192, 1)).astype("float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.01), "mse")
ring.distribute(model)
model.fit(x, y, batch_size=int(sys.argv[1]), epochs=2, shuffle=False, callbacks=[BoldDriver()])
