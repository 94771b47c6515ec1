"""Create the weights that a model does not have yet, before the first step, so that they can be broadcast."""

from __future__ import annotations

import types
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import keras
from keras.src.trainers.data_adapters import get_data_adapter

from profiles.ground.errors import RingscopeError

from ..data import samples
from ..internals.frameworks import tf
from ..internals.laid_over import laid_over
from ..models import has_weights, optimizers_of


def build(model: Any, options: dict[str, Any]) -> bool:
    """Create missing weights from the training data; returns True if any were missing.

    options: the arguments of `fit`; if `x` is a generator, the batch taken from it is put back. Raises RingscopeError
    if `fit` has no batch to look at, or if a user's own step could only be run, not traced.
    """
    if has_weights(model) and not _lacks_some(model):
        return False
    own_step = type(model).train_step is not keras.Model.train_step
    own_call = type(model).call is not keras.Model.call
    if own_step and not (own_call and _runs_eagerly(model)):
        _trace_step(model, _first_batch(options, options.get("batch_size")))
    else:  # call the model, on one sample where the data allows that
        model(keras.utils.unpack_x_y_sample_weight(_first_batch(options, 1))[0])
    return True


def _lacks_some(model: Any) -> bool:
    """True if some layers have not created their weights, although the model may be built: a user's
    `model.build(shape)` may only mark it as built. Layers inside inner models are checked one by one."""
    layers = [each for each in model._flatten_layers(include_self=False) if not isinstance(each, keras.Model)]
    return any(not layer.built and type(layer).build is not keras.layers.Layer.build for layer in layers)


def _runs_eagerly(model: Any) -> bool:
    return bool(model.run_eagerly or tf.config.functions_run_eagerly())


def _trace_step(model: Any, batch: Any) -> None:
    """Create the weights by tracing the user's own train step, since only this step knows which parts of the model it
    calls, and with which inputs. Nothing runs."""
    step = type(model).train_step.__get__(model)
    had_weights = has_weights(model)
    try:
        with ExitStack() as stack:
            for optimizer in optimizers_of(model):
                stack.enter_context(laid_over(optimizer, apply=lambda *_, **__: None))
            tf.function(step, autograph=False).get_concrete_function(batch)
    except Exception as error:
        if not _runs_eagerly(model):
            raise
        if had_weights:  # parts without weights may never be called
            return
        raise RingscopeError(
            f"the model has no weights yet. Call its layers on one batch before fit: {type(model).__name__}.train_step"
            " runs eagerly, so ring cannot trace it to build them"
        ) from error


def _first_batch(options: dict[str, Any], batch_size: int | None) -> Any:
    """The first batch of the training data. batch_size: used only for arrays."""
    x = options.get("x")
    if isinstance(x, keras.utils.PyDataset):
        return x[0]
    if isinstance(x, types.GeneratorType):
        batches = x
    elif isinstance(x, tf.data.Dataset) or samples.are_arrays(x):
        named = {name: options.get(name) for name in ("y", "sample_weight", "class_weight")}
        batches = iter(get_data_adapter(x, **named, batch_size=batch_size).get_tf_dataset())
    else:
        raise RingscopeError("the model has no weights yet; call it on a batch before fit, or model.build(input_shape)")
    first = next(batches, None)
    if first is None:
        raise RingscopeError(
            "the model has no weights yet, and the data has no batch to build them from; give fit data with at"
            " least one batch"
        )
    if batches is x:
        options["x"] = _from(first, x)
    return first


def _from(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest
