"""Train the grid's Keras models on other backends than TensorFlow, by Keras's own `model.fit`: `keras-jax`,
`keras-torch`.

A module per backend provides a `Peer`; the common code is here and in fitted.py. `train` loads the backend, and nothing
imports Keras before that. The timed window and the samples are the same as for every other strategy.
"""

from __future__ import annotations

import importlib
import os
import socket
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from profiles.runs.rank_records import RankRecord
from profiles.runs.records import Cell

from .. import facts
from ..feeds import make_source
from ..models import of_cell
from ..strategies import Unsupported


class Peer:
    """One process of a training on another backend, as it is if there is no other process. batch: its samples per
    step."""

    rank: int
    size: int
    local_rank: int
    on_gpu: bool
    batch: int

    def spread(self, model: Any) -> None:
        """Make the `fit` of a compiled model train together with the other processes."""

    def barrier(self) -> None:
        """Wait until all processes are here."""

    def synchronise(self, model: Any) -> None:
        """Wait until the devices have finished all launched work."""
        raise NotImplementedError

    def memory_peak_bytes(self) -> list[int] | None:
        """The peak memory that the backend's allocator has handed out on each GPU of this process; None without
        GPUs."""
        raise NotImplementedError

    def leave(self) -> None:
        """Part from the other processes."""


class WithoutTensorFlow(PathFinder):
    """An import hook that hides TensorFlow, as if it were not installed. Keras imports TensorFlow on any backend, for
    its random seed. TensorFlow brings stub functions with cuBLAS's names, and later calls by JAX would reach these
    stubs."""

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> Any:
        return None if name == "tensorflow" else super().find_spec(name, path, target)


def use(backend: str) -> None:
    """Choose the backend of Keras and hide TensorFlow; call it before Keras is imported."""
    sys.meta_path[:] = [WithoutTensorFlow if finder is PathFinder else finder for finder in sys.meta_path]
    os.environ["KERAS_BACKEND"] = backend


def train(cell: Cell, folder: Path, progress: Any) -> RankRecord:
    """Train a cell as this process. folder: the launch's folder, through which its processes find each other. Raises
    Unsupported if the backend is not installed, RingscopeError if it does not see the GPUs."""
    backend = cell.spread.backend
    progress.phase("import")
    use(backend)
    try:
        module = importlib.import_module(f".on_{backend}", __package__)
        from . import fitted
    except ModuleNotFoundError as error:
        raise Unsupported(
            f"{error.name} is not installed in {sys.prefix}; pip install keras {backend} there, or name another "
            f"Python, which has both, in RINGSCOPE_{backend.upper()}_PYTHON"
        ) from error
    progress.phase("connect")
    peer: Peer = module.joined(cell, folder)
    facts.check_seen(backend, peer.on_gpu)
    progress.phase("build")
    model = of_cell(cell, jit_compile=cell.step == "compiled")
    peer.spread(model)
    source = make_source(cell, peer.batch, rank=peer.rank, size=peer.size, threads=1)
    batches = fitted.Batches(source.arrays())
    fitted.fit(model, batches, cell.warmup, fitted.Reports(progress.phase("warm-up", cell.warmup)))

    def all_idle() -> None:
        peer.synchronise(model)
        peer.barrier()

    timed = fitted.Timed(progress.phase("train", cell.steps), cell.steps, batches, all_idle, peer.synchronise)
    fitted.fit(model, batches, cell.steps, timed)
    progress.phase("finish")
    window = timed.window()
    record = RankRecord(
        rank=peer.rank,
        size=peer.size,
        local_rank=peer.local_rank,
        host=socket.gethostname(),
        device=facts.gpu_uuid(peer.local_rank) if peer.on_gpu else None,
        window_start_ns=window.start_ns,
        window_end_ns=window.end_ns,
        samples=peer.batch * len(window.step_ns),
        step_ns=window.step_ns,
        input_wait_ns=window.input_wait_ns,
        extra=facts.of_model(model, timed.logs)
        | {"memory_peak_bytes": peer.memory_peak_bytes(), "versions": fitted.versions(backend)},
    )
    peer.leave()
    return record
