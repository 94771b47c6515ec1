"""Transfer learning: train a head on a frozen base, unfreeze it, compile with a small rate, train on.

joined: 1e-5, sums in another order
"""

import sys

import keras
import numpy as np
from keras import layers

from ringscope import ring

ring.init(seed=23)
batch = int(sys.argv[1])
x = np.random.rand(64, 8, 8, 3).astype("float32")
y = np.random.randint(0, 2, (64, 1))
base = keras.Sequential(
    [keras.Input((8, 8, 3)), layers.Conv2D(6, 3), layers.BatchNormalization(), layers.ReLU()], name="base"
)
base.trainable = False
inputs = keras.Input((8, 8, 3))
features = layers.GlobalAveragePooling2D()(base(layers.Rescaling(2.0, offset=-1)(inputs), training=False))
model = keras.Model(inputs, layers.Dense(1)(features))
loss = keras.losses.BinaryCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(), loss, metrics=[keras.metrics.BinaryAccuracy()])
ring.distribute(model)
model.fit(x, y, batch_size=batch, epochs=2, shuffle=False)
base.trainable = True
for layer in base.layers:  # its statistics stay
    if isinstance(layer, layers.BatchNormalization):
        layer.trainable = False
model.compile(keras.optimizers.Adam(1e-4), loss, metrics=[keras.metrics.BinaryAccuracy()])
ring.distribute(model)
history = model.fit(x, y, batch_size=batch, epochs=2, shuffle=False)
