"""The steps of a training, seen from inside of its process.

Keras's own list of callbacks tells of every batch of `fit`, with any backend; `train_on_batch` is seen too. PyTorch's
optimizers call a hook after each of their steps. The steps are marked (`step N`) unless the script's ring does that.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from profiles.model import marks
from ringscope.places import ranges

from .recorder import Recorder

KERAS = ("keras", "tf_keras")
TORCH, OPTIMIZERS = "torch", "torch.optim.optimizer"


class Marker:
    """`step N` around each step, on the thread that launches it; nothing where the script's ring writes the marks into
    the recording, which a framework's profiler does not see. within: that is what records."""

    def __init__(self, *, within: bool = False) -> None:
        self._begun: list[Any] = []
        self._within = within

    def begin(self, number: int) -> None:
        self.end()
        if self._within or "ringscope.ring" not in sys.modules:
            self._begun.append(ranges.writer().begin(marks.step(number)))

    def end(self) -> None:
        if self._begun:
            ranges.writer().end(self._begun.pop())


def watch(keras: ModuleType, recorder: Recorder, marker: Marker, stepped: Callable[[], object] = lambda: None) -> None:
    """Report every step that this Keras takes to the recorder. stepped: called on the thread of each step."""
    listed, model = keras.callbacks.CallbackList, keras.Model

    def told(name: str, tell: Callable[[], None]) -> None:
        own = getattr(listed, name)

        def call(self: Any, *arguments: Any, **options: Any) -> Any:
            tell()
            return own(self, *arguments, **options)

        setattr(listed, name, call)

    def begins() -> None:
        stepped()
        recorder.step()
        marker.begin(recorder.number)

    def pauses() -> None:
        marker.end()
        recorder.pause()

    def expects() -> None:
        recorder.expects_steps = True

    told("on_train_begin", expects)
    told("on_train_batch_begin", begins)
    for name in ("on_test_begin", "on_epoch_end", "on_train_end"):
        told(name, pauses)
    train_on_batch = model.train_on_batch

    def taken(self: Any, *arguments: Any, **options: Any) -> Any:
        expects()
        begins()
        return train_on_batch(self, *arguments, **options)

    model.train_on_batch = taken


def watch_optimizers(
    optimizers: ModuleType, recorder: Recorder, marker: Marker, stepped: Callable[[], object] = lambda: None
) -> None:
    """Report the steps of a PyTorch loop to the recorder: each begins where the one before it has updated the weights.

    Of several optimizers, as a GAN has them, the first that steps counts. A training by Keras has been told by that.
    stepped: called on the thread of each step.
    """
    first: list[int] = []

    def updated(optimizer: Any, *_: Any) -> None:
        if not first:
            if recorder.expects_steps:
                return
            first.append(id(optimizer))
            recorder.expects_steps = True
        if first[0] == id(optimizer):
            stepped()
            marker.end()
            recorder.step()
            marker.begin(recorder.number)

    optimizers.register_optimizer_step_post_hook(updated)
