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

from ringscope import ring
from ringscope.ring.gradients import average
from ringscope.ring.step import choose, exchange_inside

# Set before TensorFlow looks at devices, as ring.init does where there is a GPU.
cached = Path(tempfile.mkdtemp())
os.environ["TF_XLA_FLAGS"] = f"--tf_xla_persistent_cache_directory={cached}"
ring.init()
out, rank = Path(sys.argv[1]), ring.rank()
found: dict[str, Any] = {}
begins = choose.resolved
random = np.random.default_rng(0)
x, y = random.normal(size=(64, 6)).astype("float32"), random.integers(0, 3, 64)
tokens = random.integers(0, 9, (64, 6))


def trained(
    name: str, model: keras.Model, data: Any, *, on_gpu: bool = True, optimizer: Any = None, **options: Any
) -> None:
    """on_gpu: by what `auto` would begin with there."""
    model.compile(optimizer or keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    choose.resolved = (lambda *arguments: ("compiled", "a test")) if on_gpu else begins
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


class AppliesTwice(keras.Sequential):
    def train_step(self, data: Any) -> Any:
        super().train_step(data)
        return super().train_step(data)


class PartsAlone(keras.Model):
    """Only its train step calls its parts."""

    def __init__(self, part: keras.Model) -> None:
        super().__init__()
        self.part = part

    def train_step(self, data: Any) -> Any:
        inputs, labels = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=labels, y_pred=self.part(inputs, training=True))
            scaled = self.optimizer.scale_loss(loss)
        self.optimizer.apply(tape.gradient(scaled, self.part.trainable_weights), self.part.trainable_weights)
        return {"loss": loss}


whole = tf.data.Dataset.from_tensor_slices((x, y)).batch(4)
trained("here", dense(), whole, on_gpu=False)
trained("taken", dense(), whole)
trained("refused", dense(OnTheHost), whole)
trained("narrow", dense(), whole, compression="fp16")
for on_gpu, where in ((False, ", here"), (True, "")):
    trained(f"applied twice{where}", dense(AppliesTwice), whole, on_gpu=on_gpu)
    frozen = dense()
    frozen.trainable = False
    trained(f"frozen{where}", frozen, whole, on_gpu=on_gpu)
    trained(f"parts alone{where}", PartsAlone(dense()), whole, on_gpu=on_gpu)
    # The first batches overflow, and halve the scale.
    scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=2.0**127)
    large = tf.data.Dataset.from_tensor_slices((np.where(np.arange(64)[:, None] < 8, 8, 1) * x, y)).batch(4)
    trained(f"a scale that halves{where}", PartsAlone(dense()), large, on_gpu=on_gpu, optimizer=scaled)
possible, exchange_inside.is_possible = exchange_inside.is_possible, lambda op: False  # a Horovod without calls for XLA
trained("applied twice, by no calls", dense(AppliesTwice), whole)
exchange_inside.is_possible = possible
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

# Words that repeat in a batch, added as a GPU adds their rows; places, of constants, that do too.
words = tf.data.Dataset.from_tensor_slices((tokens, y)).batch(4)


def embedded() -> keras.Model:
    keras.utils.set_random_seed(1)
    inputs = keras.Input((6,), dtype="int32")
    places = keras.layers.Embedding(3, 4)(keras.ops.array([[0, 0, 1, 1, 2, 2]]))
    pooled = keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(9, 4)(inputs) + places)
    return keras.Model(inputs, keras.layers.Dense(3)(pooled))


for rows, as_gpu in (("gathered", False), ("once", True)):
    average.adds_in_any_order = lambda as_gpu=as_gpu: as_gpu
    trained(f"rows {rows}", embedded(), words, on_gpu=False)
    trained(f"rows {rows}, halved", embedded(), words, on_gpu=False, compression="fp16")
found["cached programs"] = len(list(cached.iterdir()))
(out / f"rank{rank}.json").write_text(json.dumps(found))
