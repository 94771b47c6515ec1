"""Call ringscope whenever a script calls a function of a framework."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def before(owner: Any, name: str, tell: Callable[..., object]) -> Any:
    """Make each call of `owner.name` call `tell` first, with the same arguments. Returns the new function."""
    own = getattr(owner, name)

    @functools.wraps(own)
    def call(*arguments: Any, **options: Any) -> Any:
        tell(*arguments, **options)
        return own(*arguments, **options)

    setattr(owner, name, call)
    return call


def after(owner: Any, name: str, tell: Callable[..., object]) -> None:
    """Make each call of `owner.name` end with a call of `tell`: with the result, then the arguments."""
    own = getattr(owner, name)

    @functools.wraps(own)
    def call(*arguments: Any, **options: Any) -> Any:
        found = own(*arguments, **options)
        tell(found, *arguments, **options)
        return found

    setattr(owner, name, call)
