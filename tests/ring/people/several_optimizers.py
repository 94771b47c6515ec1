"""Wide and deep: a train step with one optimizer for the wide part and another for the deep one.

joined: 1e-5, sums in another order
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from ringscope import ring

ring.init(seed=37)


class WideAndDeep(keras.Model):
    def __init__(self):
        super().__init__()
        self.wide = layers.Dense(1)
        self.deep = keras.Sequential([layers.Dense(8, activation="relu"), layers.Dense(1)])

    def call(self, x):
        return self.wide(x) + self.deep(x)

    def compile(self, wide_optimizer, deep_optimizer, **kwargs):
        super().compile(**kwargs)
        self.wide_optimizer, self.deep_optimizer = wide_optimizer, deep_optimizer

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        wide, deep = self.wide.trainable_variables, self.deep.trainable_variables
        wide_gradients, deep_gradients = tape.gradient(loss, [wide, deep])
        self.wide_optimizer.apply_gradients(zip(wide_gradients, wide))
        self.deep_optimizer.apply_gradients(zip(deep_gradients, deep))
        return {"loss": loss}


x = np.random.normal(size=(96, 5)).astype("float32")
y = x[:, :1] ** 2
model = WideAndDeep()
model.compile(keras.optimizers.Ftrl(0.05), keras.optimizers.Adam(0.01), loss="mse")
ring.distribute(model)
history = model.fit(x, y, batch_size=int(sys.argv[1]), epochs=2, shuffle=False)
