"""What becomes of gradients that were computed in bfloat16, on one rank or several. usage: computed.py OUT"""

import json
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ringscope import ring
from ringscope.ring.gradients import average, types, wire
from ringscope.ring.gradients.overlap import xla_calls
from ringscope.ring.step import choose

ring.init()
out, rank = Path(sys.argv[1]), ring.rank()
found: dict[str, Any] = {"sums bfloat16": types.sums_bfloat16()}
random = np.random.default_rng(0)
x, y = random.normal(size=(64, 768)).astype("float32"), random.integers(0, 3, 64)
summed: list[str] = []  # the types that ranks were asked to sum, in the order of tracing
by_horovod = average.hvd.grouped_allreduce


def by_nccl(values: list[Any], **how: Any) -> Any:
    """What NCCL does on GPUs with bfloat16, and Horovod here with all else."""
    if values[0].dtype != tf.bfloat16:
        return by_horovod(values, **how)
    every = [average.hvd.allgather(tf.bitcast(v, tf.uint16)[None], name=f"bits_{i}") for i, v in enumerate(values)]
    wide = [tf.reduce_mean(tf.cast(tf.bitcast(each, tf.bfloat16), tf.float32), axis=0) for each in every]
    return [tf.cast(each, tf.bfloat16) for each in wide]


def grouped(values: list[Any], **how: Any) -> Any:
    summed.extend(value.dtype.name for value in values)
    return by_nccl(values, **how)


def sums(values: Any, *given: Any, **how: Any) -> Any:
    summed.extend(value.dtype.name for value in values if value.shape.rank)  # a number is a loss's denominator
    return by_program(values, *given, **how)


average.hvd.grouped_allreduce = grouped
by_program, xla_calls.sums = xla_calls.sums, sums


def trained(
    name: str,
    optimizer: Any,
    *,
    compiled: bool = True,
    policy: str = "mixed_bfloat16",
    steps: int = 4,
    **options: Any,
) -> None:
    keras.utils.set_random_seed(1)
    keras.config.set_dtype_policy(policy)
    inner = [keras.layers.Dense(768, activation="relu"), keras.layers.LayerNormalization(), keras.layers.Dense(8)]
    model = keras.Sequential([keras.Input((768,)), *inner, keras.layers.Dense(3, dtype="float32")])
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    choose.Chooser._wanted = lambda *arguments: compiled
    left: list[str] = []

    def leaves(gradient: Any) -> Any:
        left.append(types.as_computed(gradient).dtype.name)
        return types.as_computed(gradient)

    wire.as_computed = leaves
    summed.clear()
    ring.distribute(model, step="compiled", **options)
    model.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(8).take(steps * ring.size()), verbose=0)
    variables = [*model.trainable_variables, *model.optimizer.variables]
    np.savez(out / f"{name}.{rank}.npz", *map(np.asarray, variables))
    found[name] = {"left": left[: len(model.trainable_variables)], "summed": summed[:]}


def sgd() -> Any:
    return keras.optimizers.SGD(0.1, momentum=0.9)


def adamw() -> Any:
    return keras.optimizers.AdamW(1e-3, clipnorm=1.0)


if ring.size() == 1:
    for optimizer, compiled in ((sgd, True), (adamw, True), (sgd, False)):
        name = f"{optimizer.__name__}, {'compiled' if compiled else 'traced'}"
        trained(name, optimizer(), compiled=compiled)
        trained(f"{name}, fp32", optimizer(), compiled=compiled, compression="fp32")
else:
    trained("here", sgd(), steps=1)
    trained("here, fp32", sgd(), steps=1, compression="fp32")
    types.sums_bfloat16 = lambda: True  # type: ignore[assignment]
    trained("as on GPUs", sgd(), steps=1)
    trained("as on GPUs, traced", sgd(), steps=1, compiled=False)
    trained("as on GPUs, fp32", sgd(), steps=1, compression="fp32")
    for policy in ("float32", "mixed_float16"):
        trained(policy, sgd(), steps=1, policy=policy)
    trained("two local steps", sgd(), steps=2, aggregate=2)
    trained("as on GPUs, four steps", adamw())
    trained("as on GPUs, divided before", sgd(), steps=1, predivide_factor=2.0)
(out / f"rank{rank}.json").write_text(json.dumps(found))
