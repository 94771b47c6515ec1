"""REINFORCE on a small game: each rank plays games of its own, all learn from all of them.

joined: no, each rank plays its own games
"""

import keras
import numpy as np
import tensorflow as tf

from ringscope import ring

ring.init(seed=48)
dice = np.random.default_rng(ring.rank())
policy = keras.Sequential([keras.Input((2,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(2)])
optimizer = keras.optimizers.Adam(0.02)
policy.compile(optimizer)
ring.distribute(policy)


def play():
    states, actions, rewards = [], [], []
    place = dice.normal()
    for _ in range(8):
        state = np.array([place, 1.0], dtype="float32")
        probabilities = tf.nn.softmax(policy(state[None]))[0].numpy()
        action = int(dice.random() < probabilities[1])
        place += 0.5 if action else -0.5
        states.append(state)
        actions.append(action)
        rewards.append(-abs(place))
    returns = np.cumsum(rewards[::-1])[::-1].astype("float32")
    return np.array(states), np.array(actions), (returns - returns.mean()) / (returns.std() + 1e-6)


for episode in range(4):
    states, actions, returns = play()
    with tf.GradientTape() as tape:
        chosen = tf.nn.sparse_softmax_cross_entropy_with_logits(actions, policy(states))
        loss = tf.reduce_mean(chosen * returns)
    optimizer.apply_gradients(zip(tape.gradient(loss, policy.trainable_variables), policy.trainable_variables))
