"""Losses that users' layers add, with their sums taken over all ranks where that is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import CodeType, FunctionType
from typing import Any

import keras

from ..internals.laid_over import STAYS, laid_over
from . import totals
from .ratios import look, of_all_ranks

Kinds = dict[int, list[str]]
"""Id of a layer -> how each loss that the layer's calls added depends on the batch (`Apart.kinds`)."""


@contextmanager
def of_all_layers(model: Any, share: totals.Share, ranks: int, found: Kinds, *, uneven: bool) -> Iterator[None]:
    """Within this context, users' layers add losses with sums over all ranks; `found` keeps the kinds of these
    losses."""
    with ExitStack() as stack:
        for layer in model._flatten_layers():
            if _may_add(layer):
                call = _of_all_ranks(layer, share, ranks, found, uneven)
                stack.enter_context(laid_over(layer, STAYS, call=call))
        yield


def _may_add(layer: Any) -> bool:
    """True if a method of a user's class mentions `add_loss`, or a function of the same module that it calls does."""
    own = [each for each in type(layer).__mro__ if not each.__module__.startswith("keras.")]
    waiting = [function for each in own for function in vars(each).values()]
    seen: set[CodeType] = set()
    for function in waiting:
        codes = [function.__code__] if isinstance(function, FunctionType) and function.__code__ not in seen else []
        for code in codes:
            seen.add(code)
            codes += [each for each in code.co_consts if isinstance(each, CodeType)]
            if "add_loss" in code.co_names:
                return True
            called = [function.__globals__.get(name) for name in code.co_names]
            waiting += [each for each in called if getattr(each, "__module__", None) == function.__module__]
    return False


def _of_all_ranks(layer: Any, share: totals.Share, ranks: int, found: Kinds, uneven: bool) -> Callable[..., Any]:
    """A replacement for the layer's `call`: where a loss that it adds divides by a sum over samples, that sum runs over
    all ranks' samples."""
    own = layer.call

    def call(*args: Any, **kwargs: Any) -> Any:
        def added(*given: Any) -> list[Any]:
            named = dict(zip(kwargs, given[len(args) :], strict=True))
            return _added(layer, own, given[: len(args)], named)

        apart = look(added, [*args, *kwargs.values()], [True] * (len(args) + len(kwargs)))
        if apart is not None:
            found.setdefault(id(layer), []).extend(apart.kinds)
        with of_all_ranks(apart, share, ranks, uneven=uneven, name=f"layer {layer.name!r}"):
            return own(*args, **kwargs)

    return call


def _added(layer: Any, own: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> list[Any]:
    """The losses that a call of the layer adds. Its assignments to variables are discarded."""
    state = [(v, v.value) for v in layer.trainable_variables]
    with keras.StatelessScope(state_mapping=state, collect_losses=True) as scope:
        own(*args, **kwargs)
    return list(scope.losses)
