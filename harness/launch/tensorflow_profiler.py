"""TensorFlow's profiler, the one that is always here: what `ringscope record` falls back to without nsys and nvprof."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def opened(folder: Path) -> Iterator[None]:
    """While it lasts, TensorFlow records this process; afterwards the recording lies under `folder`."""
    import tensorflow as tf

    tf.profiler.experimental.start(str(folder))
    try:
        yield
    finally:
        tf.profiler.experimental.stop()
