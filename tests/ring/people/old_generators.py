"""Keras 2's ImageDataGenerator and TimeseriesGenerator, which old scripts still take from tf.keras: from
arrays, in order, with a split for validation.

joined: 2e-5, sums in another order
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from ringscope import ring

ring.init(seed=94)
batch = int(sys.argv[1])
pictures, labels = np.random.rand(64, 6, 6, 3).astype("float32"), np.arange(64) % 3
generator = tf.keras.preprocessing.image.ImageDataGenerator(
    rescale=1 / 2, validation_split=0.25, featurewise_center=True
)
generator.fit(pictures)
model = keras.Sequential(
    [keras.Input((6, 6, 3)), layers.Conv2D(4, 3, activation="relu"), layers.Flatten(), layers.Dense(3)]
)
model.compile(
    keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"]
)
ring.distribute(model)
parts = [
    generator.flow(pictures, labels, batch_size=batch, shuffle=False, subset=subset)
    for subset in ("training", "validation")
]
first = model.fit(parts[0], validation_data=parts[1], epochs=2)
second = model.fit(parts[0], steps_per_epoch=len(parts[0]), epochs=2)

series = np.sin(np.arange(90) / 5)[:, None].astype("float32")
windows = tf.keras.preprocessing.sequence.TimeseriesGenerator(series, series, length=10, batch_size=batch)
recurrent = keras.Sequential([keras.Input((10, 1)), layers.SimpleRNN(4), layers.Dense(1)])
recurrent.compile(keras.optimizers.SGD(0.05), "mse")
ring.distribute(recurrent)
third = recurrent.fit(windows, epochs=2)
