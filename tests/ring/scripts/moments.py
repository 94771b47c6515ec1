"""Batch normalisation over two ranks, and Keras's of the joined batch, against the definition in float64. usage:
moments.py OUT

Each rank writes, by case, the largest differences of both in `KINDS`."""

import json
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ringscope import ring
from ringscope.ring.exchange import sum_over_ranks
from ringscope.ring.global_batch import normalization

ring.init(seed=7)
rank = ring.rank()
MOMENTUM, EPSILON = 0.5, 1e-6
KINDS = ("outputs", "inputs' gradient", "gamma's gradient", "moving mean", "moving variance")
USUAL = {"mean": (0.0, 0.0), "policy": "float32", "axis": 2, "masked": None, "rows": (6, 6)}
FAR = {"mean": (1e4, 1e4)}
CASES: dict[str, dict[str, Any]] = {
    "mean 0": {},
    "mean 10 000": FAR,
    "mean -100 000": {"mean": (-1e5, -1e5)},
    "two means": {"mean": (1e4, -30.0)},
    "the second axis": FAR | {"axis": 1},
    "mixed bfloat16": {"mean": (100.0, 100.0), "policy": "mixed_bfloat16"},
    "float64": FAR | {"policy": "float64"},
    "masked": FAR | {"masked": (0.4, 0.4)},
    "all of a rank masked": FAR | {"masked": (1.0, 0.3)},
    "rows of unlike numbers": FAR | {"rows": (1, 6)},
    "no row on one rank": FAR | {"rows": (0, 6)},
}


def batches(case: dict[str, Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """Each rank's inputs, its mask, and what its outputs are weighed by."""
    random = np.random.default_rng(3)
    compute = keras.DTypePolicy(case["policy"]).compute_dtype
    x, masks, weights = [], [], []
    for mean, rows, masked in zip(case["mean"], case["rows"], case["masked"] or (0.0, 0.0), strict=True):
        shape = rows, 5, 7
        x.append(tf.cast(random.normal(mean, 1.0, shape), compute))
        masks.append(random.random(shape[:-1]) >= masked)
        weights.append(random.normal(size=shape))
    return x, masks, weights


def defined(x: Any, mask: Any, weights: Any, axis: int, gamma: Any) -> list[Any]:
    """`KINDS` in float64."""
    axes = [each for each in range(3) if each != axis]
    counts = tf.cast(mask, tf.float64)[..., tf.newaxis] + 0 * x
    with tf.GradientTape() as tape:
        tape.watch([x, gamma])
        count = tf.reduce_sum(counts, axes, keepdims=True)
        mean = tf.reduce_sum(counts * x, axes, keepdims=True) / count
        variance = tf.reduce_sum(counts * (x - mean) ** 2, axes, keepdims=True) / count
        made = (
            (x - mean)
            / tf.sqrt(variance + EPSILON)
            * tf.reshape(gamma, [-1 if each == axis else 1 for each in range(3)])
        )
        total = tf.reduce_sum(made * weights)
    moved = [tf.reshape(each, [-1]) * (1 - MOMENTUM) for each in (mean, variance)]
    return [made, *tape.gradient(total, [x, gamma]), moved[0], moved[1] + MOMENTUM]


def normalised(layer: Any, x: Any, mask: Any, weights: Any, is_masked: bool) -> list[Any]:
    """`KINDS` as the layer gives them."""

    @tf.function(autograph=False, reduce_retracing=True)  # type: ignore[untyped-decorator]
    def run(x: Any, mask: Any, weights: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            made = layer(x, training=True, mask=mask if is_masked else None)
            total = tf.reduce_sum(tf.cast(made, tf.float64) * weights)
        return [made, *tape.gradient(total, [x, layer.gamma])]

    return [*run(x, tf.constant(mask), tf.constant(weights)), layer.moving_mean, layer.moving_variance]


def differences(case: dict[str, Any]) -> dict[str, list[float]]:
    x, masks, weights = batches(case)
    joined = [np.concatenate(each) for each in (x, masks, weights)]
    size = joined[0].shape[case["axis"]]
    gamma = np.random.default_rng(4).uniform(0.5, 2, size).astype("float32").astype("float64")
    wide = (tf.constant(each) for each in (joined[0].astype("float64"), *joined[1:]))
    exact = defined(*wide, case["axis"], tf.constant(gamma))
    found = {}
    for kind, synchronized in (("keras", False), ("ring", True)):
        layer = keras.layers.BatchNormalization(
            case["axis"], MOMENTUM, EPSILON, synchronized=synchronized, dtype=case["policy"]
        )
        model = keras.Sequential([keras.Input((5, 7)), layer])
        layer.gamma.assign(gamma)
        normalization.synchronise(model)
        given = [each[rank] for each in (x, masks, weights)] if synchronized else joined
        made = normalised(layer, *given, case["masked"] is not None)
        wanted = list(exact)
        if synchronized:
            made[2] = sum_over_ranks(made[2], "gamma")
            before = sum(case["rows"][:rank])
            wanted[:2] = (each[before : before + case["rows"][rank]] for each in exact[:2])
        pairs = (
            (np.asarray(tf.cast(mine, tf.float64)), np.asarray(each)) for mine, each in zip(made, wanted, strict=True)
        )
        found[kind] = [float(np.max(np.abs(mine - each), initial=0)) for mine, each in pairs]
    return found


out = {name: differences(USUAL | case) for name, case in CASES.items()}
(Path(sys.argv[1]) / f"rank{rank}.json").write_text(json.dumps(out))
