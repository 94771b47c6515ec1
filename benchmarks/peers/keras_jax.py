"""ResNet-50 in Keras 3 on JAX, data parallel: one process, all GPUs, mixed_bfloat16, uint8 images.

    KERAS_BACKEND=jax python benchmarks/peers/keras_jax.py --gpus 4 --batch 256 --steps 40 --warmup 10

Host-fed: each step's batch is put on the devices from the host's memory, one batch ahead. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import time

os.environ["KERAS_BACKEND"] = "jax"
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
import jax
import keras
import numpy as np


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=len(jax.devices()))
    parser.add_argument("--batch", type=int, default=256, help="images per GPU")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--warmup", type=int, default=10)
    options = parser.parse_args()
    devices = jax.devices()[: options.gpus]
    mesh = jax.sharding.Mesh(np.array(devices), ("batch",))
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch"))
    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    inputs = keras.Input((224, 224, 3), dtype="uint8")
    scaled = keras.layers.Rescaling(1 / 127.5, offset=-1.0)(inputs)
    backbone = keras.applications.ResNet50(weights=None, classifier_activation=None)
    model = keras.Model(inputs, keras.layers.Activation("linear", dtype="float32")(backbone(scaled)))
    optimizer = keras.optimizers.SGD(0.01, momentum=0.9)
    optimizer.build(model.trainable_variables)
    loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def loss_of(trainable, rest, x, y):  # type: ignore[no-untyped-def]
        logits, rest = model.stateless_call(trainable, rest, x, training=True)
        return loss_function(y, logits), rest

    def train_step(state, x, y):  # type: ignore[no-untyped-def]
        trainable, rest, slots = state
        (loss, rest), gradients = jax.value_and_grad(loss_of, has_aux=True)(trainable, rest, x, y)
        trainable, slots = optimizer.stateless_apply(slots, gradients, trainable)
        return (trainable, rest, slots), loss

    step = jax.jit(train_step, donate_argnums=0)
    variables = (model.trainable_variables, model.non_trainable_variables, optimizer.variables)
    state = jax.device_put(tuple([v.value for v in group] for group in variables), whole)
    rng = np.random.default_rng(0)
    count = options.batch * len(devices)
    pool = [
        (rng.integers(0, 256, (count, 224, 224, 3), np.uint8), rng.integers(0, 1000, count, np.int32)) for _ in range(4)
    ]

    def fetch(i):  # type: ignore[no-untyped-def]
        return jax.device_put(pool[i % len(pool)], split)

    def run(state, steps):  # type: ignore[no-untyped-def]
        coming = fetch(0)
        for i in range(steps):
            x, y = coming
            coming = fetch(i + 1)
            state, loss = step(state, x, y)
        return state, loss

    state, loss = run(state, options.warmup)
    jax.block_until_ready((state, loss))
    start = time.perf_counter()
    state, loss = run(state, options.steps)
    jax.block_until_ready((state, loss))
    seconds = time.perf_counter() - start
    facts = {"gpus": len(devices), "per_rank_batch": options.batch, "keras": keras.__version__}
    rate = {"images_per_s_global": round(count * options.steps / seconds, 1)}
    print(json.dumps({"peer": f"Keras on JAX {jax.__version__}", **facts, **rate}), flush=True)


if __name__ == "__main__":
    main()
