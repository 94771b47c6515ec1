"""Deep Q-learning: a replay buffer and games of each rank's own, a target network, predict before a move.

joined: no, each rank plays its own games
"""

import random
import sys
from collections import deque

import keras
import numpy as np

from ringscope import ring

ring.init(seed=3)
random.seed(100 + ring.rank())
batch = int(sys.argv[1])


def create_model():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(2)])
    model.compile(keras.optimizers.Adam(1e-2), "mse")
    return model


model = create_model()
ring.distribute(model)
target_model = create_model()
target_model.set_weights(model.get_weights())
memory, epsilon = deque(maxlen=200), 1.0
for episode in range(3):
    state = np.array([[random.random() for _ in range(3)]], "float32")
    for t in range(12):
        if random.random() < epsilon:
            action = random.randrange(2)
        else:
            action = int(np.argmax(model.predict(state, verbose=0)[0]))
        following = np.array([[random.random() for _ in range(3)]], "float32")
        memory.append((state, action, float(action == (state[0, 0] > 0.5)), following))
        state = following
    picked = random.sample(list(memory), batch)
    states = np.concatenate([m[0] for m in picked])
    targets = model.predict(states, verbose=0)
    ahead = target_model.predict(np.concatenate([m[3] for m in picked]), verbose=0).max(axis=1)
    for i, m in enumerate(picked):
        targets[i, m[1]] = m[2] + 0.9 * ahead[i]
    model.fit(states, targets, epochs=1, batch_size=batch, verbose=0, shard=False)
    target_model.set_weights(model.get_weights())
    epsilon *= 0.5
