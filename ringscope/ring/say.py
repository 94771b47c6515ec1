"""Print lines for the user, on standard error."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from .internals.frameworks import hvd
from .internals.laid_over import laid_for_good

FIRST_S, EVERY_S = 20.0, 30.0  # seconds until the first line about work that takes long, and between later lines

_said: set[str] = set()
_bar_is_open = False  # True while the line that Keras's progress bar is on has no end


def line(text: str) -> None:
    global _bar_is_open
    begin, _bar_is_open = "\n" if _bar_is_open else "", False
    with suppress(ValueError, OSError):  # the script has closed stderr, or its reader has ended
        print(f"{begin}ring: {text}", file=sys.stderr, flush=True)


def beside_bars() -> None:
    """Begin each line on a line of its own, also while Keras draws a progress bar."""
    from keras.src.utils import io_utils

    def noting(own: Callable[..., None]) -> Callable[..., None]:
        def print_msg(message: Any, line_break: bool = True) -> None:
            global _bar_is_open
            own(message, line_break)
            _bar_is_open = not (line_break or str(message).endswith("\n"))

        return print_msg

    laid_for_good(io_utils, "print_msg", noting)


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
