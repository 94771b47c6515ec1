"""`python stalled.py CASE`: two ranks of which one does not do what the other waits for; their limits are seconds."""

import sys
import time

import keras
import numpy as np
import tensorflow as tf

from ringscope import ring
from ringscope.ring.alike import ending
from ringscope.ring.ranks import stalls

ring.init(seed=1)
CASE = sys.argv[1]
stalls.LOOK_S, stalls.SAY_S, stalls.END_S = 1.0, 4.0, 9.0
ending.CHANGED_LIMIT_S = 1.0
x = np.arange(64, dtype="float32").reshape(16, 4) / 64
y = x.sum(axis=1, keepdims=True)
APART = ring.rank() == 1


class LeavesEarly(keras.Model):
    def train_step(self, data):
        x, y = data
        if APART and self.optimizer.iterations == 1:
            return {"loss": 0.0}
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(y - self(x, training=True)))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


class Alone(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if APART and CASE == "averages alone":
            ring.average_statistics(self.model)
        elif APART and CASE == "fits alone":
            self.model.fit(x, y, batch_size=2, verbose=0)
        elif APART and epoch == 0:
            time.sleep(3 * stalls.SAY_S)


def made(kind=keras.Model):
    inputs = keras.Input((4,))
    return kind(inputs, keras.layers.Dense(1)(keras.layers.BatchNormalization()(inputs)))


model = made(LeavesEarly if CASE == "leaves a step early" else keras.Model)
model.compile(keras.optimizers.SGD(0.1), "mse", run_eagerly=CASE == "leaves a step early")
ring.distribute(model)
if CASE in ("skips a batch", "ends first"):
    for number in range(4):
        if APART and number == 2:
            continue
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(y - model(x)))
        model.optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    if CASE == "skips a batch":
        ring.average_statistics(model)
elif CASE == "trains on a batch alone":
    if APART:
        model.train_on_batch(x, y)
    ring.average_statistics(model)
else:
    model.fit(x, y, batch_size=2, epochs=2, callbacks=[] if CASE == "leaves a step early" else [Alone()])
