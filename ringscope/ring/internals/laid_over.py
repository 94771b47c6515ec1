"""Functions of Keras and TensorFlow, and optimizers' `apply`, with one of ring's own in their place, while a step is
traced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["laid_over", "lifted", "while_laid"]

_laid: list[tuple[Callable[[], None], Callable[[], None], bool]] = []
"""Replacements in place now, the latest last: how to apply and undo one, and whether it stays in `lifted`."""


@contextmanager
def laid_over(module: Any, **forms: Any) -> Iterator[None]:
    """Replace attributes of a module, class or object; restore them on exit."""
    own = {name: getattr(module, name) for name in forms}
    with while_laid(lambda: _set(module, forms), lambda: _set(module, own)):
        yield


@contextmanager
def while_laid(lay: Callable[[], None], lift: Callable[[], None], *, stays: bool = False) -> Iterator[None]:
    """Call `lay` to replace functions, and `lift` on exit to undo it. stays: also in `lifted`."""
    this = lay, lift, stays
    lay()
    _laid.append(this)
    try:
        yield
    finally:
        _laid.remove(this)
        lift()


@contextmanager
def lifted() -> Iterator[None]:
    """Undo all replacements; apply them again on exit. Only XLA can run some of them: nothing else may call these."""
    now = [(lay, lift) for lay, lift, stays in _laid if not stays]
    for _, lift in reversed(now):
        lift()
    try:
        yield
    finally:
        for lay, _ in now:
            lay()


def _set(module: Any, functions: dict[str, Any]) -> None:
    for name, function in functions.items():
        setattr(module, name, function)
