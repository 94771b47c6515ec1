"""Lines for the user: on rank 0's standard error, each once a process."""

from __future__ import annotations

import sys

from .exchange import hvd

_said: set[str] = set()


def once(text: str) -> None:
    if hvd.rank() == 0 and text not in _said:
        print(f"ring: {text}", file=sys.stderr, flush=True)
    _said.add(text)
