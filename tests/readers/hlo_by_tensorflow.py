"""`python hlo_by_tensorflow.py OUT.json`: programs that TensorFlow gives to XLA, and what it counts of them itself."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf


def main() -> None:
    found = {}
    for name, (function, inputs) in cases().items():
        compiled = tf.function(function, jit_compile=True).experimental_get_compiler_ir(inputs)
        found[name] = {
            "hlo": base64.b64encode(compiled(stage="hlo_serialized")).decode(),
            "flops": counted(tf.function(function).get_concrete_function(inputs).graph),
        }
    Path(sys.argv[1]).write_text(json.dumps(found))


def cases() -> dict[str, tuple[Callable[[Any], Any], Any]]:
    mobile = keras.applications.MobileNetV2((96, 96, 3), alpha=0.35, weights=None)
    dense = keras.Sequential([keras.layers.Dense(48, "relu"), keras.layers.Dense(10)])
    dense.build((None, 32))

    def learn(batch: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(dense(batch) ** 2)
        return tape.gradient(loss, dense.trainable_variables)

    return {
        "convolutions": (lambda batch: mobile(batch, training=False), tf.zeros((2, 96, 96, 3))),
        "training": (learn, tf.zeros((7, 32))),
    }


def counted(graph: Any) -> int:
    """The operations of products alone."""
    profiler = tf.compat.v1.profiler
    options = profiler.ProfileOptionBuilder(profiler.ProfileOptionBuilder.float_operation())
    with graph.as_default():
        told = profiler.profile(graph, cmd="op", options=options.with_empty_output().build())
    flops, nodes = 0, list(told.children)
    while nodes:
        node = nodes.pop()
        nodes += node.children
        if "Conv" in node.name or "MatMul" in node.name:
            flops += node.total_float_ops - sum(child.total_float_ops for child in node.children)
    return flops


if __name__ == "__main__":
    main()
