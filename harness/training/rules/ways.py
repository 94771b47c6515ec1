"""Rules of thumb, each as two ways to train: a function per rule (profiles.rules has the rules' advice).

rule(on: Subject) -> Ways

Each way is a function that trains a number of steps to their end and returns the number of samples. worker.py runs both
ways by turns and times them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ringscope.ring.internals import xla_cache, xla_options

Way = Callable[[int], int]
"""Number of steps -> number of samples, once the device has finished them."""

_MODULES = {
    "batch-multiple-of-8": "computing",
    "features-multiple-of-8": "computing",
    "bfloat16": "computing",
    "float16": "computing",
    "tf32": "computing",
    "steps-per-execution": "looping",
    "quiet": "looping",
    "resident-data": "feeding",
    "cache": "feeding",
    "prefetch": "feeding",
    "parallel-map": "feeding",
    "batch-before-map": "feeding",
}


@dataclass(frozen=True, slots=True)
class Subject:
    """The model (of harness.training.models) and the batch, fitting the machine, for a rule that works with any
    model."""

    model: str
    batch: int
    gpu: bool

    @property
    def device(self) -> str:
        return "/GPU:0" if self.gpu else "/CPU:0"

    @property
    def how(self) -> str:
        """Words on how a step on one batch is computed; they follow the words on what is trained."""
        return ", compiled by XLA" if self.gpu else ""


@dataclass(frozen=True, slots=True)
class Ways:
    """Two ways to train: against the advice, and following it. what: words on what is trained."""

    against: Way
    advised: Way
    what: str


def stepping(step: Callable[[int], Any], batch: int) -> Way:
    """A `Way` from a function that takes a step's number and returns the batch's loss, maybe before the device has
    computed it."""

    def take(steps: int) -> int:
        loss = None
        for number in range(steps):
            loss = step(number)
        if loss is not None:
            loss.numpy()  # reading the loss waits for the device
        return steps * batch

    return take


def ways(rule: str, on: Subject) -> Ways:
    module = importlib.import_module(f".{_MODULES[rule]}", __package__)
    made: Ways = getattr(module, rule.replace("-", "_"))(on)
    return made


def growing_gpus() -> list[Any]:
    """The GPUs that this process sees. Sets them to allocate memory as needed, and XLA's options to those of `ring`;
    call this before TensorFlow uses a GPU."""
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    xla_options.set_options(capability=xla_cache.capability(), tensorflow=tf.version.VERSION)
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    return list(gpus)
