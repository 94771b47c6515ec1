"""Lines for the user, on standard error."""

from __future__ import annotations

import sys

from .exchange import hvd

_said: set[str] = set()


def line(text: str) -> None:
    print(f"ring: {text}", file=sys.stderr, flush=True)


def once(text: str) -> None:
    """On rank 0 alone, once a process."""
    if hvd.rank() == 0 and text not in _said:
        line(text)
    _said.add(text)
