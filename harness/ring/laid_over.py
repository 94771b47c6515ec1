"""Functions of Keras and TensorFlow, and optimizers' `apply`, with one of ring's own in their place, while a step is
traced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["laid_over", "lifted", "while_laid"]

_laid: list[tuple[Callable[[], None], Callable[[], None]]] = []
"""What is laid over now, the latest last: how to lay it, and how to lift it."""


@contextmanager
def laid_over(module: Any, **forms: Any) -> Iterator[None]:
    """While it lasts, `module`, class or object has these in the place of its own functions of their names."""
    own = {name: getattr(module, name) for name in forms}
    with while_laid(lambda: _set(module, forms), lambda: _set(module, own)):
        yield


@contextmanager
def while_laid(lay: Callable[[], None], lift: Callable[[], None]) -> Iterator[None]:
    """While it lasts, what `lay` lays over functions is there; `lift` undoes it."""
    both = lay, lift
    lay()
    _laid.append(both)
    try:
        yield
    finally:
        _laid.remove(both)
        lift()


@contextmanager
def lifted() -> Iterator[None]:
    """While it lasts, all functions are what they are without: what XLA alone can run, nothing else may call."""
    now = _laid[:]
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
