"""The numbers in a text: what it says as facts, whatever the words around them are."""

from __future__ import annotations

import re

_UNITS = r"(?:ns|µs|ms|s|%|x|[kMG]i?B|[kMG]?B/s|GB/s|samples/s|images/s|requests/s)"
_FIGURE = re.compile(rf"(?<![\w.,-])[-+±~]?\d[\d,]*(?:\.\d+)?(?: {_UNITS}(?![\w/]))?(?![\w])")


def figures(text: str) -> list[str]:
    """In their order, each with its sign and its unit: `3.00 x`, `+1,024`, `16.7 %`."""
    return [one.rstrip(",") for one in _FIGURE.findall(text)]
