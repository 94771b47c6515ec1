"""SGD after Adam: a callback gives the model another optimizer and makes its train function anew.

refused: call ring.distribute(model) again
"""

import keras
import numpy as np

from ringscope import ring

ring.init(seed=13)


class Swap(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1:
            self.model.optimizer = keras.optimizers.SGD(0.01)
            self.model.make_train_function(force=True)


model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("adam", "mse")
ring.distribute(model)
model.fit(np.random.rand(32, 4), np.random.rand(32, 1), batch_size=8, epochs=3, callbacks=[Swap()])
