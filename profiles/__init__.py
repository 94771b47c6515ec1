"""ringscope's analysis half: recordings and run records become answers. Imports neither TensorFlow nor Horovod."""

from __future__ import annotations

from .errors import RingscopeError as RingscopeError
from .errors import UnreadableRecording as UnreadableRecording


def __getattr__(name: str) -> object:
    """`profiles.read`, `profiles.measure` and `profiles.analyse`, imported when first used (pandas is heavy)."""
    if name == "read":
        from .readers import read

        return read
    if name in ("measure", "analyse"):
        from . import analysis

        return getattr(analysis, name)
    raise AttributeError(name)
