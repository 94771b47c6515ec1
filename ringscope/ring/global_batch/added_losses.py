"""Losses that users' layers add, with their sums taken over all ranks where that is needed; and losses that users'
activity regularisers give, which ring reads and does not change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import keras

from ringscope.places import whose

from ..internals.laid_over import STAYS, laid_over
from . import totals
from .loss_kinds import NEITHER, Kinds, is_keras
from .ratios import look, of_all_ranks


@contextmanager
def of_all_layers(model: Any, share: totals.Share, ranks: int, found: Kinds, *, uneven: bool) -> Iterator[None]:
    """Within this context, users' layers add losses with sums over all ranks; `found` keeps the kinds of these
    losses. It also keeps the kind of what a user's activity regulariser gives, if averaged gradients get it wrong."""
    with ExitStack() as stack:
        for layer in model._flatten_layers():
            if _may_add(layer):
                call = _of_all_ranks(layer, share, ranks, found, uneven)
                stack.enter_context(laid_over(layer, STAYS, call=call))
            own = layer.activity_regularizer
            if own is not None and not is_keras(own):
                read = _read(layer, own, found)
                stack.enter_context(laid_over(layer, STAYS, activity_regularizer=read))
        yield


def _may_add(layer: Any) -> bool:
    """True if code of the user's that this layer can reach mentions `add_loss`: in its class, in what its attributes
    hold, and in whatever these name."""
    package = type(layer).__module__.partition(".")[0]
    waiting = [] if package == "keras" else [type(layer), *vars(layer).values()]
    seen: dict[int, Any] = {}
    while waiting:
        found = waiting.pop()
        if id(found) in seen or isinstance(found, (keras.layers.Layer, keras.Variable)):
            continue
        seen[id(found)] = found
        if isinstance(found, FunctionType):
            waiting += _around(found)
            if whose.owner(found.__code__.co_filename) == whose.USER or str(found.__module__).startswith(package):
                names = _names(found.__code__)
                if "add_loss" in names:
                    return True
                waiting += _named(found, names)
        elif isinstance(found, type):
            waiting += [each for kind in found.__mro__ for each in vars(kind).values()]
        elif isinstance(found, (list, tuple)):
            waiting += found
        elif isinstance(found, partial):
            waiting += [found.func, *found.args]
        elif isinstance(found, (MethodType, staticmethod, classmethod)):
            waiting.append(found.__func__)
        else:  # nothing is asked of an object of the user's, whose __getattr__ may do anything
            waiting.append(type(found))
    return False


def _around(function: FunctionType) -> list[Any]:
    """The values in a function's closure, such as what a decorator calls."""
    return [cell.cell_contents for cell in function.__closure__ or () if cell != CellType()]


def _names(code: CodeType) -> set[str]:
    """The names that code uses, and the code within it."""
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return set(code.co_names).union(*map(_names, inner))


def _named(function: FunctionType, names: set[str]) -> list[Any]:
    """The global values and the members of modules that have these names where the function is defined."""
    found = [function.__globals__[name] for name in names & function.__globals__.keys()]
    modules = [each for each in found if isinstance(each, ModuleType)]
    return [*found, *(vars(module).get(name) for module in modules for name in names)]


def _of_all_ranks(layer: Any, share: totals.Share, ranks: int, found: Kinds, uneven: bool) -> Callable[..., Any]:
    """A replacement for the layer's `call`: where a loss that it adds divides by a sum over samples, that sum runs over
    all ranks' samples."""
    own = layer.call

    def call(*args: Any, **kwargs: Any) -> Any:
        def added(*given: Any) -> list[Any]:
            named = dict(zip(kwargs, given[len(args) :], strict=True))
            return _added(layer, own, given[: len(args)], named)

        apart = look(added, [*args, *kwargs.values()], [True] * (len(args) + len(kwargs)))
        found.setdefault(id(layer), []).extend([None] if apart is None else apart.kinds)
        with of_all_ranks(apart, share, ranks, uneven=uneven, name=f"layer {layer.name!r}"):
            return own(*args, **kwargs)

    return call


def _read(layer: Any, own: Callable[[Any], Any], found: Kinds) -> Callable[[Any], Any]:
    """A replacement for the layer's activity regulariser that puts into `found` what averaged gradients get wrong."""

    def call(output: Any) -> Any:
        apart = look(own, [output], [True])
        if apart is None or apart.cuts:
            found.setdefault(id(layer), []).append(None if apart is None else NEITHER)
        return own(output)

    return call


def _added(layer: Any, own: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> list[Any]:
    """The losses that a call of the layer adds. Its assignments to variables are discarded."""
    state = [(v, v.value) for v in layer.trainable_variables]
    with keras.StatelessScope(state_mapping=state, collect_losses=True) as scope:
        own(*args, **kwargs)
    return list(scope.losses)
