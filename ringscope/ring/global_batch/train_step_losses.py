"""A train step that takes its loss by hand: what its gradients are of, read from its graph before it is traced."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from keras.src.backend.tensorflow.trainer import TensorFlowTrainer
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager.backprop import GradientTape

from ..internals.frameworks import tf
from ..internals.laid_over import STAYS, laid_over
from ..models import optimizers_of
from ..say import once
from . import normalization
from .flow import NotApart
from .loss_kinds import TOGETHER, added_losses_kept, shapes_of
from .ratios import Apart, look

__all__ = ["is_own", "of_step", "say"]

RIGHT = ("mean", "joined", "fixed")

_known: weakref.WeakKeyDictionary[Any, dict[str, Apart | None]] = weakref.WeakKeyDictionary()


def is_own(train_step: Callable[..., Any]) -> bool:
    return getattr(train_step, "__func__", train_step) is not TensorFlowTrainer.train_step


def of_step(model: Any, train_step: Callable[..., Any], data: Any, *, uneven: bool) -> Apart | None:
    """The parts of each number that the step takes gradients of; None if they cannot be read, or if Keras takes the
    loss. Sums include all ranks, and so do means over batches of unlike sizes.

    uneven: the ranks' batches may be of unlike sizes. Found out once for each shape of the data.
    """
    known = _known.setdefault(model, {})
    shapes = f"{shapes_of(data)} {uneven}"
    if shapes not in known:
        joins = ("sum", "mean") if uneven else ("sum",)
        with normalization.alone(model), added_losses_kept(model._flatten_layers()):
            known[shapes] = look(lambda data: _learnt_of(model, train_step, data), [data], [False], joins=joins)
    return known[shapes]


@contextmanager
def _tapes_record() -> Iterator[None]:
    """While it lasts they do, though this is within `tf.init_scope`: a step may take a gradient of a gradient."""
    pywrap_tfe.TFE_Py_TapeSetRestartOnThread()
    try:
        yield
    finally:
        pywrap_tfe.TFE_Py_TapeSetStopOnThread()


def say(model: Any, apart: Apart | None) -> None:
    """Say what becomes of a loss that no method of Keras has taken, where that is not the joined batch's."""
    if apart is None or not all(kind in RIGHT for kind in apart.kinds):
        once(
            f"{type(model).__name__}.train_step computes its loss by itself: a mean over samples is right if batches"
            " have one size; a sum gives gradients that are N times too small on N ranks. A loss that compares samples,"
            f" or divides by the number that a mask keeps, sees the samples of its own rank only; {TOGETHER}"
        )


def _learnt_of(model: Any, train_step: Callable[..., Any], data: Any) -> list[Any]:
    """What the step takes gradients of, for its variables. Raises NotApart where Keras takes the loss."""
    found: list[Any] = []
    gradient = GradientTape.gradient

    def kept(tape: Any, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        if not all(tf.is_tensor(source) and not hasattr(source, "assign") for source in tf.nest.flatten(sources)):
            found.extend(tf.nest.flatten(target))
        return gradient(tape, target, sources, *args, **kwargs)

    def by_keras(*_: Any, **__: Any) -> Any:
        raise NotApart("Keras takes the loss")

    with ExitStack() as stack:
        for optimizer in optimizers_of(model):
            stack.enter_context(laid_over(optimizer, apply=lambda *_, **__: None))
        stack.enter_context(laid_over(GradientTape, gradient=kept))
        stack.enter_context(_tapes_record())
        stack.enter_context(laid_over(model, STAYS, compute_loss=by_keras))
        train_step(data)
    if not found:
        raise NotApart("it takes no gradients")
    return found
