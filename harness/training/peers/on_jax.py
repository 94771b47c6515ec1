"""Keras on JAX: one process drives all GPUs of the cell by `keras.distribution.DataParallel`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from profiles.runs.records import Cell

from ..strategies import Unsupported
from .backends import Peer

# The share of a GPU's memory that TensorFlow would take, where JAX's default is 0.75.
os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.9")

import jax
import keras


class OneProcess(Peer):
    """One process with all devices of the cell. Their distribution is set before the model is built."""

    rank = local_rank = 0
    size = 1

    def __init__(self, cell: Cell) -> None:
        self.batch = cell.per_rank_batch * cell.ranks
        self._devices = jax.devices()[: cell.ranks]
        self.on_gpu = self._devices[0].platform == "gpu"

    def synchronise(self, model: Any) -> None:
        jax.block_until_ready([variable.value for variable in (*model.variables, *model.optimizer.variables)])

    def memory_peak_bytes(self) -> list[int] | None:
        told = [device.memory_stats() for device in self._devices if self.on_gpu]
        return [int(one["peak_bytes_in_use"]) for one in told if one] or None


def joined(cell: Cell, folder: Path) -> OneProcess:
    """Take the cell's GPUs, or as many logical CPU devices, and spread the batch over them. Raises Unsupported."""
    jax.config.update("jax_num_cpu_devices", cell.ranks)
    if len(jax.devices()) < cell.ranks:
        raise Unsupported(f"{cell.ranks} ranks need {cell.ranks} GPUs, and JAX sees {len(jax.devices())}")
    if cell.ranks > 1:
        devices = keras.distribution.list_devices()[: cell.ranks]
        keras.distribution.set_distribution(keras.distribution.DataParallel(devices=devices))
    return OneProcess(cell)
