"""A reader per format; picked by content, never by file name."""

from __future__ import annotations

from pathlib import Path

from ..errors import UnreadableRecording
from ..timeline import Timeline


def read(path: str | Path) -> Timeline:
    """The one recording at `path`. Raises UnreadableRecording, which says what is wrong and what to do."""
    raise UnreadableRecording(path, "no reader knows this format", "see `ringscope timeline --help` for those that are")
