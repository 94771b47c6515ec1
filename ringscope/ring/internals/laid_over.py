"""Functions of Keras and TensorFlow, and optimizers' `apply`, with one of ring's own in their place, while a step is
traced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["laid_over", "lifted", "while_laid"]

_laid: list[tuple[Callable[[], None], Callable[[], None], bool]] = []
"""What is laid over now, the latest last: how to lay it, how to lift it, whether it stays where others are lifted."""


@contextmanager
def laid_over(module: Any, **forms: Any) -> Iterator[None]:
    """While it lasts, `module`, class or object has these in the place of its own functions of their names."""
    own = {name: getattr(module, name) for name in forms}
    with while_laid(lambda: _set(module, forms), lambda: _set(module, own)):
        yield


@contextmanager
def while_laid(lay: Callable[[], None], lift: Callable[[], None], *, stays: bool = False) -> Iterator[None]:
    """While it lasts, what `lay` lays over functions is there; `lift` undoes it. stays: while others are lifted."""
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
    """While it lasts, all functions are what they are without: what XLA alone can run, nothing else may call."""
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
