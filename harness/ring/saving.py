"""Models that every rank saves under one name, as a script for one process does: each file is whole at any time.

Keras writes in place, so ranks would write into each other's file, and one that reads it would read half of it. Here
each rank writes a file of its own beside it and gives it the name when it is done; what they hold is the same.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from .exchange import hvd

__all__ = ["write_whole_files"]


def write_whole_files() -> None:
    """Have Keras do so: in `model.save`, `save_weights`, `keras.saving.save_model` and what callbacks save."""
    from keras.src.legacy.saving import legacy_h5_format
    from keras.src.saving import saving_lib

    for module, name in (
        (saving_lib, "save_model"),
        (saving_lib, "save_weights_only"),
        (legacy_h5_format, "save_model_to_hdf5"),
    ):
        write = getattr(module, name)
        if not getattr(write, "by_ring", False):
            setattr(module, name, _whole(write))


def _whole(write: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(write)
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

    written.by_ring = True  # type: ignore[attr-defined]
    return written


def _is_file_here(filepath: Any) -> bool:
    """Not an open file, a folder, a place without one or an address such as `gs://`."""
    if not isinstance(filepath, (str, os.PathLike)) or "://" in str(filepath):
        return False
    return Path(filepath).parent.is_dir() and not Path(filepath).is_dir()
