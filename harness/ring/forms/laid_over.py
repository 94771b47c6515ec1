"""Functions of Keras and TensorFlow with a form of ring's own in their place, while a step is traced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def laid_over(module: Any, **forms: Callable[..., Any]) -> Iterator[None]:
    """While it lasts, `module` has these in the place of its own functions of their names."""
    own = {name: getattr(module, name) for name in forms}
    _set(module, forms)
    try:
        yield
    finally:
        _set(module, own)


def _set(module: Any, functions: dict[str, Callable[..., Any]]) -> None:
    for name, function in functions.items():
        setattr(module, name, function)
