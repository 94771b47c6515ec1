"""A learning rate for each group of layers: a train step with a list of pairs of optimizer and layers.

joined: 1e-5, sums in another order
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from ringscope import ring

ring.init(seed=60)


class Discriminative(keras.Model):
    def compile(self, pairs, **kwargs):
        super().compile(optimizer=pairs[0][0], **kwargs)
        self.pairs = pairs

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        variables = [[v for layer in group for v in layer.trainable_variables] for _, group in self.pairs]
        for (optimizer, _), gradients, own in zip(self.pairs, tape.gradient(loss, variables), variables):
            optimizer.apply_gradients(zip(gradients, own))
        return {"loss": loss}


x = np.random.normal(size=(96, 5)).astype("float32")
y = x[:, :1] ** 2
inputs = keras.Input((5,))
body, head = layers.Dense(8, activation="tanh"), layers.Dense(1)
model = Discriminative(inputs, head(body(inputs)))
model.compile([(keras.optimizers.Adam(0.001), [body]), (keras.optimizers.Adam(0.01), [head])], loss="mse")
ring.distribute(model)
history = model.fit(x, y, batch_size=int(sys.argv[1]), epochs=2, shuffle=False)
