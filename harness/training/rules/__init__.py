"""Rules of thumb as two ways to train: a function per rule (profiles.rules has their advice).

    rule(on: Subject) -> Ways

Each way takes a number of steps, trains them to their end, and returns how many samples they were. `worker` runs both
by turns and times them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ringscope.ring.internals import xla_options

Way = Callable[[int], int]
"""steps -> samples, when the device has done them."""

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
    """The subject of a rule that leaves that open: a model of harness.training.models with a batch that suits the
    machine."""

    model: str
    batch: int
    gpu: bool

    @property
    def device(self) -> str:
        return "/GPU:0" if self.gpu else "/CPU:0"

    @property
    def how(self) -> str:
        """Tell how steps on one batch are computed, behind what is trained."""
        return ", compiled by XLA" if self.gpu else ""


@dataclass(frozen=True, slots=True)
class Ways:
    """Against the advice and as it says. what: is trained, in words."""

    against: Way
    advised: Way
    what: str


def stepping(step: Callable[[int], Any], batch: int) -> Way:
    """Steps from a function that, given a step's number, returns a batch's loss before the device has done it."""

    def take(steps: int) -> int:
        loss = None
        for number in range(steps):
            loss = step(number)
        if loss is not None:
            loss.numpy()  # waits for the device
        return steps * batch

    return take


def ways(rule: str, on: Subject) -> Ways:
    """The two ways of a rule."""
    module = importlib.import_module(f".{_MODULES[rule]}", __name__)
    made: Ways = getattr(module, rule.replace("-", "_"))(on)
    return made


def growing_gpus() -> list[Any]:
    """The GPUs that this process sees, whose memory it takes as it needs it, and for which XLA compiles as for `ring`;
    before TensorFlow first uses them."""
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    xla_options.set_options(gpu=bool(gpus), tensorflow=tf.version.VERSION)
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    return list(gpus)
