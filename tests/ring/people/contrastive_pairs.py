"""Pairs of images through one tower, the distance between them, a contrastive loss made by a function.

joined: 1e-5, sums in another order
"""

import random
import sys

import keras
import numpy as np
from keras import layers, ops

from ringscope import ring

ring.init(seed=9)


def make_pairs(x, y):
    digit_indices = [np.where(y == i)[0] for i in range(4)]
    pairs, labels = [], []
    for i in range(len(x)):
        other = (y[i] + random.randint(1, 3)) % 4
        pairs += [[x[i], x[random.choice(digit_indices[y[i]])]], [x[i], x[random.choice(digit_indices[other])]]]
        labels += [0, 1]
    return np.array(pairs), np.array(labels).astype("float32")


def contrastive(margin=1.0):
    def loss(y_true, y_pred):
        return ops.mean((1 - y_true) * ops.square(y_pred) + y_true * ops.square(ops.maximum(margin - y_pred, 0)))

    return loss


x = np.random.rand(48, 6, 6, 1).astype("float32")
y = np.arange(48) % 4
pairs, labels = make_pairs(x, y)
tower_in = keras.Input((6, 6, 1))
tower = layers.Conv2D(4, 3, activation="tanh")(tower_in)
tower = keras.Model(tower_in, layers.Dense(5)(layers.Flatten()(tower)))
one, two = keras.Input((6, 6, 1)), keras.Input((6, 6, 1))
distance = layers.Lambda(
    lambda v: ops.sqrt(ops.maximum(ops.sum(ops.square(v[0] - v[1]), axis=1, keepdims=True), 1e-7)),
    output_shape=(1,),
)([tower(one), tower(two)])
siamese = keras.Model([one, two], layers.Dense(1, activation="sigmoid")(distance))
siamese.compile(loss=contrastive(), optimizer="RMSprop", metrics=["accuracy"])
ring.distribute(siamese)
history = siamese.fit([pairs[:, 0], pairs[:, 1]], labels, batch_size=int(sys.argv[1]), epochs=2, shuffle=False)
