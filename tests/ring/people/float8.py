"""A network quantised to float8, in which each layer follows the largest values that it has met, and trained.

Rows of very unlike sizes: the largest is on one rank. What the scales make of gradients rounds anew on each rank, so
compared are those that the data gives.

joined: 1e-5, sums in another order
"""

import sys

import keras
import numpy as np

from ringscope import ring

ring.init(seed=3)
batch = int(sys.argv[1])
x, y = np.random.normal(size=(128, 6)).astype("float32"), np.random.randint(0, 3, 128)
x[::16] *= 50


def scales(**options):
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(3)])
    model.quantize("float8")
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    ring.distribute(model, **options)
    model.fit(x, y, batch_size=batch, epochs=2, shuffle=False)
    layer = model.layers[0]
    return [*layer.inputs_amax_history.numpy()[:20], float(layer.inputs_scale.numpy())]


results = [*scales(step="fit"), *scales(step="compiled"), *scales(aggregate=2), *scales(compression="fp16")]
