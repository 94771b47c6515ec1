"""A small residual network with batch normalisation, images augmented in the model.

joined: no, moments and augmentation are of a rank's own batch
"""

import sys

import keras
import numpy as np
from keras import layers

from ringscope import ring

ring.init(seed=38)
inputs = keras.Input((12, 12, 3))
x = layers.RandomFlip()(layers.RandomRotation(0.1)(inputs))
x = layers.BatchNormalization()(layers.Conv2D(6, 3, padding="same")(x))
before = x = layers.ReLU()(x)
x = layers.BatchNormalization()(layers.SeparableConv2D(6, 3, padding="same")(x))
x = layers.GlobalAveragePooling2D()(layers.MaxPooling2D()(layers.add([x, before])))
model = keras.Model(inputs, layers.Dense(3)(layers.Dropout(0.3)(x)))
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(3e-4), loss, metrics=[keras.metrics.SparseCategoricalAccuracy(name="acc")])
ring.distribute(model)
images, labels = np.random.rand(64, 12, 12, 3), np.random.randint(0, 3, 64)
history = model.fit(images, labels, batch_size=int(sys.argv[1]), epochs=2, validation_split=0.25)
