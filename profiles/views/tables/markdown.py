"""Escape text for Markdown."""

from __future__ import annotations

import re

from ...ground.terminals import plain

_TAG = re.compile(r"<(?=[A-Za-z/!?])")  # begins HTML in Markdown; "<0.1 %" does not


def in_text(text: str) -> str:
    """Text escaped so that it ends no table cell and starts no HTML; HTML in `backticks` is kept."""
    parts = plain(text).replace("|", "\\|").replace("\n", " ").split("`")
    return "`".join(part if place % 2 else _TAG.sub("&lt;", part) for place, part in enumerate(parts))
