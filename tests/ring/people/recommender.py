"""Ratings: embeddings of users and films, their product and biases, in a subclassed model.

joined: 1e-5, sums in another order
"""

import sys

import keras
import numpy as np
from keras import layers, ops

from ringscope import ring

ring.init(seed=40)


class RecommenderNet(keras.Model):
    def __init__(self, users, films, size, **kwargs):
        super().__init__(**kwargs)
        regular = keras.regularizers.l2(1e-6)
        self.user = layers.Embedding(users, size, embeddings_initializer="he_normal", embeddings_regularizer=regular)
        self.user_bias = layers.Embedding(users, 1)
        self.film = layers.Embedding(films, size, embeddings_initializer="he_normal", embeddings_regularizer=regular)
        self.film_bias = layers.Embedding(films, 1)

    def call(self, inputs):
        user, film = self.user(inputs[:, 0]), self.film(inputs[:, 1])
        product = ops.sum(user * film, axis=1, keepdims=True)
        return ops.sigmoid(product + self.user_bias(inputs[:, 0]) + self.film_bias(inputs[:, 1]))


pairs = np.stack([np.random.randint(0, 12, 120), np.random.randint(0, 20, 120)], axis=1)
ratings = np.random.rand(120, 1).astype("float32")
model = RecommenderNet(12, 20, 5)
model.compile(loss=keras.losses.BinaryCrossentropy(), optimizer=keras.optimizers.Adam(0.01))
ring.distribute(model)
history = model.fit(pairs, ratings, batch_size=int(sys.argv[1]), epochs=2, shuffle=False, verbose=1)
