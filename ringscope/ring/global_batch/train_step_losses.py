"""Train steps that compute a loss by themselves: their graph, read before tracing, shows which numbers they take
gradients of."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from keras import StatelessScope
from keras.src.trainers.compile_utils import CompileMetrics
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager.backprop import GradientTape

from ringscope.places.laid import beneath

from ..internals.frameworks import keras, tf
from ..internals.laid_over import STAYS, laid_over
from ..models import optimizers_of
from ..say import once
from . import normalization
from .changed_gradients import Gradients
from .flow import NotApart
from .loss_kinds import UNSEEN, added_losses_kept, shapes_of
from .ratios import Apart, look

RIGHT = ("mean", "joined", "fixed")


@dataclass
class OfStep:
    """The results of reading a train step's graph.

    apart: for each number that the step takes gradients of, how it depends on the batch, without Keras's part of the
    loss; after these `learnt` numbers, how the sample weights that the step gives to Keras's part do. None if the graph
    does not show it. by_hand: True if there is such a number. changes: True if the step changes
    gradients by more than sums and factors.
    """

    apart: Apart | None = None
    learnt: int = 0
    by_hand: bool = False
    changes: bool = False


_known: weakref.WeakKeyDictionary[Any, dict[str, OfStep]] = weakref.WeakKeyDictionary()


def is_own(train_step: Callable[..., Any]) -> bool:
    """True if this train step is not Keras's. The first `fit` of a process puts a range around Keras's."""
    return beneath(getattr(train_step, "__func__", train_step)) is not beneath(keras.Model.train_step)


def of_step(model: Any, train_step: Callable[..., Any], data: Any, *, uneven: bool) -> OfStep:
    """Read the graph of the train step, once for each shape of the data. uneven: the ranks' batches may differ in
    size, so that means are taken over all ranks, too."""
    known = _known.setdefault(model, {})
    shapes = f"{shapes_of(data)} {uneven}"
    if shapes not in known:
        joins = ("sum", "mean") if uneven else ("sum",)
        found = known[shapes] = OfStep()
        with normalization.alone(model), added_losses_kept(model._flatten_layers()), StatelessScope():
            # The scope discards assignments to variables. The traced step has another scope.
            found.apart = look(lambda data: _learnt_of(model, train_step, data, found), [data], [False], joins=joins)
    return known[shapes]


@contextmanager
def _tapes_record() -> Iterator[None]:
    """Within this context gradient tapes record, although `tf.init_scope` stops them: a step may differentiate a
    gradient."""
    pywrap_tfe.TFE_Py_TapeSetRestartOnThread()
    try:
        yield
    finally:
        pywrap_tfe.TFE_Py_TapeSetStopOnThread()


def say(model: Any, found: OfStep, *, met: bool) -> None:
    """Print a line where the step's own loss, or its changes to gradients, do not give the joined batch's gradients.
    met: True if a method of Keras has computed a loss."""
    step = f"{type(model).__name__}.train_step"
    if (found.by_hand or not met) and (
        found.apart is None or not all(kind in RIGHT for kind in found.apart.kinds[: found.learnt])
    ):
        once(f"{step} computes its loss by itself. {UNSEEN}")
    if found.changes:
        once(
            f"{step} changes gradients by more than a fixed factor, as clipping does. Each rank changes its own, so "
            "the averaged gradient is not that of the joined batch; let the optimizer clip (clipnorm, global_clipnorm, "
            "clipvalue), or take step='fit' and change the gradients of all ranks: gradients = "
            "ring.average_gradients(gradients)"
        )


def _learnt_of(model: Any, train_step: Callable[..., Any], data: Any, noted: OfStep) -> list[Any]:
    """The numbers that the step takes gradients of to update its variables, with Keras's part of the loss as 0; and the
    sample weights that it gives to Keras's part."""
    found: list[Any] = []
    weights: list[Any] = []
    gradients = Gradients(tf.nest.flatten(data))
    gradient = GradientTape.gradient
    of_keras = tf.zeros(())

    def kept(tape: Any, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        if all(tf.is_tensor(source) and not hasattr(source, "assign") for source in tf.nest.flatten(sources)):
            return gradient(tape, target, sources, *args, **kwargs)
        found.extend(tf.nest.flatten(target))
        noted.by_hand = noted.by_hand or any(each is not of_keras for each in tf.nest.flatten(target))
        given = tf.nest.map_structure(zero_for_none, gradient(tape, target, sources, *args, **kwargs), sources)
        gradients.taken(tf.nest.flatten(given))
        return given

    def zero_for_none(own: Any, variable: Any) -> Any:
        return tf.zeros_like(variable) if own is None else own  # a step may expect a gradient for each variable

    def keras_part(*args: Any, **kwargs: Any) -> Any:
        given = tf.nest.flatten(kwargs.get("sample_weight", args[3] if len(args) > 3 else None))
        weights.extend(each for each in given if tf.is_tensor(each))
        return of_keras

    def applied(given: Any, *_: Any, **__: Any) -> None:
        noted.changes = noted.changes or gradients.are_changed(given)

    with ExitStack() as stack:
        for optimizer in optimizers_of(model):
            stack.enter_context(laid_over(optimizer, apply=applied))
        stack.enter_context(laid_over(GradientTape, gradient=kept))
        # Metrics of `compile` that are not built yet would put their variables into this graph.
        stack.enter_context(laid_over(CompileMetrics, update_state=lambda *_, **__: None, result=lambda _: {}))
        stack.enter_context(_tapes_record())
        stack.enter_context(laid_over(model, STAYS, compute_loss=keras_part))
        train_step(data)
    if not found:
        raise NotApart("a train_step that computes no gradients")
    noted.learnt = len(found)
    return found + weights
