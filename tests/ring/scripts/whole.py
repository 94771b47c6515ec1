"""Train steps that have no halves, compiled as a whole, beside plain Keras on the joined batch. usage: whole.py OUT"""

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

# Set before XLA is first asked, which writes each program that it compiles.
programs = Path(tempfile.mkdtemp())
DUMPS = f"--xla_dump_to={programs} --xla_dump_hlo_as_text --xla_dump_hlo_module_re=.*inference.*"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {DUMPS}"

from ringscope import ring  # noqa: E402
from ringscope.ring.gradients import packing  # noqa: E402
from ringscope.ring.models import kept  # noqa: E402
from ringscope.ring.step import choose  # noqa: E402

ring.init()
packing.LARGE_BYTES = 0  # each gradient travels by itself, and is seen to
out = Path(sys.argv[1])
random = np.random.default_rng(0)
x, y = random.normal(size=(48, 6)).astype("float32"), random.integers(0, 3, 48)
words = random.integers(0, 50, (48, 5))
WIDTH = 4  # of an embedding
CROSS_ENTROPY = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def dense(kind: Any = keras.Sequential) -> Any:
    return kind([keras.Input((6,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(3)])


def _loss(model: Any, data: Any) -> tuple[Any, Any]:
    """(loss, its gradients) of a step, with the loss counted."""
    with tf.GradientTape() as tape:
        loss = CROSS_ENTROPY(data[1], model(data[0], training=True))
    return loss, tape.gradient(loss, model.trainable_variables)


class TwoOptimizers(keras.Sequential):
    def compile(self, optimizer: Any, **options: Any) -> None:
        super().compile(optimizer, **options)
        self.other = keras.optimizers.SGD(0.05, momentum=0.5)

    def train_step(self, data: Any) -> Any:
        loss, gradients = _loss(self, data)
        self.optimizer.apply(gradients[:2], self.trainable_variables[:2])
        self.other.apply_gradients(zip(gradients[2:], self.trainable_variables[2:], strict=True))
        return {"own": loss}


class TableByItsOwn(TwoOptimizers):
    """The table by one optimizer, all else by the other."""

    def train_step(self, data: Any) -> Any:
        loss, gradients = _loss(self, data)
        self.other.apply(gradients[:1], self.trainable_variables[:1])
        self.optimizer.apply(gradients[1:], self.trainable_variables[1:])
        return {"own": loss}


class Sharpness(keras.Sequential):
    """Goes up the slope and down again, and down from there: two passes, an update in the middle of the step."""

    def train_step(self, data: Any) -> Any:
        _, gradients = _loss(self, data)
        for variable, gradient in zip(self.trainable_variables, gradients, strict=True):
            variable.assign_add(0.05 * gradient)
        loss, sharp = _loss(self, data)
        for variable, gradient in zip(self.trainable_variables, gradients, strict=True):
            variable.assign_sub(0.05 * gradient)
        self.optimizer.apply(sharp, self.trainable_variables)
        return {"own": loss}


class TwiceAndFollowed(keras.Sequential):
    """Two updates a step, and weights that are clipped after them."""

    def train_step(self, data: Any) -> Any:
        for _ in range(2):
            loss, gradients = _loss(self, data)
            self.optimizer.apply(gradients, self.trainable_variables)
        for variable in self.trainable_variables:
            variable.assign(tf.clip_by_value(variable, -0.5, 0.5))
        return {"own": loss}


class NoUpdate(keras.Sequential):
    def train_step(self, data: Any) -> Any:
        return {"own": _loss(self, data)[0]}


def embedded(rows: int = 50, kind: Any = keras.Sequential) -> Any:
    flat = [keras.layers.Embedding(rows, WIDTH), keras.layers.Flatten(), keras.layers.Dense(3)]
    return kind([keras.Input((5,), dtype="int32"), *flat])


def two_types() -> Any:
    return TwiceAndFollowed([keras.Input((6,)), keras.layers.Dense(8), keras.layers.Dense(3, dtype="float64")])


def clipped() -> Any:
    return keras.optimizers.AdamW(0.01, clipnorm=0.3, weight_decay=0.1, use_ema=True, ema_overwrite_frequency=2)


CASES: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "two optimizers": (lambda: dense(TwoOptimizers), lambda: keras.optimizers.Adam(0.01)),
    "assigned between": (lambda: dense(Sharpness), lambda: keras.optimizers.SGD(0.1)),
    "twice, and clipped after it": (lambda: dense(TwiceAndFollowed), lambda: keras.optimizers.Adam(0.05)),
    "numbers of two types": (two_types, lambda: keras.optimizers.Adam(0.01)),
    "no update": (lambda: dense(NoUpdate), lambda: keras.optimizers.SGD(0.1)),
    "of Keras's": (dense, clipped),
    # By SGD: Keras's Adam squares rows of one index before it adds them up, where they come as rows.
    "rows of a table": (embedded, lambda: keras.optimizers.SGD(0.1, momentum=0.9)),
    "rows of a large table": (lambda: embedded(200, TableByItsOwn), lambda: keras.optimizers.Adam(0.01)),
}


def trained(case: str, step: str | None, batch: int = 8, *, short: bool = False, **options: Any) -> dict[str, Any]:
    """By plain Keras where no step is named. batch: of a rank. short: the last one of the last rank is."""
    make, optimizer = CASES[case]
    keras.utils.set_random_seed(2)
    model = make()
    model.compile(optimizer(), loss=CROSS_ENTROPY, jit_compile=False)
    if step:
        ring.distribute(model, step=step, **options)
    inputs = words if case.startswith("rows") else x
    data: dict[str, Any] = {"x": inputs, "y": y, "batch_size": batch, "shuffle": False}
    if short:
        data = {"x": tf.data.Dataset.from_tensor_slices((inputs[:46], y[:46])).batch(batch)}
    history = model.fit(**data, epochs=2, verbose=0).history
    weights = [w.tolist() for w in model.get_weights()]
    own = history["own" if "own" in history else "loss"]
    return {"loss": own, "weights": weights, "iterations": int(model.optimizer.iterations.numpy())}


def both(case: str, *, short: bool = False) -> dict[str, Any]:
    """Plain Keras is the same wherever it trains: one process does."""
    plain = {"plain": trained(case, None, short=short)} if ring.size() == 1 else {}
    return plain | {"ring": trained(case, "compiled", 8 // ring.size(), short=short)}


# Ranks that each assign what they find for themselves are not the same afterwards, to the last bit.
cases = [case for case in CASES if ring.size() == 1 or case != "assigned between"]
found: dict[str, Any] = {case: both(case) for case in cases}
for compression in ("fp16", "fp32") if ring.size() > 1 else ():
    found[f"two optimizers, {compression}"] = {
        "ring": trained("two optimizers", "compiled", 8 // ring.size(), compression=compression)
    }
texts = [path.read_text() for path in programs.glob("*before_optimizations.txt")]
sent = [line for text in texts for line in text.splitlines() if '"ring_sum"' in line]
found["tables sent"] = sum(f"f32[200,{WIDTH}]" in line for line in sent)
found["halves sent"] = sum("f16[" in line for line in sent)
found["rows sent"] = sum(f"f32[{8 * 5},{WIDTH + 2}]" in line for line in sent)  # of all ranks, with their numbers
found["programs"] = len(texts)

# How many of the joined batch count, a rank has to ask the others for before it has gradients.
CROSS_ENTROPY = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
found["of Keras's, some ignored"] = both("of Keras's")
CROSS_ENTROPY = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
found["of Keras's, a short last batch"] = both("of Keras's", short=True)
found["in halves"] = len(list(programs.glob("*forward_backward*before_optimizations.txt")))
choose.has_gpu = lambda: True
model = dense(TwoOptimizers)
model.compile(keras.optimizers.SGD(0.1))
found["auto"] = kept(ring.distribute(model)).step
# The last batch is short, which only one rank has, and trains without XLA.
x, y = x[:46], y[:46]
choose.Chooser._wanted = lambda self, leaves: leaves[0].shape[0] == 8 // ring.size()
for case in ("two optimizers", "of Keras's") if ring.size() > 1 else ():
    found[f"{case}, without XLA in one step"] = {"ring": trained(case, "auto", 8 // ring.size())}
(out / f"rank{ring.rank()}.json").write_text(json.dumps(found))
