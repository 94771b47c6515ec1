"""A physics-informed network: derivatives with respect to inputs inside of the loss, in nested tapes, residuals beside
boundary values, an inverse parameter that is learnt too.

joined: 5e-5, sums in another order
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from ringscope import ring

ring.init(seed=79)


class Pinn(keras.Model):
    def __init__(self):
        super().__init__()
        self.net = keras.Sequential([layers.Dense(8, activation="tanh"), layers.Dense(1)])
        self.viscosity = self.add_weight(shape=(), initializer="ones", name="viscosity")
        self.residual = keras.metrics.Mean(name="residual")

    def call(self, tx):
        return self.net(tx)

    def train_step(self, data):
        (points, edge), values = data
        with tf.GradientTape() as tape:
            with tf.GradientTape() as second:
                second.watch(points)
                with tf.GradientTape() as first:
                    first.watch(points)
                    u = self(points, training=True)
                du = first.gradient(u, points)
                along = du[:, 1]
            ddu = second.gradient(along, points)[:, 1:]
            residual = du[:, :1] + u * du[:, 1:] - self.viscosity * ddu
            loss = tf.reduce_mean(residual**2) + 2 * self.compute_loss(y=values, y_pred=self(edge, training=True))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        self.residual.update_state(tf.abs(residual))
        return {"loss": loss, "residual": self.residual.result()}


points = np.random.uniform(-1, 1, (64, 2)).astype("float32")
edge = points * [[0, 1]]
model = Pinn()
model.compile(keras.optimizers.SGD(0.02, momentum=0.8), loss="mse")
model(points[:2])
ring.distribute(model)
data = ((points, edge.astype("float32")), -np.sin(np.pi * edge[:, 1:]).astype("float32"))
history = model.fit(*data, batch_size=int(sys.argv[1]), epochs=2, shuffle=False)
