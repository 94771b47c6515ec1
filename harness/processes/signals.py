"""Turn Ctrl-C, SIGTERM and SIGHUP into a KeyboardInterrupt, so that a job is ended in order.

A signal handler may run between any two instructions. If it raised there, a lock could stay taken, or Python could drop
the exception inside a finalizer. So while a launch is under way the handler only notes the request, and the launch
raises it later.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(slots=True)
class _Request:
    """A request to stop. asked: a signal has come and is not yet raised. noting: the number of launches under way."""

    asked: bool = False
    noting: int = 0

    def handle(self, *_: object) -> None:
        self.asked = True
        if not self.noting:
            self.look()

    def look(self) -> None:
        if self.asked:
            self.asked = False
            raise KeyboardInterrupt


_request = _Request()


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt in this block for each of SIGNALS. Only the main thread may open it."""
    # While handlers change, a signal is only noted: a handler that raised then would leave the next ones as they are.
    _request.noting += 1
    try:
        before = {number: signal.signal(number, _request.handle) for number in SIGNALS}
    finally:
        _request.noting -= 1
    try:
        _request.look()
        yield
    finally:
        _request.noting += 1
        for number, handler in before.items():
            signal.signal(number, handler)
        _request.noting -= 1
        asked, _request.asked = _request.asked, False
    if asked:  # a request may have come as the last launch ended
        raise KeyboardInterrupt


@contextmanager
def noted() -> Iterator[Callable[[], None]]:
    """Note requests in this block instead of raising them. Yields a function that raises a noted request. Outside of
    `stopped_by_signals` nothing changes."""
    _request.noting += 1
    try:
        yield _request.look
    finally:
        _request.noting -= 1
