"""Files that every rank writes under one name, as a script for one process does.

Models: Keras writes in place, so ranks would write into each other's file, and one that reads it would read half of it.
Here each rank writes a file of its own beside it and gives it the name when it is done; what they hold is the same.

Caches of data sets: TensorFlow refuses a second writer while there is one. Here each rank has a file of its own.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from .exchange import hvd, tf

__all__ = ["write_whole_files"]


def write_whole_files() -> None:
    """Have Keras do so in `model.save`, `save_weights`, `keras.saving.save_model` and what callbacks save, and
    TensorFlow in `Dataset.cache`."""
    from keras.src.legacy.saving import legacy_h5_format
    from keras.src.saving import saving_lib

    for module, name, laid_over in (
        (saving_lib, "save_model", _whole),
        (saving_lib, "save_weights_only", _whole),
        (legacy_h5_format, "save_model_to_hdf5", _whole),
        (tf.data.Dataset, "cache", _of_own_file),
    ):
        write = getattr(module, name)
        if not getattr(write, "by_ring", False):
            written = functools.wraps(write)(laid_over(write))
            written.by_ring = True  # type: ignore[attr-defined]
            setattr(module, name, written)


def _whole(write: Callable[..., Any]) -> Callable[..., Any]:
    def written(model: Any, filepath: Any, *args: Any, **options: Any) -> Any:
        if not _is_file_here(filepath) or options.get("zipped") is False or options.get("max_shard_size") is not None:
            return write(model, filepath, *args, **options)
        path = Path(filepath).resolve()  # what a link points to
        own = path.with_name(f".{hvd.rank()}-{os.getpid()}-{path.name}")  # Keras wants its ending
        try:
            found = write(model, str(own), *args, **options)
            own.replace(path)
        finally:
            with suppress(OSError):
                own.unlink()
        return found

    return written


def _is_file_here(filepath: Any) -> bool:
    """Not an open file, a folder, a place without one or an address such as `gs://`."""
    if not isinstance(filepath, (str, os.PathLike)) or "://" in str(filepath):
        return False
    return Path(filepath).parent.is_dir() and not Path(filepath).is_dir()


def _of_own_file(cache: Callable[..., Any]) -> Callable[..., Any]:
    def cached(data: Any, filename: Any = "", name: Any = None) -> Any:
        if hvd.rank() and isinstance(filename, (str, os.PathLike)) and str(filename):
            filename = f"{filename}.rank{hvd.rank()}"
        return cache(data, filename, name)

    return cached
