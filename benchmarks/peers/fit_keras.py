"""One of benchmarks/fit.py's models in Keras's `model.fit`; prints one line of JSON.

    horovodrun -np 2 python -m benchmarks.peers.fit_keras --way ring --model decoder
    KERAS_BACKEND=jax python -m benchmarks.peers.fit_keras --way jax --gpus 2 --model decoder

ring: README's two lines, no option. mirrored: tf.distribute.MirroredStrategy. jax: Keras on JAX, DataParallel. plain:
`model.fit` alone, on one GPU or none. The batches lie in host memory and come in turn: by tf.data, or with jax by a
PyDataset, which spares it TensorFlow's import and a copy of each batch.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import nullcontext
from typing import Any

import numpy as np
import psutil

from harness.training import facts, peers
from profiles.ground.errors import RingscopeError

POOL = 4  # batches of each rank
BORN_S = psutil.Process().create_time()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--way", choices=("ring", "plain", "mirrored", "jax"), required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--gpus", type=int, default=1, help="of one process; with ring each rank has one")
    parser.add_argument("--samples", type=int, help="of one GPU's batch; default: the family's")
    parser.add_argument("--steps", type=int, default=60, help="of an epoch")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--precision", default="mixed_bfloat16")
    parser.add_argument("--step", default="auto", help="of ring.distribute; other than auto: no longer README's lines")
    parser.add_argument("--compression", default="none", help="likewise")
    parser.add_argument("--overlap", choices=("auto", "on", "off"), default="auto", help="likewise")
    parser.add_argument("--record", type=int, default=0, help="steps of the second epoch inside the CUDA capture range")
    options = parser.parse_args()
    if options.way == "jax":
        peers.use("jax")
    try:
        run(options)
    except RingscopeError as error:
        sys.exit(f"fit_keras: {error}")


def run(options: argparse.Namespace) -> None:
    reached_s: dict[str, float] = {}

    def reached(what: str) -> None:
        reached_s[f"{what}_s"] = round(time.time() - BORN_S, 1)

    if options.way != "jax":
        import tensorflow as tf  # noqa: F401

        reached("tensorflow")
    if options.way == "ring":
        from ringscope import ring

        ring.init()  # <- the first line
        reached("init")
    import keras

    from benchmarks.fit import MODELS

    reached("imported")
    facts.check_seen("jax" if options.way == "jax" else "tensorflow", _gpus(options.way))
    family = MODELS[options.model]
    ranks = ring.size() if options.way == "ring" else 1
    gpus = ranks if options.way == "ring" else options.gpus
    samples = (options.samples or family.samples) * gpus // ranks
    keras.mixed_precision.set_dtype_policy(options.precision)
    keras.utils.set_random_seed(0)
    with _scope(keras, options):
        model = family.model()
        rate = keras.optimizers.SGD(0.01, momentum=0.9) if family.optimizer == "sgd" else keras.optimizers.AdamW(1e-4)
        model.compile(rate, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    if options.way == "ring":
        overlap = {"auto": None, "on": True, "off": False}[options.overlap]
        # The second line:
        ring.distribute(model, step=options.step, compression=options.compression, overlap=overlap)
    reached("built")
    data = _data(keras, family, samples, POOL * ranks, options)
    reached("fed")
    times = Times(keras, options.record)
    model.fit(data, epochs=options.epochs, steps_per_epoch=options.steps * ranks, verbose=0, callbacks=[times.callback])
    if options.way != "ring" or ring.rank() == 0:
        seconds = times.epochs_s[1:] or times.epochs_s
        rates = [options.steps * samples * ranks / s for s in seconds]
        asked = {"way": options.way, "model": options.model, "gpus": gpus, "samples_per_gpu": samples * ranks // gpus}
        measured = {
            "samples_per_s": round(max(rates), 1),
            "epochs_samples_per_s": [round(rate, 1) for rate in rates],
            **reached_s,
            "first_step_s": round(times.first_step_s - BORN_S, 1),
            "peak_gib": peak_gib(options.way),
            "loss": times.losses,
        }
        print(json.dumps(asked | measured), flush=True)


def _gpus(way: str) -> Any:
    """The GPUs that the way's framework has found."""
    if way == "jax":
        import jax

        return [each for each in jax.devices() if each.platform == "gpu"]
    import tensorflow as tf

    return tf.config.list_physical_devices("GPU")


def _scope(keras: Any, options: argparse.Namespace) -> Any:
    """What a model is built in, so that it trains on all of the process's GPUs."""
    if options.way == "mirrored":
        import tensorflow as tf

        return tf.distribute.MirroredStrategy([f"/GPU:{i}" for i in range(options.gpus)]).scope()
    if options.way == "jax" and options.gpus > 1:
        keras.distribution.set_distribution(keras.distribution.DataParallel())
    return nullcontext()


def _data(keras: Any, family: Any, samples: int, batches: int, options: argparse.Namespace) -> Any:
    """The same batches in turn, as a data set that `fit` takes."""
    random = np.random.default_rng(0)
    pool = [family.batch(random, samples) for _ in range(batches)]
    if options.way != "jax":
        import tensorflow as tf

        stacked = tf.nest.map_structure(lambda *parts: np.stack(parts), *pool)
        return tf.data.Dataset.from_tensor_slices(stacked).repeat().prefetch(tf.data.AUTOTUNE)

    class Pool(keras.utils.PyDataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return options.steps * options.epochs

        def __getitem__(self, index: int) -> Any:
            return pool[index % len(pool)]

    return Pool()


class Times:
    """When epochs begin and end, and when the first step has been taken. It asks for that one's loss alone."""

    def __init__(self, keras: Any, record: int) -> None:
        self.epochs_s: list[float] = []
        self.losses: list[float] = []
        self.first_step_s = 0.0
        times = self

        class Watch(keras.callbacks.Callback):  # type: ignore[misc]
            async_safe = True

            def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
                self.began_s = time.time()
                if record and epoch == 1:
                    times.capture(begins=True)

            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                if not times.first_step_s and float(logs["loss"]) is not None:
                    times.first_step_s = time.time()
                if record and batch == record and len(times.epochs_s) == 1:
                    times.capture(begins=False)

            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                times.epochs_s.append(time.time() - self.began_s)
                times.losses.append(round(float(logs["loss"]), 4))

        self.callback = Watch()

    def capture(self, *, begins: bool) -> None:
        """Open the capture range of a profiler that waits for it, or end it."""
        from harness.machine import capture_range

        if begins:
            self.range = capture_range.opened()
            self.range.__enter__()
        else:
            self.range.__exit__(None, None, None)


def peak_gib(way: str) -> float | None:
    """The most GPU memory that the framework's allocator has handed out."""
    if way == "jax":
        import jax

        statistics = jax.devices()[0].memory_stats() or {}
        return round(statistics["peak_bytes_in_use"] / 2**30, 2) if statistics else None
    import tensorflow as tf

    if not tf.config.get_visible_devices("GPU"):
        return None
    return round(tf.config.experimental.get_memory_info("GPU:0")["peak"] / 2**30, 2)


if __name__ == "__main__":
    main()
