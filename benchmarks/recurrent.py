"""GRU and LSTM as ring's loops beside Keras's own, compiled by XLA: milliseconds of a pass there and back.

    python -m benchmarks.recurrent --cell LSTM --units 512 --batch 1024 --length 128
    python -m benchmarks.recurrent --cell GRU --units 16 --batch 8 --length 16 --dtype float32   # without a GPU

Two layers and the gradient of a sum, by turns in one process, the median of --repeats times --steps passes; one line of
JSON for each way. Keras's own is its loop: the kernels of cuDNN do not compile.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

WAYS = ("ring", "keras")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cell", choices=("GRU", "LSTM"), default="LSTM")
    parser.add_argument("--ways", default=",".join(WAYS), help="default: %(default)s")
    parser.add_argument("--units", type=int, default=512)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--length", type=int, default=128, help="steps of a sequence, each of 64 numbers")
    parser.add_argument("--dtype", default="mixed_bfloat16", help="Keras's policy, default: %(default)s")
    parser.add_argument("--steps", type=int, default=40, help="passes of one timing")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args(argv)
    passes = {way: pass_of(way, options) for way in options.ways.split(",")}
    ms: dict[str, list[float]] = {way: [] for way in passes}
    for _ in range(options.repeats):
        for way, once in passes.items():
            ms[way].append(timed_ms(once, options.steps))
    facts = {"cell": options.cell, "units": options.units, "batch": options.batch, "length": options.length}
    for way, values in ms.items():
        middle = statistics.median(values)
        of_all = {"ms": round(middle, 3), "ms_of_all": [round(each, 3) for each in values]}
        print(json.dumps(facts | {"way": way, **of_all, "samples_per_s": round(1e3 * options.batch / middle, 1)}))


def pass_of(way: str, options: argparse.Namespace) -> Callable[[], Any]:
    """A compiled pass there and back that has run once; it returns a number that comes last."""
    import keras
    import tensorflow as tf

    from ringscope.ring.forms import layers as forms

    keras.utils.set_random_seed(0)
    keras.mixed_precision.set_dtype_policy(options.dtype)
    layer: Any = getattr(keras.layers, options.cell)
    inputs = keras.Input((options.length, 64))
    model = keras.Model(inputs, layer(options.units)(layer(options.units, return_sequences=True)(inputs)))
    if way == "keras":
        for each in model.layers[1:]:
            each.use_cudnn = False
    x = tf.random.normal((options.batch, options.length, 64))

    @tf.function(jit_compile=True)  # type: ignore[untyped-decorator]
    def run() -> Any:
        with tf.GradientTape() as tape, forms.forms(model) if way == "ring" else nullcontext():
            total = tf.reduce_sum(tf.cast(model(x, training=True), tf.float32))
        return sum(tf.reduce_sum(tf.cast(each, tf.float32)) for each in tape.gradient(total, model.trainable_variables))

    float(run())
    return run  # type: ignore[no-any-return]


def timed_ms(once: Callable[[], Any], steps: int) -> float:
    """Of one pass, to the end of the last one on the device."""
    began_s, last = time.perf_counter(), None
    for _ in range(steps):
        last = once()
    float(last)  # type: ignore[arg-type]
    return (time.perf_counter() - began_s) / steps * 1e3


if __name__ == "__main__":
    main()
