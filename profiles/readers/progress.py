"""Report how much of a file has been read, from deep within a reader to the caller of the reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_listener: ContextVar[Callable[[float], None] | None] = ContextVar("listener", default=None)


@contextmanager
def heard_by(listener: Callable[[float], None]) -> Iterator[None]:
    """Call `listener` with the share of the file read so far (0 to 1) while a reader runs in the body of the
    context."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def tell(share: float) -> None:
    listener = _listener.get()
    if listener:
        listener(share)
