"""Horovod's callbacks in fit.

refused: remove hvd.BroadcastGlobalVariablesCallback from the script
"""

import horovod.tensorflow.keras as hvd
import keras
import numpy as np

from ringscope import ring

ring.init(seed=58)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
ring.distribute(model)
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
model.fit(np.zeros((32, 4)), np.zeros((32, 1)), batch_size=8, callbacks=callbacks)
