from ringscope import ring

ring.init()

import keras
import tensorflow as tf
from common import SMALL, STEPS, images, loss

units = 64 if SMALL else 8192
layers = [keras.layers.Flatten(), keras.layers.Rescaling(1 / 255)]
layers += [keras.layers.Dense(units, activation="relu") for _ in range(4)]
model = keras.Sequential([*layers, keras.layers.Dense(10, dtype="float32")])
model.compile("sgd", loss())
ring.distribute(model)
data = tf.data.Dataset.from_tensors(images(16)).repeat().prefetch(4)
model.fit(data, steps_per_epoch=STEPS, verbose=0)
