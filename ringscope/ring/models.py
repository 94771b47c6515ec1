"""What a Keras model holds that ring asks for: optimizers, weights, and what ring has hung on it."""

from __future__ import annotations

from typing import Any


def optimizers_of(model: Any, *, of_parts: bool = True) -> list[Any]:
    """The optimizers among a model's attributes (models with a train step of their own may have several), then the
    optimizers of models that are parts of it."""
    from keras.optimizers import Optimizer

    found: dict[int, Any] = {}
    for each in model._flatten_layers() if of_parts else [model]:
        held = vars(each).values() if hasattr(each, "compile") else ()
        for value in held:
            found |= {id(one): one for one in _held_in(value) if isinstance(one, Optimizer)}
    return list(found.values())


def _held_in(value: Any) -> list[Any]:
    """What lists, tuples and dictionaries hold, also within each other."""
    if isinstance(value, dict):
        value = list(value.values())
    return [each for one in value for each in _held_in(one)] if isinstance(value, (list, tuple)) else [value]


def without_loss_scale(optimizer: Any) -> Any:
    """The optimizer within the one that scales losses (float16); itself where there is none."""
    while hasattr(optimizer, "inner_optimizer"):
        optimizer = optimizer.inner_optimizer
    return optimizer


def is_default(model: Any, optimizer: Any) -> bool:
    """True if `compile` made it without being asked to: a model with optimizers of its own does not use it."""
    config = getattr(getattr(model, "_compile_config", None), "config", {})
    return optimizer is getattr(model, "optimizer", None) and config.get("optimizer") == "rmsprop"


def used_by_step(model: Any) -> list[Any]:
    """The optimizers that the model's own train step updates by."""
    own = optimizers_of(model, of_parts=False)
    return [each for each in own if len(own) == 1 or not is_default(model, each)]


def is_distributed(model: Any) -> bool:
    """True if its optimizers are ones that `ring.distribute` has seen; `model.compile` brings one that it has not."""
    return all(map(is_seen, optimizers_of(model)))


def is_seen(optimizer: Any) -> bool:
    return getattr(optimizer, "distributed_by_ring", False) is True


def parts_of(optimizer: Any) -> Any | None:
    """Which parts of its state this rank has (`Parts`); None unless it is sharded."""
    return getattr(optimizer, "parts_by_ring", None)


def has_weights(model: Any) -> bool:
    """True if its weights exist yet. A model that is never called, such as a GAN of two others, is never `built`."""
    return model.built or (bool(model.layers) and all(layer.built for layer in model.layers))


def began_alike(model: Any) -> bool:
    """True if all weights that it has were there when `broadcast` made them equal."""
    return getattr(model, "weights_by_ring", None) == len(model.weights)
