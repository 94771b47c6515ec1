"""What scripts do to their own process within a training: python odd.py CASE."""

import os
import sys
import time

import keras
import numpy as np
import tensorflow as tf

from ringscope import ring

ring.init(seed=3)
case = sys.argv[1]
x = np.random.normal(size=(32, 4)).astype("float32")


class Odd(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch != 1:
            return
        if case in ("forks", "forks, which fails"):
            if (child := os.fork()) == 0:
                sys.exit(0 if case == "forks" else "an error of the child's own")
            os.waitpid(child, 0)
        elif case == "closes stdout":
            sys.stdout.close()
        elif case == "closes stderr":
            sys.stderr.close()
        elif case == "closes descriptors":
            os.close(1)
            os.close(2)
        elif case in ("ends by os._exit 0", "ends by os._exit 3"):
            end()


def end():
    if ring.rank() == 1:
        os._exit(int(case.split()[-1]))


model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
ring.distribute(model)
model.fit(x, x[:, :1], batch_size=4, verbose=0, callbacks=[Odd()])
if case == "before another fit ends by os._exit 0":
    end()
    model.fit(x, x[:, :1], batch_size=4, verbose=0)
elif case == "in its own loop ends by os._exit 0":
    for step in range(4):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x[:4]) - x[:4, :1]) ** 2)
        if step == 2:
            end()
        model.optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
elif case == "in a joint evaluation ends by os._exit 0":
    model.evaluate(
        x,
        x[:, :1],
        batch_size=4,
        verbose=0,
        callbacks=[keras.callbacks.LambdaCallback(on_test_begin=lambda logs: end())],
    )
elif case == "saved at the end by os._exit 0":
    end()
    time.sleep(2)
