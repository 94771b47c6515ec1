"""An autoencoder that takes noise off images, looked at by predict.

joined: 1e-5, sums in another order
"""

import sys

import keras
import numpy as np
from keras import layers

from ringscope import ring

ring.init(seed=47)
clean = np.random.rand(64, 8, 8, 1).astype("float32")
noisy = np.clip(clean + 0.3 * np.random.normal(size=clean.shape), 0, 1).astype("float32")
image = layers.Input(shape=(8, 8, 1))
x = layers.MaxPooling2D(2, padding="same")(layers.Conv2D(6, 3, activation="relu", padding="same")(image))
x = layers.Conv2DTranspose(6, 3, strides=2, activation="relu", padding="same")(x)
autoencoder = keras.Model(image, layers.Conv2D(1, 3, activation="sigmoid", padding="same")(x))
autoencoder.compile(optimizer="adam", loss="binary_crossentropy")
ring.distribute(autoencoder)
history = autoencoder.fit(
    x=noisy, y=clean, epochs=2, batch_size=int(sys.argv[1]), shuffle=False, validation_data=(noisy[:32], clean[:32])
)
results = autoencoder.predict(noisy[:40], batch_size=8).mean(axis=(1, 2, 3))
