"""TensorFlow's profiler, the one that is always here: what `ringscope record` falls back to without nsys and nvprof."""

from __future__ import annotations

import shutil
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


def take_out(folder: Path) -> None:
    """`rank0.xplane/plugins/profile/<date>/<host>.xplane.pb`, as TensorFlow writes it -> `rank0.xplane.pb`, which is
    there only when it is whole."""
    written = sorted(folder.glob("plugins/profile/*/*.xplane.pb"))
    if written:
        written[-1].replace(folder.with_name(f"{folder.name}.pb"))
        shutil.rmtree(folder)
