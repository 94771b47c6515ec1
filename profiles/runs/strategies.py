"""The table of strategies, the ways to train on several GPUs.

For each strategy it tells which feeds and other settings a cell may combine with it, how many processes run, and
the words for findings and advice. harness/training/strategies/ has the code of the strategies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

EVERY_FEED: Final = ("numpy", "host", "prefetch", "device", "staging", "pinned", "resident")
# Feeds for strategies with their own training step: all but `pinned`, whose batches only ring's loop can unpack.
OWN_STEP: Final = tuple(feed for feed in EVERY_FEED if feed != "pinned")
TENSORFLOW: Final = "tensorflow"
DATASETS: Final = ("host", "prefetch", "device")  # feeds of tf.distribute, which takes tf.data data sets


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to train on several GPUs."""

    name: str
    does: str  # what it is, in one line
    exchange: str | None  # what carries gradients or activations between GPUs; None: nothing does
    synchronous: bool = True  # True if N GPUs train as one GPU does with the joined batch
    one_process: bool = False  # True: one process for all GPUs of the cell; False: one process per GPU
    splits: bool = False  # True if a process holds `stages` GPUs, each with some of the model's layers
    steps: tuple[str, ...] = ("fit",)
    feeds: tuple[str, ...] = OWN_STEP
    heeds: tuple[str, ...] = ()  # the settings among OWN_SETTINGS that have an effect
    backend: str = TENSORFLOW  # Keras's backend; with jax and torch, Keras's own `fit` runs the steps and the feed

    @property
    def note(self) -> str:
        """Differences that limit a comparison with a training on TensorFlow; empty for TensorFlow."""
        return "" if self.backend == TENSORFLOW else "Keras's own fit, fed with NumPy arrays; other initial weights"


# Settings that have an effect with some strategies only.
OWN_SETTINGS: Final = (
    "compression",
    "aggregate",
    "op",
    "fusion_mb",
    "cycle_us",
    "autotune",
    "micro_batches",
    "stages",
)
# Settings of Horovod's background thread, for strategies that exchange by Horovod.
OF_HOROVOD: Final = ("fusion_mb", "cycle_us", "autotune")

STRATEGIES: Final = {
    one.name: one
    for one in (
        Strategy(
            "horovod",
            "a process per GPU, gradients averaged by Horovod",
            "horovod",
            steps=("fit", "compiled"),
            feeds=EVERY_FEED,
            heeds=("compression", "aggregate", "op", *OF_HOROVOD),
        ),
        Strategy(
            "independent",
            "a process per GPU, each trains alone: the upper bound",
            None,
            synchronous=False,
            steps=("fit", "compiled"),
            feeds=EVERY_FEED,
            heeds=("compression", "aggregate"),
        ),
        Strategy(
            "mirrored",
            "tf.distribute.MirroredStrategy: one process, a copy of the model per GPU",
            "tf.distribute",
            one_process=True,
            feeds=DATASETS,
        ),
        Strategy(
            "multiworker",
            "tf.distribute.MultiWorkerMirroredStrategy: a process per GPU",
            "tf.distribute",
            feeds=DATASETS,
        ),
        Strategy(
            "sharded",
            "a process per GPU, each with a part of the optimizer's state (ZeRO-1), exchanged by Horovod",
            "horovod",
            steps=("fit", "compiled"),
            feeds=EVERY_FEED,
            heeds=("compression", *OF_HOROVOD),
        ),
        Strategy(
            "parameter_server",
            "tf.distribute.ParameterServerStrategy: weights on a server, workers that do not wait for each other",
            "parameter server",
            synchronous=False,
            one_process=True,
            feeds=("host", "prefetch"),
        ),
        Strategy(
            "replicas",
            "one set of weights, called on a part of the batch on each GPU, outputs joined",
            "copies",
            one_process=True,
        ),
        Strategy(
            "split",
            "layers on different GPUs, in one process",
            "copies",
            one_process=True,
            splits=True,
            heeds=("micro_batches",),
        ),
        Strategy(
            "hybrid",
            "split within a process, Horovod between processes",
            "horovod",
            splits=True,
            heeds=("compression", "micro_batches", "stages", *OF_HOROVOD),
        ),
        Strategy(
            "keras-jax",
            "the same model in Keras on JAX: one process, keras.distribution.DataParallel",
            "XLA",
            one_process=True,
            steps=("compiled",),
            feeds=("numpy",),
            backend="jax",
        ),
        Strategy(
            "keras-torch",
            "the same model in Keras on PyTorch: a process per GPU, DistributedDataParallel",
            "PyTorch",
            feeds=("numpy",),
            backend="torch",
        ),
    )
}


def of(name: str) -> Strategy:
    """The strategy with this name. A name that this version does not know gets one process per GPU."""
    return STRATEGIES.get(name) or Strategy(name, "a strategy that this version does not know", None, synchronous=False)
