"""Names in Markdown."""

from __future__ import annotations

import re

from ...ground.terminals import plain

_TAG = re.compile(r"<(?=[A-Za-z/!?])")  # where Markdown begins HTML; "<0.1 %" does not


def in_text(text: str) -> str:
    """Words that end no cell and start no HTML; `code` in backticks stays."""
    parts = plain(text).replace("|", "\\|").replace("\n", " ").split("`")
    return "`".join(part if place % 2 else _TAG.sub("&lt;", part) for place, part in enumerate(parts))
