"""One network with two heads, an actor and a critic, trained from short games in a loop.

joined: no, each rank plays its own games
"""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from ringscope import ring

ring.init(seed=49)
rng = np.random.default_rng(10 + ring.rank())
inputs = keras.Input((3,))
common = layers.Dense(8, activation="relu")(inputs)
model = keras.Model(inputs, [layers.Dense(2, activation="softmax")(common), layers.Dense(1)(common)])
optimizer = keras.optimizers.Adam(0.01)
model.compile(optimizer=optimizer)
ring.distribute(model)
huber = keras.losses.Huber()
for _ in range(3):
    state = rng.normal(size=3).astype("float32")
    with tf.GradientTape() as tape:
        losses = []
        for _ in range(5):
            probabilities, value = model(state[None])
            action = rng.choice(2, p=np.squeeze(probabilities) / np.sum(probabilities))
            state = np.tanh(state + (0.3 if action else -0.3)).astype("float32")
            reward = float(-np.abs(state).sum())
            losses.append(-tf.math.log(probabilities[0, action]) * (reward - value[0, 0]))
            losses.append(huber(tf.constant([[reward]]), value))
        loss = sum(losses)
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
