"""A strategy of TensorFlow's over two devices in each process. usage: mirrored.py [apart|outside]

`apart`: the optimizer sums no gradients of the replicas, as Keras before 3.5 (keras#19891); `outside`: the model is
made outside of the strategy's scope."""

import contextlib
import sys

import numpy as np
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

import keras  # noqa: E402


class Apart(keras.optimizers.SGD):
    def _all_reduce_sum_gradients(self, grads_and_vars):
        return list(grads_and_vars)


keras.utils.set_random_seed(3)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
x = np.random.normal(size=(64, 4)).astype("float32")
with contextlib.nullcontext() if "outside" in sys.argv else strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(Apart(0.01) if "apart" in sys.argv else "sgd", "mse")
model.fit(x, x[:, :1], batch_size=8, epochs=3, verbose=0)
