"""Two updates a step by one optimizer, which was built for both networks; a predict step of one's own that
gives two numbers.

joined: 2e-5, sums in another order
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from ringscope import ring

ring.init(seed=95)


class Pair(keras.Model):
    def __init__(self):
        super().__init__()
        self.code = keras.Sequential([keras.Input((6,)), layers.Dense(3, activation="tanh")])
        self.back = keras.Sequential([keras.Input((3,)), layers.Dense(6)])

    def call(self, x):
        return self.back(self.code(x))

    def train_step(self, x):
        for part in (self.back, self.code):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(self(x, training=True) - x))
            self.optimizer.apply(tape.gradient(loss, part.trainable_variables), part.trainable_variables)
        return {"loss": loss}

    def predict_step(self, x):
        return {"code": self.code(x), "back": self(x)}


x = np.random.normal(size=(64, 6)).astype("float32") * np.linspace(0.3, 2, 64)[:, None].astype("float32")
model = Pair()
model.compile(keras.optimizers.SGD(0.1, momentum=0.9))
model.optimizer.build(model.trainable_variables)
ring.distribute(model)
history = model.fit(x, batch_size=int(sys.argv[1]), epochs=2, shuffle=False)
results = model.predict(x[:20], batch_size=int(sys.argv[1]), verbose=0)["code"]
