"""Progress within one file, reported from deep within a reader to the caller that waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_listener: ContextVar[Callable[[float], None] | None] = ContextVar("listener", default=None)


@contextmanager
def heard_by(listener: Callable[[float], None]) -> Iterator[None]:
    """Calls `listener` with the share (0 to 1) read so far, while readers run within."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def tell(share: float) -> None:
    listener = _listener.get()
    if listener:
        listener(share)
