"""An optimizer of one's own: signs of a momentum, softened, by a subclass with update_step.

joined: 1e-5, sums in another order
"""

import sys

import keras
import numpy as np
from keras import layers

from ringscope import ring

ring.init(seed=63)
batch = int(sys.argv[1])


class Signs(keras.optimizers.Optimizer):
    def __init__(self, learning_rate=0.01, beta=0.9, **kwargs):
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta = beta

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self.m = [self.add_variable_from_reference(v, name="m") for v in variables]

    def update_step(self, gradient, variable, learning_rate):
        m = self.m[self._get_variable_index(variable)]
        self.assign(m, self.beta * m + (1 - self.beta) * gradient)
        self.assign_sub(variable, learning_rate * keras.ops.tanh(10 * m))


x = np.random.normal(size=(96, 6)).astype("float32")
y = np.sin(x[:, :1])
model = keras.Sequential([keras.Input((6,)), layers.Dense(8, activation="tanh"), layers.Dense(1)])
rate = keras.optimizers.schedules.CosineDecay(0.02, 20, warmup_target=0.03, warmup_steps=4)
model.compile(Signs(rate, clipnorm=1.0), "mse")
ring.distribute(model)
history = model.fit(x, y, batch_size=batch, epochs=3, shuffle=False)
