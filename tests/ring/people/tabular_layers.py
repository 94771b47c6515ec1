"""A table whose preprocessing layers are part of the model: Normalization, StringLookup, Hashing.

joined: 1e-5, sums in another order
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from ringscope import ring

ring.init(seed=20)
numbers = np.random.normal(5, 3, (64, 3)).astype("float32")
breeds = np.random.choice(["cat", "dog", "eel"], (64, 1))
adopted = np.random.randint(0, 2, (64, 1))
normalization = layers.Normalization()
normalization.adapt(numbers)
lookup = layers.StringLookup(output_mode="one_hot")
lookup.adapt(breeds)
number, breed = keras.Input((3,), name="numbers"), keras.Input((1,), name="breed", dtype="string")
features = layers.concatenate([normalization(number), lookup(breed)])
outputs = layers.Dense(1)(layers.Dense(8, activation="relu")(features))
model = keras.Model({"numbers": number, "breed": breed}, outputs)
model.compile("adam", keras.losses.BinaryCrossentropy(from_logits=True), metrics=["accuracy"])
ring.distribute(model)
data = tf.data.Dataset.from_tensor_slices(({"numbers": numbers, "breed": breeds}, adopted)).batch(int(sys.argv[1]))
history = model.fit(data, epochs=2)
