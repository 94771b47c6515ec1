"""A subclassed model on a shuffled tf.data pipeline, validated after each epoch, stopped early.

joined: 1e-5, sums in another order
"""

import sys

import keras
import numpy as np
import tensorflow as tf

from ringscope import ring

ring.init(seed=3)


class Classifier(keras.Model):
    def __init__(self, classes):
        super().__init__()
        self.hidden = keras.layers.Dense(16, activation="gelu")
        self.norm = keras.layers.LayerNormalization()
        self.head = keras.layers.Dense(classes)

    def call(self, inputs, training=None):
        return keras.ops.softmax(self.head(self.norm(self.hidden(inputs))))


x = np.random.normal(size=(128, 6)).astype("float32")
y = (x[:, 0] > 0).astype("int64") + (x[:, 1] > 0)
train = tf.data.Dataset.from_tensor_slices((x[:96], y[:96])).shuffle(96, seed=5).batch(int(sys.argv[1])).prefetch(2)
test = tf.data.Dataset.from_tensor_slices((x[96:], y[96:])).batch(8)
model = Classifier(3)
model.compile(keras.optimizers.AdamW(1e-2), "sparse_categorical_crossentropy", metrics=["accuracy"])
ring.distribute(model)
stop = keras.callbacks.EarlyStopping(patience=1, restore_best_weights=True)
history = model.fit(train, validation_data=test, epochs=4, callbacks=[stop])
