"""The profiler of the framework that trains, inside of its process: it records where there is no nsys and no nvprof."""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ringscope.places import ranges

from . import tensorflow_profiler

PYTORCH, TENSORFLOW, JAX = "pytorch", "tensorflow", "jax"


def framework() -> str:
    """The framework whose profiler sees this process's training: Keras's backend, else PyTorch where it is loaded.
    TensorFlow's sees JAX, too; JAX's own is for a process that has no TensorFlow."""
    backend = getattr(sys.modules.get("keras"), "backend", None)
    if "torch" in sys.modules and (backend is None or backend.backend() == "torch"):
        return PYTORCH
    return JAX if "jax" in sys.modules and importlib.util.find_spec("tensorflow") is None else TENSORFLOW


@contextmanager
def opened(folder: Path, rank: str, name: str | None = None) -> Iterator[None]:
    """While it lasts, the framework records this process, into a file `rank<k>` in the folder. name: of the framework;
    None: the one that trains."""
    name = name or framework()
    ranges.for_framework(name)
    if name == PYTORCH:
        with _by_pytorch(folder / f"rank{rank}.pt.trace.json"):
            yield
        return
    own = folder / f"rank{rank}.xplane"  # a directory per rank, else the ranks write over each other
    try:
        with _by_jax(own) if name == JAX else tensorflow_profiler.opened(own):
            yield
    finally:
        tensorflow_profiler.take_out(own)


@contextmanager
def _by_jax(folder: Path) -> Iterator[None]:
    """It writes what TensorFlow's writes, at the same place."""
    import jax

    with jax.profiler.trace(str(folder)):
        yield


@contextmanager
def _by_pytorch(path: Path) -> Iterator[None]:
    import torch

    # All threads only where the one that opens it does not train: with them a rank of torchrun once ended by SIGABRT.
    alone = threading.current_thread() is threading.main_thread()
    profiler = torch.profiler.profile(record_shapes=True, **({} if alone else _of_all_threads()))
    profiler.start()
    try:
        yield
    finally:
        profiler.stop()
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}")  # it has its name when it is whole
        profiler.export_chrome_trace(str(beside))
        beside.replace(path)


def _of_all_threads() -> dict[str, Any]:
    """Older PyTorch records the thread that opens it alone."""
    from torch._C._profiler import _ExperimentalConfig

    try:
        return {"experimental_config": _ExperimentalConfig(profile_all_threads=True)}
    except TypeError:
        return {}
