"""Everything in 16 bits, metrics included: in bfloat16 a count on one rank ends at 256 (keras#21467).

joined: no, one rank counts to 256
"""

import sys

import keras
import numpy as np

from ringscope import ring

ring.init(seed=82)
x, y = np.random.normal(size=(400, 4)), np.random.randint(0, 2, (400, 1))
models, results = [], []
for kind in ("float16", "bfloat16"):
    keras.config.set_floatx(kind)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, activation="sigmoid")])
    model.compile(keras.optimizers.SGD(0.1), "binary_crossentropy", metrics=["accuracy", keras.metrics.AUC(name="auc")])
    ring.distribute(model)
    model.fit(x, y, batch_size=int(sys.argv[1]), epochs=2, shuffle=False, verbose=0)  # Keras's bar takes no bfloat16
    found = model.evaluate(x, y, batch_size=50, verbose=0, return_dict=True)
    results.append([float(keras.ops.cast(found[name], "float32")) for name in ("accuracy", "auc")])
    right = keras.ops.cast(model.predict(x, batch_size=50, verbose=0), "float32") > 0.5
    assert abs(results[-1][0] - np.mean(np.asarray(right) == y)) < 0.02
    models.append(model)
