"""Horovod's optimizer around Keras's, as the old example has it.

refused: remove hvd.DistributedOptimizer from the script
"""

import horovod.tensorflow.keras as hvd
import keras

from ringscope import ring

ring.init(seed=57)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
opt = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01 * hvd.size()))
model.compile(opt, "mse")
ring.distribute(model)
