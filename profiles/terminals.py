"""Terminals that cannot show every character: what they lack is written in characters that they have."""

from __future__ import annotations

import codecs
import io
from typing import Any, Final

# Of one column each where a table or a bar stands on it.
_INSTEAD: Final = {
    **dict.fromkeys("█▉▊▋▌", "#"),
    **dict.fromkeys("▍▎▏", "-"),
    "░": ".",
    "·": ".",
    "•": "*",
    "→": ">",
    "✓": "+",
    "✗": "x",
    "µ": "u",
    "±": "~",
    "…": ".",
}
_NAME: Final = "ringscope"


def show_everything(*streams: Any) -> None:
    """Let streams of any encoding (latin-1, ASCII) take any text: `→` becomes `>`, an unknown character `?`."""
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "backslashreplace"):
            stream.reconfigure(errors=_NAME)


def _instead(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(_INSTEAD.get(character, "?") for character in lacking), error.end


codecs.register_error(_NAME, _instead)
