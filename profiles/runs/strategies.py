"""The table of strategies, the ways to spread a training over GPUs.

It gives the values of the setting `strategy`, the number of processes, the settings that a cell may combine with each,
and words for findings and advice. The code of each is in harness/training/strategies/.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

EVERY_FEED: Final = ("numpy", "host", "prefetch", "device", "staging", "pinned", "resident")
# Feeds for strategies with their own step: all but `pinned`, whose batches only ring's loop can unpack.
OWN_STEP: Final = tuple(feed for feed in EVERY_FEED if feed != "pinned")
TENSORFLOW: Final = "tensorflow"
DATASETS: Final = ("host", "prefetch", "device")  # feeds for tf.distribute, which takes batches from a tf.data data set


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to train on several GPUs."""

    name: str
    does: str  # description in one line
    exchange: str | None  # what carries gradients or activations between GPUs; None: nothing does
    synchronous: bool = True  # gives the weights of one GPU on the joined batch
    one_process: bool = False  # True: one process for all GPUs of the cell; False: one process per GPU
    splits: bool = False  # True: a process holds `stages` GPUs, each with some of the layers
    steps: tuple[str, ...] = ("fit",)
    feeds: tuple[str, ...] = OWN_STEP
    heeds: tuple[str, ...] = ()  # the settings among OWN_SETTINGS that have an effect
    backend: str = TENSORFLOW  # Keras's backend; on JAX and PyTorch Keras's own `fit` runs the steps and the feed

    @property
    def note(self) -> str:
        """Words on differences that limit a comparison with rows of TensorFlow; empty for TensorFlow."""
        return "" if self.backend == TENSORFLOW else "Keras's own fit, fed with NumPy arrays; weights of its own draw"


# Settings that only some strategies heed.
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
# Settings of Horovod's background thread, for any exchange by Horovod.
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
    """The strategy of that name; a name that this version does not know counts as one process per GPU."""
    return STRATEGIES.get(name) or Strategy(name, "unknown to this version", None, synchronous=False)
