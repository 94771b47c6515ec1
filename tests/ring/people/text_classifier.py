"""Reviews: strings in tf.data, TextVectorization adapted to them, pooled embeddings.

joined: 1e-5, sums in another order
"""

import random
import sys

import keras
import tensorflow as tf
from keras import layers

from ringscope import ring

ring.init(seed=18)
words = "good bad fine awful great poor film plot actor scene".split()
texts = [" ".join(random.choice(words) for _ in range(6)) for _ in range(64)]
labels = [int("good" in text or "great" in text) for text in texts]
raw = tf.data.Dataset.from_tensor_slices((texts, labels)).batch(int(sys.argv[1]))
vectorize = layers.TextVectorization(max_tokens=20, output_sequence_length=6)
vectorize.adapt(raw.map(lambda text, label: text))
train = raw.map(lambda text, label: (vectorize(text), label)).cache().prefetch(1)
model = keras.Sequential(
    [
        layers.Embedding(20, 8),
        layers.GlobalAveragePooling1D(),
        layers.Dense(8, activation="relu"),
        layers.Dense(1, activation="sigmoid"),
    ]
)
model.compile(loss="binary_crossentropy", optimizer=keras.optimizers.Adam(0.01), metrics=["accuracy"])
ring.distribute(model)
history = model.fit(train, epochs=3)
