"""Pictures augmented inside of the train step by tf.image and tf.random: flips, mixup and patches of others.

joined: no, each rank draws its own
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from ringscope import ring

ring.init(seed=8)


class Augmented(keras.Model):
    def train_step(self, data):
        x, y = data
        batch = tf.shape(x)[0]
        x = tf.image.random_flip_left_right(x)
        x = tf.image.random_brightness(x, 0.2)
        x = tf.image.random_contrast(x, 0.8, 1.2)
        other = tf.random.shuffle(tf.range(batch))
        share = tf.random.uniform((batch, 1, 1, 1))
        x = share * x + (1 - share) * tf.gather(x, other)
        y = tf.reshape(share, (-1, 1)) * y + (1 - tf.reshape(share, (-1, 1))) * tf.gather(y, other)
        top = tf.random.uniform((), 0, 5, dtype=tf.int32)
        rows = tf.range(8)
        inside = tf.cast((rows >= top) & (rows < top + 3), tf.float32)
        x *= 1 - inside[:, None, None] * inside[None, :, None]
        kept = tf.random.categorical(tf.math.log([[0.1, 0.9]]), batch)[0]
        x += 0.1 * tf.cast(kept, tf.float32)[:, None, None, None] * tf.random.truncated_normal(tf.shape(x))
        return super().train_step((x, y))


x = inputs = keras.Input((8, 8, 3))
x = layers.Conv2D(8, 3, activation="relu")(x)
x = layers.BatchNormalization()(x)
x = layers.GlobalAveragePooling2D()(x)
model = Augmented(inputs, layers.Dense(4)(x))
model.compile("adam", keras.losses.CategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
ring.distribute(model)
random = np.random.default_rng(0)
pictures = random.uniform(size=(64, 8, 8, 3)).astype("float32")
labels = keras.utils.to_categorical(random.integers(0, 4, 64), 4).astype("float32")
data = tf.data.Dataset.from_tensor_slices((pictures, labels)).shuffle(64).batch(int(sys.argv[1]))
model.fit(data, epochs=2, validation_data=data)
