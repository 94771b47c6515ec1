"""TensorFlow is used before ring has set this rank's devices.

refused: make ring.init() the script's first line
"""

import tensorflow as tf

from ringscope import ring

print(tf.constant(1.0) + 1)
ring.init(seed=67)
