"""A strategy of TensorFlow's over two devices in each process."""

import numpy as np
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

import keras  # noqa: E402

keras.utils.set_random_seed(3)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
x = np.random.normal(size=(64, 4)).astype("float32")
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
model.fit(x, x[:, :1], batch_size=8, epochs=3, verbose=0)
