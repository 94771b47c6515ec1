"""Gradients that leave while their program runs, beside those that leave after it. usage: overlap.py OUT [few]"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import layers

from ringscope import ring
from ringscope.ring.gradients import packing
from ringscope.ring.gradients.overlap import buckets, xla_calls
from ringscope.ring.internals.frameworks import tf
from ringscope.ring.internals.stablehlo import call_module, tensor_type
from ringscope.ring.step import choose

ring.init(seed=3)
out, rank = Path(sys.argv[1]), ring.rank()
found: dict[str, Any] = {"registered": xla_calls.is_registered()}
buckets.BUCKET_BYTES = packing.LARGE_BYTES = 4000
by_itself, has_compiled = choose.Chooser._wanted, choose.Chooser.has_compiled
inside = buckets.Overlap.inside


def dense() -> Any:
    hidden = [layers.Dense(60, activation="relu") for _ in range(4)]
    return keras.Sequential([keras.Input((40,)), *hidden, layers.Dense(5, dtype="float32")])


def branched() -> Any:
    """With an embedding, a layer that is called twice, one that is frozen, and a path around the others."""
    numbers, words = keras.Input((40,)), keras.Input((6,), dtype="int32")
    twice, frozen = layers.Dense(60, activation="relu"), layers.Dense(60)
    frozen.trainable = False
    x = twice(layers.Dense(60)(layers.Concatenate()([numbers, layers.Flatten()(layers.Embedding(50, 8)(words))])))
    x = layers.Add()([x, frozen(layers.Dense(60, kernel_regularizer="l2")(twice(x)))])
    return keras.Model([numbers, words], layers.Dense(5, dtype="float32")(x))


def recurrent() -> Any:
    x = layers.Reshape((8, 5))(inputs := keras.Input((40,)))
    return keras.Model(inputs, layers.Dense(5)(layers.LSTM(24)(layers.LSTM(24, return_sequences=True)(x))))


@tf.custom_gradient
def doubled(x: Any) -> Any:
    """By calls of XLA's there and back, as attention is computed on GPUs. TensorFlow takes such for stateful."""
    return _added(x), lambda upstream: _added(upstream)


def _added(x: Any) -> Any:
    if not x.shape.is_fully_defined():
        return x + x
    kind = tensor_type(x.shape, x.dtype)
    add = f"func.func public @main(%x: {kind}) -> {kind} {{ %y = stablehlo.add %x, %x : {kind} return %y : {kind} }}"
    return call_module(f"module {{ {add} }}", [x], [(tuple(x.shape), x.dtype)])[0]


def with_calls() -> Any:
    x = inputs = keras.Input((40,))
    for _ in range(3):
        x = layers.Lambda(doubled)(layers.Dense(60, activation="tanh")(x))
    return keras.Model(inputs, layers.Dense(5, dtype="float32")(x))


def leads(gradients: Sequence[Any]) -> bool:
    """Whether the first layer's gradient is computed from what the last layers' exchange hands on."""
    seen, waiting = set(), [next(g for g in gradients if g is not None and g.shape.rank == 2).op]
    while waiting:
        operation = waiting.pop()
        if operation.type == "XlaCallModule" and b"bucket_0" in operation.get_attr("module"):
            return True
        if operation.name not in seen:
            seen.add(operation.name)
            waiting += [tensor.op for tensor in operation.inputs]
    return False


def trained(name: str, model: Any, *, compiled: bool = True, **options: Any) -> None:
    taken: list[bool] = []

    def looked_at(self: Any, gradients: Any, traced: Any) -> Any:
        exchanged = inside(self, gradients, traced)
        taken.append(leads(gradients))
        return exchanged

    buckets.Overlap.inside = looked_at
    if not compiled:  # as after a ninth shape
        choose.Chooser._wanted, choose.Chooser.has_compiled = lambda *_: False, True
    random = np.random.default_rng(0)
    x: Any = random.normal(size=(96, 40)).astype("float32")
    if len(model.inputs) > 1:
        x = [x, random.integers(0, 50, (96, 6))]
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "sparse_categorical_crossentropy", metrics=["accuracy"])
    ring.distribute(model, step="compiled", **options)
    history = model.fit(x, random.integers(0, 5, 96), batch_size=16, epochs=2, shuffle=False, verbose=0).history
    np.savez(out / f"{name}.{rank}.npz", *(variable.numpy() for variable in model.trainable_variables))
    found[name] = {"inside": taken, "loss": history["loss"]}
    choose.Chooser._wanted, choose.Chooser.has_compiled = by_itself, has_compiled


def both(name: str, make: Any, after: Any, **options: Any) -> None:
    for when, beside in (("after", after), ("beside", True)):
        keras.utils.set_random_seed(1)
        trained(f"{name}, {when}", make(), overlap=beside, **options)


def more() -> None:
    for make in (branched, recurrent, with_calls):
        both(make.__name__, make, None)
    both("sum in fp16", dense, False, op="sum", compression="fp16")
    keras.utils.set_random_seed(1)
    trained("without XLA on rank 1", dense(), overlap=True, compiled=rank == 0)
    keras.utils.set_random_seed(1)
    trained("two local steps", dense(), aggregate=2)
    buckets.BUCKET_BYTES = 1 << 30
    keras.utils.set_random_seed(1)
    trained("one bucket", dense(), overlap=True)


both("dense", dense, None)  # without a GPU exchanges are not timed
if "few" not in sys.argv:
    more()
(out / f"rank{rank}.json").write_text(json.dumps(found))
