"""Escape text for Markdown."""

from __future__ import annotations

import re

from ...ground.terminals import plain

_TAG = re.compile(r"<(?=[A-Za-z/!?])")  # begins HTML in Markdown, whereas "<0.1 %" does not


def in_text(text: str) -> str:
    """Text escaped so that nothing in it ends a table cell or starts HTML; text in `backticks` needs no escape for
    HTML."""
    parts = plain(text).replace("|", "\\|").replace("\n", " ").split("`")
    return "`".join(part if place % 2 else _TAG.sub("&lt;", part) for place, part in enumerate(parts))
