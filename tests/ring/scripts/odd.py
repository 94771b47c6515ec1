"""What scripts do to their own process within a training: python odd.py CASE."""

import os
import sys

import keras
import numpy as np

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
        elif case.startswith("ends by os._exit") and ring.rank() == 1:
            os._exit(int(case.split()[-1]))


model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
ring.distribute(model)
model.fit(x, x[:, :1], batch_size=4, verbose=0, callbacks=[Odd()])
