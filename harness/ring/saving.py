"""Files that every rank writes under one name, as a script for one process does.

Models: Keras writes in place, so ranks would write into each other's file, and one that reads it would read half of it.
Here each rank writes a file of its own beside it and gives it the name when it is done; what they hold is the same.
A SavedModel is a folder, of which no rank may read one file of its own and one of another's: TensorFlow numbers the
variables as it finds them, so its files belong together. Names are changed, and the folder is read, under a lock.

Caches of data sets: TensorFlow refuses a second writer while there is one. Here each rank has a file of its own.
"""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from .exchange import hvd, tf

__all__ = ["write_whole_files"]


def write_whole_files() -> None:
    """Have Keras do so in `model.save`, `save_weights`, `export`, `keras.saving.save_model` and what callbacks save,
    and TensorFlow in `tf.saved_model.save` and `Dataset.cache`."""
    from keras.src.legacy.saving import legacy_h5_format
    from keras.src.saving import saving_lib

    for module, name, laid_over in (
        (saving_lib, "save_model", _whole),
        (saving_lib, "save_weights_only", _whole),
        (legacy_h5_format, "save_model_to_hdf5", _whole),
        (tf.saved_model, "save", _whole_folder),
        (tf.saved_model, "load", _read_alone),
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
        path, own = _places(filepath)
        try:
            found = write(model, str(own), *args, **options)
            own.replace(path)
        finally:
            with suppress(OSError):
                own.unlink()
        return found

    return written


def _whole_folder(write: Callable[..., Any]) -> Callable[..., Any]:
    def written(model: Any, export_dir: Any, *args: Any, **options: Any) -> Any:
        if not _is_here(export_dir):
            return write(model, export_dir, *args, **options)
        path, own = _places(export_dir)
        try:
            found = write(model, str(own / "new"), *args, **options)
            (own / "old").mkdir()
            with _alone(path.parent):
                path.mkdir(exist_ok=True)
                for new in (own / "new").iterdir():  # whatever else lies in the folder stays
                    if (place := path / new.name).exists():
                        place.rename(own / "old" / new.name)
                    new.rename(place)
        finally:
            shutil.rmtree(own, ignore_errors=True)
        return found

    return written


def _read_alone(read: Callable[..., Any]) -> Callable[..., Any]:
    def found(export_dir: Any, *args: Any, **options: Any) -> Any:
        with _alone(Path(export_dir).resolve().parent) if _is_here(export_dir) else nullcontext():
            return read(export_dir, *args, **options)

    return found


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """While it lasts no other rank changes names here or reads; of other hosts, where a folder can be locked."""
    try:
        number = os.open(folder, os.O_RDONLY)
    except OSError:  # it is not there, as who reads it will say
        yield
        return
    try:
        with suppress(OSError):
            fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)


def _places(filepath: Any) -> tuple[Path, Path]:
    """(what a link points to, a rank's own place beside it)."""
    path = Path(filepath).resolve()
    return path, path.with_name(f".{hvd.rank()}-{os.getpid()}-{path.name}")  # Keras wants its ending


def _is_here(filepath: Any) -> bool:
    """Not an open file, or an address such as `gs://`."""
    return isinstance(filepath, (str, os.PathLike)) and "://" not in str(filepath)


def _is_file_here(filepath: Any) -> bool:
    """Nor a folder, or a place without one."""
    return _is_here(filepath) and Path(filepath).parent.is_dir() and not Path(filepath).is_dir()


def _of_own_file(cache: Callable[..., Any]) -> Callable[..., Any]:
    def cached(data: Any, filename: Any = "", name: Any = None) -> Any:
        if hvd.rank() and isinstance(filename, (str, os.PathLike)) and str(filename):
            filename = f"{filename}.rank{hvd.rank()}"
        return cache(data, filename, name)

    return cached
