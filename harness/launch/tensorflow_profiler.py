"""TensorFlow's own profiler, which `ringscope record` uses if neither nsys nor nvprof is here."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def opened(folder: Path) -> Iterator[None]:
    """Within this context TensorFlow's profiler records this process; the recording is then below `folder`."""
    import tensorflow as tf

    tf.profiler.experimental.start(str(folder))
    try:
        yield
    finally:
        tf.profiler.experimental.stop()


def take_out(folder: Path) -> None:
    """Move TensorFlow's `rank0.xplane/plugins/profile/<date>/<host>.xplane.pb` to `rank0.xplane.pb`, a name that only a
    complete recording has."""
    written = sorted(folder.glob("plugins/profile/*/*.xplane.pb"))
    if written:
        written[-1].replace(folder.with_name(f"{folder.name}.pb"))
        shutil.rmtree(folder)
