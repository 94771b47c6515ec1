"""Another program on a GPU: products of matrices until it is ended."""

import tensorflow as tf

gpus = tf.config.list_physical_devices("GPU")
for gpu in gpus[:1]:
    tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=2048)])
size = 8192 if gpus else 64
matrix = tf.random.normal((size, size))


@tf.function(jit_compile=True)
def many(x):
    for _ in range(20):
        x = tf.linalg.matmul(matrix, x) / size
    return x


print("computing", flush=True)
while True:
    matrix_sum = float(tf.reduce_sum(many(matrix)))
