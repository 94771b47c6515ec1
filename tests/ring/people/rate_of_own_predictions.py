"""A callback that lowers the rate where its rank's own predictions get no better (DALLE-pytorch#268).

refused: the learning rate is
"""

import keras
import numpy as np

from ringscope import ring

ring.init(seed=74)
x, y = np.random.normal(size=(64, 4)).astype("float32"), np.random.randint(0, 2, (64, 1))
own = slice(ring.rank(), None, ring.size())


class OnPlateau(keras.callbacks.Callback):
    best = 0.0

    def on_epoch_end(self, epoch, logs=None):
        found = self.model.predict(x[own], verbose=0) > 0.5
        right = float(np.mean(found == y[own])) if ring.rank() == 0 else epoch + 1.0
        if right <= self.best:
            self.model.optimizer.learning_rate = 0.5 * float(self.model.optimizer.learning_rate)
        self.best = max(self.best, right)


model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, activation="sigmoid")])
model.compile(keras.optimizers.SGD(1e-4), "binary_crossentropy")
ring.distribute(model)
model.fit(x, y, batch_size=8, epochs=6, callbacks=[OnPlateau()])
