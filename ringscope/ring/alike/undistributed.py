"""Models that `ring.distribute` refuses or did not get: each rank trains them alone, so ring raises an error or prints
a line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from profiles.ground.errors import RingscopeError

from ..internals.frameworks import defining, hvd, tf
from ..internals.laid_over import laid_for_good
from ..models import is_seen, kept, optimizers_of, since_applied
from ..say import once


def check_backend() -> None:
    if keras.config.backend() != "tensorflow":
        raise RingscopeError(
            f"Keras computes with {keras.config.backend()} here, and ring trains Keras on TensorFlow; set"
            " KERAS_BACKEND=tensorflow before Keras is imported"
        )


def check_kind(model: Any) -> None:
    if not isinstance(model, keras.Model):
        raise RingscopeError(
            f"{type(model).__module__}.{type(model).__qualname__} is not a Keras 3 model, and ring trains only these; "
            "with TF_USE_LEGACY_KERAS set, tf.keras is Keras 2"
        )


def check_strategy() -> None:
    """Raise RingscopeError within the scope of a tf.distribute strategy."""
    if tf.distribute.has_strategy():
        raise RingscopeError(
            f"this is within the scope of tf.distribute.{type(tf.distribute.get_strategy()).__name__}, which spreads"
            " training in its own way; remove the strategy from the script: each rank trains on one device"
        )


def watch_models() -> None:
    """Make Keras models and optimizers print a line when they train without `ring.distribute`."""
    for name in ("fit", "train_on_batch"):
        laid_for_good(defining(name), name, _watched)
    laid_for_good(keras.optimizers.Optimizer, "apply", _watched_in_loops)


def _watched(method: Callable[..., Any]) -> Callable[..., Any]:
    def watched(model: Any, *args: Any, **kwargs: Any) -> Any:
        # The optimizer of a distributed model's inner model is distributed too.
        optimizers = optimizers_of(model, of_parts=False)
        if kept(model).step is None and not any(map(is_seen, optimizers)):
            for optimizer in optimizers:
                optimizer.named_by_ring = True
            once(
                f"model {model.name!r} was not given to ring.distribute, so each rank trains its own copy; call"
                " ring.distribute(model) after model.compile(...), with reduce=False if you want separate copies"
            )
        return method(model, *args, **kwargs)

    return watched


def _watched_in_loops(apply: Callable[..., Any]) -> Callable[..., Any]:
    def watched(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        _name(optimizer)
        return apply(optimizer, *args, **kwargs)

    return watched


@tf.autograph.experimental.do_not_convert
def _name(optimizer: Any) -> None:
    """Print a line, once for each name, on an optimizer of no model that was given to ring.distribute or named, which
    applies gradients that ring.average_gradients has not averaged."""
    by_hand, since_applied.averaged = since_applied.averaged, False
    if hvd.size() > 1 and not (by_hand or is_seen(optimizer) or getattr(optimizer, "named_by_ring", False)):
        once(
            f"the optimizer {optimizer.name!r} trains weights, and no model with it was given to ring.distribute: each "
            "rank trains its own copy, unless your loop averages the gradients; call model.compile(optimizer) and "
            "ring.distribute(model) before the loop, with reduce=False if you want separate copies"
        )
