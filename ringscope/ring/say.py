"""Print lines for the user, on standard error."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from .internals.frameworks import hvd

FIRST_S, EVERY_S = 20.0, 30.0  # seconds until the first line about work that takes long, and between later lines

_said: set[str] = set()


def line(text: str) -> None:
    with suppress(ValueError, OSError):  # the script has closed stderr, or its reader has ended
        print(f"ring: {text}", file=sys.stderr, flush=True)


def once(text: str) -> None:
    """Print a line on rank 0 only, once per process. Before Horovod has started, every process prints it."""
    if text not in _said and (not hvd.is_initialized() or hvd.rank() == 0):
        line(text)
    _said.add(text)


@contextmanager
def lasting(what: str, *, then: Callable[[], str]) -> Iterator[None]:
    """Within this context rank 0 prints from time to time how long the work has taken. then: makes words that only the
    first line has."""
    over, began = threading.Event(), time.monotonic()

    def tell() -> None:
        wait_s, more = FIRST_S, then
        while not over.wait(wait_s):
            if hvd.rank() == 0:
                line(f"{what}: {time.monotonic() - began:.0f} s so far{more()}")
            wait_s, more = EVERY_S, str

    thread = threading.Thread(target=tell, name="ring lasting", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
