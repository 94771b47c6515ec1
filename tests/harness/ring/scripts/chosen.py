"""What `step="auto"` does with a step that XLA refuses, with many shapes, and where ranks compile in turn.
usage: chosen.py OUT"""

import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from harness import ring
from harness.ring import choose

# Set before TensorFlow looks at devices, as ring.init does where there is a GPU.
cached = Path(tempfile.mkdtemp())
os.environ["TF_XLA_FLAGS"] = f"--tf_xla_persistent_cache_directory={cached}"
ring.init()
out, rank = Path(sys.argv[1]), ring.rank()
found: dict[str, Any] = {}
random = np.random.default_rng(0)
x, y = random.normal(size=(64, 6)).astype("float32"), random.integers(0, 3, 64)


def trained(name: str, model: keras.Model, data: Any, *, on_gpu: bool = True, **options: Any) -> None:
    model.compile(keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    if on_gpu:  # what `auto` would begin with
        choose.resolved = lambda *arguments: ("compiled", "a test")
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        ring.distribute(model, step="auto", **options)
        model.fit(data, epochs=1, verbose=0)
    found[name] = {
        "said": said.getvalue(),
        "weights": [w.tolist() for w in model.get_weights()],
        "iterations": int(model.optimizer.iterations.numpy()),
    }


def dense(train: Any = None) -> keras.Model:
    keras.utils.set_random_seed(1)
    return (train or keras.Sequential)([keras.Input((6,)), keras.layers.Dense(8), keras.layers.Dense(3)])


class OnTheHost(keras.Sequential):
    def train_step(self, data: Any) -> Any:
        (inputs, labels) = data
        seen = tf.numpy_function(lambda a: a, [inputs], tf.float32)
        return super().train_step((tf.ensure_shape(seen, inputs.shape), labels))


whole = tf.data.Dataset.from_tensor_slices((x, y)).batch(4)
trained("here", dense(), whole, on_gpu=False)
trained("taken", dense(), whole)
trained("refused", dense(OnTheHost), whole)
trained("narrow", dense(), whole, compression="fp16")
# 64 - 1 = 63 rows: the last of 16 batches, rank 1's, holds 3.
trained("one short batch", dense(), tf.data.Dataset.from_tensor_slices((x[:63], y[:63])).batch(4))
# 20 batches of as many lengths, ten for each rank.
lengths = tf.data.Dataset.from_generator(
    lambda: ((random.normal(size=(4, 2 + i, 6)).astype("float32"), np.arange(4) % 3) for i in range(20)),
    output_signature=(tf.TensorSpec((4, None, 6)), tf.TensorSpec((4,), tf.int64)),
)
keras.utils.set_random_seed(1)
pooled = keras.Sequential([keras.Input((None, 6)), keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(3)])
trained("many shapes", pooled, lengths.apply(tf.data.experimental.assert_cardinality(20)))
found["cached programs"] = len(list(cached.iterdir()))
(out / f"rank{rank}.json").write_text(json.dumps(found))
