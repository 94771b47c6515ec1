"""Replace functions of Keras and TensorFlow, and methods of a model's parts, by ring's: while a step is traced, or for
good."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import Any

STAYS = True
_ABSENT = object()
_laid: list[tuple[Any, dict[str, Any], dict[str, Any]]] = []
"""Replacements that `lifted` undoes, the latest last: the object, the replacement, and the original."""


def laid_over(owner: Any, stays: bool = False, /, **functions: Any) -> AbstractContextManager[None]:
    """Within this context, attributes of a module, class or object are replaced; on exit they are restored, or deleted
    if the object had only inherited them. stays: True to keep the replacement within `lifted`."""
    for name in functions:
        getattr(owner, name)  # raises AttributeError, in the caller, for a name that this release does not have
    return _laid_over(owner, stays, functions)


@contextmanager
def _laid_over(owner: Any, stays: bool, functions: dict[str, Any]) -> Iterator[None]:
    before = {name: vars(owner).get(name, _ABSENT) for name in functions}
    this = owner, functions, before
    _set(owner, functions)
    if not stays:
        _laid.append(this)
    try:
        yield
    finally:
        if not stays:
            _laid.remove(this)
        _set(owner, before)


@contextmanager
def lifted() -> Iterator[None]:
    """Undo all replacements, and make them again on exit: some work only in XLA, so that other code must not call
    them."""
    now = list(_laid)
    for owner, _, before in reversed(now):
        _set(owner, before)
    try:
        yield
    finally:
        for owner, functions, _ in now:
            _set(owner, functions)


def laid_for_good(owner: Any, name: str, over: Callable[[Any], Any]) -> None:
    """Replace an attribute by the result of `over`, once per process, however often it is called."""
    own = getattr(owner, name)
    if not hasattr(own, "laid_by_ring"):
        function = wraps(own)(over(own))
        function.laid_by_ring = True  # type: ignore[attr-defined]
        setattr(owner, name, function)


def _set(owner: Any, functions: dict[str, Any]) -> None:
    for name, function in functions.items():
        if isinstance(owner, type):
            delattr(owner, name) if function is _ABSENT else setattr(owner, name, function)
        elif function is _ABSENT:
            vars(owner).pop(name, None)
        else:
            vars(owner)[name] = function  # not by setattr: the hooks of Keras's objects track assignments
