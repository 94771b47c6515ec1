"""Observe the steps of a training inside its process.

Keras's list of callbacks reports every batch of `fit`, on any backend, and `train_on_batch` is observed too. In loops
of the script's own, PyTorch's optimizers call a hook after each step, and so do Keras's on PyTorch; one step of
DeepSpeed's engines may be several of theirs. Each step gets a mark (`step N`), unless ring writes the marks of this
script.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from profiles.ground.hooked import after, before
from profiles.model import marks
from ringscope.places import ranges

from .recorder import Recorder

KERAS = ("keras", "tf_keras")
TORCH, OPTIMIZERS, DEEPSPEED = "torch", "torch.optim.optimizer", "deepspeed"


class Steps:
    """Tells a recorder of each step, and marks it by `step N` on the thread that launches it. within: True if the
    profiler is a framework's own, which does not see ring's marks. stepped: called on the thread of each step."""

    def __init__(
        self, recorder: Recorder, *, within: bool = False, stepped: Callable[[], object] = lambda: None
    ) -> None:
        self.recorder, self._within, self._stepped = recorder, within, stepped
        self._begun: list[Any] = []
        self._next = 0  # number of the next step

    def begin(self, count: int = 1) -> None:
        """Note that a step begins, or `count` steps that run as one. The previous step's mark ends first, because the
        recording may close now."""
        self._stepped()
        self._end()
        self.recorder.step()
        if self._within or "ringscope.ring" not in sys.modules:
            self._begun.append(ranges.writer().begin(marks.step(self._next)))
        self._next += count

    def pause(self) -> None:
        """Note that the next work is no step."""
        self._end()
        self.recorder.pause()

    def expect(self) -> None:
        """Note that a loop of steps begins."""
        self.recorder.expects_steps = True

    def _end(self) -> None:
        if self._begun:
            ranges.writer().end(self._begun.pop())


def of_execution(callbacks: Any) -> int:
    """The number of steps that the model of this list of callbacks takes between two calls: steps_per_execution."""
    return int(getattr(getattr(callbacks, "model", None), "steps_per_execution", 1))


def watch(keras: ModuleType, steps: Steps) -> None:
    """Hook into this Keras, to report every step that it takes."""
    listed = keras.callbacks.CallbackList
    before(listed, "on_train_begin", lambda *_, **__: steps.expect())
    before(listed, "on_train_batch_begin", lambda callbacks, *_, **__: steps.begin(of_execution(callbacks)))
    for name in ("on_test_begin", "on_epoch_end", "on_train_end"):
        before(listed, name, lambda *_, **__: steps.pause())

    def taken(*_: Any, **__: Any) -> None:
        steps.expect()
        steps.begin()

    before(keras.Model, "train_on_batch", taken)
    if keras.backend.backend() == TORCH:  # other backends call the optimizer only while they compile the step
        updated = _of_loop(steps)
        after(keras.optimizers.Optimizer, "apply", lambda _, optimizer, *__, **___: updated(optimizer))


def watch_optimizers(optimizers: ModuleType, steps: Steps) -> None:
    """Report the steps of a PyTorch loop. Once the script has made an optimizer, its steps are waited for."""
    optimizers.register_optimizer_step_post_hook(_of_loop(steps))

    def made(*_: Any, **__: Any) -> None:
        steps.recorder.awaits_steps = True

    before(optimizers.Optimizer, "__init__", made)


def _of_loop(steps: Steps) -> Callable[..., None]:
    """Returns a function that is to be called after each update by an optimizer: a step of a loop begins when the
    previous one has updated the weights. Only the first of several optimizers counts, as in a GAN. Steps of Keras's
    `fit` do not count twice."""
    first: list[int] = []

    def updated(optimizer: Any, *_: Any) -> None:
        if not first:
            if steps.recorder.expects_steps:
                return
            first.append(id(optimizer))
            steps.expect()
        if first[0] == id(optimizer):
            steps.begin()

    return updated


def watch_deepspeed(deepspeed: Any, steps: Steps) -> None:
    """Report the steps of DeepSpeed's first engine: those that update the weights. `deepspeed.initialize` tells that
    they follow, since it may compile for minutes."""
    first: list[int] = []

    def counted(own: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(own)
        def call(engine: Any, *arguments: Any, **options: Any) -> Any:
            taken = engine.global_steps
            found = own(engine, *arguments, **options)
            if engine.global_steps > taken and (first or [id(engine)])[0] == id(engine):
                first[:] = [id(engine)]
                steps.begin()
            return found

        return call

    before(deepspeed, "initialize", lambda *_, **__: steps.expect())
    deepspeed.DeepSpeedEngine.step = counted(deepspeed.DeepSpeedEngine.step)
    deepspeed.PipelineEngine.train_batch = counted(deepspeed.PipelineEngine.train_batch)
