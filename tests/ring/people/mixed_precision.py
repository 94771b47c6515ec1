"""float16 with a loss that is scaled by itself, the output in float32.

joined: 2e-3, products are rounded to float16 in batches of other sizes
"""

import sys

import keras
import numpy as np
from keras import layers

from ringscope import ring

ring.init(seed=41)
keras.mixed_precision.set_global_policy("mixed_float16")
x, y = np.random.rand(64, 20).astype("float32"), np.random.randint(0, 3, 64)
inputs = keras.Input((20,))
hidden = layers.Dense(16, activation="relu")(inputs)
model = keras.Model(inputs, layers.Activation("softmax", dtype="float32")(layers.Dense(3)(hidden)))
model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy", metrics=["accuracy"])
ring.distribute(model)
history = model.fit(x, y, batch_size=int(sys.argv[1]), epochs=2, shuffle=False)
