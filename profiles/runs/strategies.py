"""The ways to spread a training over GPUs, one `Strategy` each, with all that other rooms need.

The table gives the values of the setting `strategy`, the number of processes, what a cell may combine with
it, and the words of findings and advice. What each does is in harness/training/strategies/.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

EVERY_FEED: Final = ("numpy", "host", "prefetch", "device", "staging", "pinned", "resident")
# A step of its own takes batches as they come; `pinned` ones are in carriers that ring's loop opens.
OWN_STEP: Final = tuple(feed for feed in EVERY_FEED if feed != "pinned")
TENSORFLOW: Final = "tensorflow"
DATASETS: Final = ("host", "prefetch", "device")  # tf.distribute feeds itself from a data set


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to train on several GPUs."""

    name: str
    does: str  # in one line
    exchange: str | None  # what carries gradients or activations between GPUs; None: nothing does
    synchronous: bool = True  # ends in the weights of one GPU on the joined batch
    one_process: bool = False  # for all GPUs of the cell; else one for each
    splits: bool = False  # a process holds `stages` GPUs, each with some of the layers
    steps: tuple[str, ...] = ("fit",)
    feeds: tuple[str, ...] = OWN_STEP
    heeds: tuple[str, ...] = ()  # of OWN_SETTINGS
    backend: str = TENSORFLOW  # of Keras; on another one Keras's own `fit` takes the steps and feeds itself

    @property
    def note(self) -> str:
        """Words on what is not comparable with rows of TensorFlow; empty where all is."""
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
# Settings of Horovod's own threads, whatever they exchange.
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
    """The strategy of that name; of one that this version does not know, a process per GPU and nothing else."""
    return STRATEGIES.get(name) or Strategy(name, "unknown to this version", None, synchronous=False)
