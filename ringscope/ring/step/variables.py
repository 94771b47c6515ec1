"""Create the variables of losses, metrics and the optimizer before a step is traced.

A function whose trace creates variables is traced a second time, which takes 6 of the 26 s of a decoder's first step on
a CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ..global_batch.totals import one
from ..internals.frameworks import hvd, tf
from ..models import kept, optimizers_of, parts_of, used_by_step


def make_variables(model: Any, batch_of: Callable[[], Any]) -> None:
    """Create the variables, once for each `model.compile`, because a trace that is broken off would lose them.

    Only once, because a model's own `compute_loss` may never build the losses. batch_of: returns a batch in the form
    for the step.
    """
    from keras import Model

    _make_scales(model)
    loss = model._compile_loss
    if loss is None or loss.built or kept(model).built_for is loss:
        return
    if len(used_by_step(model)) > 1:  # only the step knows which optimizer updates which variables
        return
    with tf.init_scope():
        if type(model).call is Model.call:  # only the model's train step knows with what to call its parts
            return
        if hvd.size() > 1:
            one()
        batch = batch_of()
        # A user's own step, or a batch whose parts differ in length, may raise an error here. Then the trace creates
        # the variables, and reports what is wrong with the model.
        with suppress(Exception):
            if _is_made_of_layers(model):
                _build_of_layers(model, batch)
            else:
                model._symbolic_build(data_batch=batch)
    kept(model).built_for = loss


def _build_of_layers(model: Any, batch: Any) -> None:
    """Keras's own `_symbolic_build`, except that a model made of layers knows its outputs, so their shapes are not
    computed again, which takes a second for a ResNet-50."""
    from keras import KerasTensor, Sequential, tree
    from keras.src.backend import compute_output_spec
    from keras.utils import unpack_x_y_sample_weight

    compiled = model._compile_metrics
    symbols = tree.map_structure(lambda t: None if t is None else KerasTensor(t.shape, t.dtype.name), batch)
    x, y, weights = unpack_x_y_sample_weight(symbols)
    size = tree.flatten(x)[0].shape[0]
    # A call of the model returns its only output without a list around it; a Sequential has `outputs` alone.
    alone = isinstance(model, Sequential) or (isinstance(model.output, (list, tuple)) and len(model.output) == 1)
    whole = model.outputs[0] if alone else model.output
    outputs = tree.map_structure(lambda out: KerasTensor((size, *out.shape[1:]), out.dtype), whole)
    if compiled is not None and not compiled.built:
        compute_output_spec(model.compute_metrics, x, y, outputs, sample_weight=weights)
    compute_output_spec(model._compute_loss, x, y, outputs, sample_weight=weights, training=False)
    # for a sharded optimizer, which is built from parts of the weights
    if not model.optimizer.built and parts_of(model.optimizer) is None:
        model.optimizer.build(model.trainable_variables)
    model._post_build()


def _make_scales(model: Any) -> None:
    """Create the loss scales of float16. A step traced before they exist would keep their first value, even if
    gradients overflow."""
    from keras.optimizers import LossScaleOptimizer

    for optimizer in optimizers_of(model, of_parts=False):
        if isinstance(optimizer, LossScaleOptimizer) and not optimizer.built:
            parts, variables = parts_of(optimizer), model.trainable_variables
            with tf.init_scope():
                if parts is None:
                    optimizer.build(variables)
                else:
                    parts.cut(variables)


def _is_made_of_layers(model: Any) -> bool:
    """True if the model's output shapes are known without calling it."""
    from keras import Sequential
    from keras.src.models.functional import Functional

    call = type(model).call
    if isinstance(model, Sequential):
        return call is Sequential.call and getattr(model, "_functional", None) is not None
    return isinstance(model, Functional) and call is Functional.call


def trains_as_keras(model: Any) -> bool:
    """True if the model is made of layers and trains by Keras's own step, so that `make_variables` knows all
    variables."""
    from keras import Model

    steps = ("train_step", "compute_loss", "_compute_loss", "compute_metrics")
    own = all(getattr(type(model), name) is getattr(Model, name) for name in steps)
    laid_over = [vars(model)[name] for name in steps if name in vars(model)]
    return own and _is_made_of_layers(model) and all(hasattr(method, "by_ring") for method in laid_over)
