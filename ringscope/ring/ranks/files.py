"""Files that every rank writes under one name, as a script for one process does.

Models: Keras writes in place, so ranks would overwrite each other's file while another rank reads it. Here each rank
writes a file of its own beside that file, and renames it when it is complete; all ranks' files have equal contents. The
files of a SavedModel's folder belong together, because TensorFlow numbers variables in the order in which it finds
them, and so do the files of a checkpoint: they are renamed and read under a lock. Caches of data sets: TensorFlow
refuses a second writer, so each rank has its own cache file.
"""

from __future__ import annotations

import fcntl
import glob
import importlib
import inspect
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from ..internals.frameworks import hvd, tf
from ..internals.laid_over import laid_for_good


def write_whole_files() -> None:
    """Make Keras and TensorFlow write whole files: `model.save`, `save_weights`, `export`, `keras.saving.save_model`
    and callbacks; `tf.saved_model.save`, `tf.train.Checkpoint` and `Dataset.cache`."""
    from keras.src.legacy.saving import legacy_h5_format
    from keras.src.saving import saving_lib

    # An import by name would replace `tensorflow`'s lazy attribute, which `export` uses, by the module.
    saved_model = importlib.import_module("tensorflow.saved_model")
    for module, name, over in (
        (saving_lib, "save_model", _whole),
        (saving_lib, "save_weights_only", _whole),
        (legacy_h5_format, "save_model_to_hdf5", _whole),
        (saved_model, "save", _whole_folder),
        (saved_model, "load", _read_alone),
        (tf.train.Checkpoint, "_write", _whole_checkpoint),  # all functions that write a checkpoint call this one
        (tf.train.Checkpoint, "read", _checkpoint_read_alone),
        (tf.data.Dataset, "cache", _of_own_file),
    ):
        laid_for_good(module, name, over)


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
                for new in (own / "new").iterdir():  # other files in the folder stay
                    if (place := path / new.name).exists():
                        place.rename(own / "old" / new.name)
                    new.rename(place)
        finally:
            shutil.rmtree(own, ignore_errors=True)
        return found

    return written


def _read_alone(read: Callable[..., Any]) -> Callable[..., Any]:
    def found(export_dir: Any, *args: Any, **options: Any) -> Any:
        with _alone_beside(export_dir):
            return read(export_dir, *args, **options)

    return found


def _whole_checkpoint(write: Callable[..., Any]) -> Callable[..., Any]:
    def written(checkpoint: Any, file_prefix: Any, options: Any = None) -> Any:
        # another thread will call this function again
        later = options is not None and options.experimental_enable_async_checkpoint
        if later or not _is_here(file_prefix) or not tf.executing_eagerly():
            return write(checkpoint, file_prefix, options)
        path, own = _places(file_prefix)
        options = options or tf.train.CheckpointOptions()
        # These callbacks note the latest checkpoint and delete older ones, so they run after the files are renamed.
        told, options.experimental_write_callbacks = options.experimental_write_callbacks or [], None
        try:
            write(checkpoint, str(own), options)
            with _alone(path.parent):
                for new in path.parent.glob(f"{glob.escape(own.name)}.*"):
                    new.replace(path.with_name(path.name + new.name.removeprefix(own.name)))
        finally:
            options.experimental_write_callbacks = told
        for tell in told:
            tell(*[os.fspath(file_prefix)][: len(inspect.signature(tell).parameters)])
        return os.fspath(file_prefix)

    return written


def _checkpoint_read_alone(read: Callable[..., Any]) -> Callable[..., Any]:
    def found(checkpoint: Any, save_path: Any, options: Any = None) -> Any:
        with _alone_beside(save_path):
            return read(checkpoint, save_path, options)

    return found


def _alone_beside(place: Any) -> AbstractContextManager[None]:
    """`_alone` in the folder of this path, if the path is local."""
    return _alone(Path(place).resolve().parent) if _is_here(place) else nullcontext()


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Within this context no other rank renames or reads files in this folder. Ranks of other hosts are kept out only
    if the folder can be locked."""
    try:
        number = os.open(folder, os.O_RDONLY)
    except OSError:  # the folder does not exist; the reader's own error will say so
        yield
        return
    try:
        with suppress(OSError):
            fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)


def _places(filepath: Any) -> tuple[Path, Path]:
    """(the path with links resolved, the path beside it where this rank writes)."""
    path = Path(filepath).resolve()
    return path, path.with_name(f".{hvd.rank()}-{os.getpid()}-{path.name}")  # Keras needs the suffix


def _is_here(filepath: Any) -> bool:
    """True for a path, False for an open file or an address such as `gs://`."""
    return isinstance(filepath, (str, os.PathLike)) and "://" not in str(filepath)


def _is_file_here(filepath: Any) -> bool:
    """True for a path to a file in an existing folder."""
    return _is_here(filepath) and Path(filepath).parent.is_dir() and not Path(filepath).is_dir()


def _of_own_file(cache: Callable[..., Any]) -> Callable[..., Any]:
    def cached(data: Any, filename: Any = "", name: Any = None) -> Any:
        if hvd.rank() and isinstance(filename, (str, os.PathLike)) and str(filename):
            filename = f"{filename}.rank{hvd.rank()}"
        return cache(data, filename, name)

    return cached
