"""Record a training inside its own process by its framework's profiler, which works where nsys and nvprof do not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ringscope.places import ranges

from . import tensorflow_profiler

PYTORCH, TENSORFLOW, JAX = "pytorch", "tensorflow", "jax"


def framework() -> str:
    """The framework whose profiler sees this process's training: Keras's backend, else PyTorch if it is loaded. JAX's
    own is used unless TensorFlow is loaded, whose profiler sees JAX too: an import of TensorFlow would keep the rank's
    peers waiting for seconds."""
    backend = getattr(sys.modules.get("keras"), "backend", None)
    if "torch" in sys.modules and (backend is None or backend.backend() == "torch"):
        return PYTORCH
    return JAX if "jax" in sys.modules and "tensorflow" not in sys.modules else TENSORFLOW


def is_early() -> bool:
    """True while the script has loaded no framework, or while JAX's profiler would open JAX's devices before the script
    does. `jax.distributed.initialize` must come before that, or each rank trains alone."""
    if not any(name in sys.modules for name in ("jax", "tensorflow", "torch")):
        return True
    bridge = sys.modules.get("jax._src.xla_bridge")
    has_devices = getattr(bridge, "backends_are_initialized", lambda: True)
    return framework() == JAX and not has_devices()


@contextmanager
def opened(
    folder: Path,
    rank: str,
    name: str | None = None,
    *,
    all_threads: bool = False,
    unless: Callable[[], bool] = lambda: False,
) -> Iterator[None]:
    """Within this context a framework's profiler records this process into a file `rank<k>` in the folder. name: the
    framework; None for the one that trains. all_threads: PyTorch's profiler records all threads, and any thread may
    close it; else only this thread. unless: True at the end if PyTorch's file is not wanted."""
    name = name or framework()
    ranges.for_framework(name)
    if name == PYTORCH:
        with _by_pytorch(folder / f"rank{rank}.pt.trace.json", all_threads, unless):
            yield
        return
    own = folder / f"rank{rank}.xplane"  # a directory per rank, because the ranks would overwrite each other's files
    try:
        with _by_jax(own) if name == JAX else tensorflow_profiler.opened(own):
            yield
    finally:
        tensorflow_profiler.take_out(own)


@contextmanager
def _by_jax(folder: Path) -> Iterator[None]:
    """Record by JAX's profiler, which writes the same files as TensorFlow's to the same place. Python's calls are left
    out, because recording them slows the host down."""
    import jax

    options = {}
    if hasattr(jax.profiler, "ProfileOptions"):  # absent from older versions
        options["profiler_options"] = jax.profiler.ProfileOptions()
        options["profiler_options"].python_tracer_level = 0
    with jax.profiler.trace(str(folder), **options):
        yield


@contextmanager
def _by_pytorch(path: Path, all_threads: bool, unless: Callable[[], bool]) -> Iterator[None]:
    import torch

    profiler = torch.profiler.profile(record_shapes=True, **(_of_all_threads() if all_threads else {}))
    profiler.start()
    try:
        yield
    finally:
        profiler.stop()
        if not unless():
            path.parent.mkdir(parents=True, exist_ok=True)
            beside = path.with_name(f".{path.name}")  # the file gets its final name when it is complete
            profiler.export_chrome_trace(str(beside))
            beside.replace(path)


def _of_all_threads() -> dict[str, Any]:
    """The option by which PyTorch's profiler records all threads; {} for an older PyTorch, whose profiler records only
    the thread that starts it."""
    from torch._C._profiler import _ExperimentalConfig

    try:
        return {"experimental_config": _ExperimentalConfig(profile_all_threads=True)}
    except TypeError:
        return {}
