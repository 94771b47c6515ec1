"""Parse a span of a recording's time as given on the command line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Final

from ..ground.errors import RingscopeError

_UNITS: Final = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "": 1_000_000_000}
_TIME: Final = re.compile(r"\s*(-?[0-9.]+)\s*(ns|us|µs|ms|s|)\s*")


@dataclass(frozen=True, slots=True)
class Span:
    """The span [start_ns, end_ns) in times of the Timeline. None: no limit at that side."""

    start_ns: int | None
    end_ns: int | None


def parsed(text: str) -> Span:
    """Parse `12.5s:14s`, `100ms:` or `:2s`; units ns, us, ms, s (seconds if none is given). Raises RingscopeError."""
    parts = text.split(":")
    if len(parts) != 2:
        raise RingscopeError(f"{text}: not a span of time; write it as 12.5s:14s, 300ms: or :2s")
    found = Span(*(_nanoseconds(part, text) if part.strip() else None for part in parts))
    if found.start_ns is not None and found.end_ns is not None and found.start_ns >= found.end_ns:
        raise RingscopeError(f"{text}: the span ends before it starts; write the earlier time first")
    return found


def _nanoseconds(text: str, given: str) -> int:
    match = _TIME.fullmatch(text)
    try:
        if match is None:
            raise InvalidOperation
        return int((Decimal(match[1]) * _UNITS[match[2]]).to_integral_value())
    except InvalidOperation:
        raise RingscopeError(f"{given}: '{text}' is not a time; write it as 12.5s, 300ms, 40us or 7ns") from None
