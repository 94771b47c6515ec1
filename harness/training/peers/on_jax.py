"""Keras on JAX: one process over all GPUs of the cell, `keras.distribution.DataParallel`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from profiles.runs.records import Cell

from ..strategies import Unsupported

# Of a GPU's memory, as much as TensorFlow takes; JAX's own default is 0.75.
os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.9")

import jax
import keras


class OneProcess:
    """All devices of the cell, in one process."""

    rank = local_rank = 0
    size = 1

    def __init__(self, cell: Cell) -> None:
        self.batch = cell.per_rank_batch * cell.ranks
        self._devices = jax.devices()[: cell.ranks]
        self.on_gpu = self._devices[0].platform == "gpu"

    def spread(self, model: Any) -> None:
        """Nothing is left to do: the distribution was there before the model."""

    def barrier(self) -> None:
        """There is no other process."""

    def synchronise(self, model: Any) -> None:
        jax.block_until_ready([variable.value for variable in (*model.variables, *model.optimizer.variables)])

    def memory_peak_bytes(self) -> list[int] | None:
        told = [device.memory_stats() for device in self._devices if self.on_gpu]
        return [int(one["peak_bytes_in_use"]) for one in told if one] or None

    def leave(self) -> None:
        """There is no other process."""


def joined(cell: Cell, folder: Path) -> OneProcess:
    """Without GPUs the devices are as many parts of the CPU."""
    jax.config.update("jax_num_cpu_devices", cell.ranks)
    if len(jax.devices()) < cell.ranks:
        raise Unsupported(f"{cell.ranks} ranks need a GPU each, and JAX sees {len(jax.devices())}")
    if cell.ranks > 1:
        devices = keras.distribution.list_devices()[: cell.ranks]
        keras.distribution.set_distribution(keras.distribution.DataParallel(devices=devices))
    return OneProcess(cell)
