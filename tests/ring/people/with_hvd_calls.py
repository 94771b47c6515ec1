"""Comes from Horovod and still asks it for rank and size, pins GPUs, averages a number by hand.

joined: 1e-5, sums in another order
"""

import sys

import horovod.tensorflow.keras as hvd
import keras
import numpy as np
import tensorflow as tf

from ringscope import ring

ring.init(seed=56)
hvd.init()
gpus = tf.config.list_physical_devices("GPU")
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
x, y = np.random.normal(size=(64, 4)).astype("float32"), np.random.normal(size=(64, 1)).astype("float32")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.01), "mse")
ring.distribute(model)
history = model.fit(x, y, batch_size=int(sys.argv[1]), epochs=2, shuffle=False, verbose=1 if hvd.rank() == 0 else 0)
score = hvd.allreduce(model.evaluate(x, y, verbose=0), name="score")
if hvd.rank() == 0:
    print("score", score)
