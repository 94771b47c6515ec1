"""Keras on PyTorch: one process per GPU, in which Keras's train step calls the model by `DistributedDataParallel`.

As on the other backends, cuDNN chooses convolution algorithms by trial, and float32 matrix products may use TF32.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import keras
import torch
from torch import distributed

from profiles.ground.threads import usable_cpus
from profiles.runs.records import Cell

from ...machine import ranks
from ..strategies import Unsupported
from .backends import Peer


class Through:
    """A model whose calls go through its wrapper, so that gradients are averaged; all else is the model's own."""

    def __init__(self, model: Any, wrapper: Any) -> None:
        self._model, self._wrapper = model, wrapper

    def __call__(self, *args: Any, **more: Any) -> Any:
        return self._wrapper(*args, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


class OneOfSeveral(Peer):
    """One of several processes, with a GPU of its own if there is one."""

    def __init__(self, cell: Cell) -> None:
        self.rank, self.size, self.local_rank = ranks.rank(), cell.processes, ranks.local_rank()
        self.batch = cell.per_rank_batch
        self.on_gpu = torch.cuda.is_available()

    def spread(self, model: Any) -> None:
        if self.size > 1:
            own = [self.local_rank] if self.on_gpu else None
            wrapper = torch.nn.parallel.DistributedDataParallel(model, device_ids=own)
            # The train step must call the wrapper. If it called the model, each process would silently train alone.
            model.train_step = partial(keras.Model.train_step, Through(model, wrapper))

    def barrier(self) -> None:
        if self.size > 1:
            distributed.all_reduce(torch.zeros(1, device="cpu"))  # a collective on the CPU, as in the other strategies

    def synchronise(self, model: Any) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()

    def memory_peak_bytes(self) -> list[int] | None:
        return [int(torch.cuda.max_memory_allocated())] if self.on_gpu else None

    def leave(self) -> None:
        if self.size > 1:
            distributed.destroy_process_group()


def joined(cell: Cell, folder: Path) -> OneOfSeveral:
    """Join the processes through a file in `folder`, which all of them see, whatever launcher started them."""
    if ranks.size() != cell.processes:
        raise Unsupported(f"the cell needs {cell.processes} processes, and the launcher started {ranks.size()}")
    peer = OneOfSeveral(cell)
    if not peer.on_gpu:  # the processes share the cores
        torch.set_num_threads(max(1, usable_cpus() // ranks.local_size()))
    if peer.on_gpu:
        if torch.cuda.device_count() <= peer.local_rank:
            raise Unsupported(f"{cell.ranks} ranks need as many GPUs; PyTorch sees {torch.cuda.device_count()}")
        torch.cuda.set_device(peer.local_rank)
        torch.backends.cudnn.benchmark = True
        torch.set_float32_matmul_precision("high")
    if peer.size > 1:
        by = "cpu:gloo,cuda:nccl" if peer.on_gpu else "gloo"
        meeting = f"file://{folder.resolve() / 'meeting'}"
        distributed.init_process_group(by, init_method=meeting, rank=peer.rank, world_size=peer.size)
    return peer
