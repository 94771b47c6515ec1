"""The GPUs of an Nsight Systems export, and the number under which each process used them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..tables.gathering import Device, multiprocessors
from ..tables.sqlite import Database, is_device

_NUMBERS = "TARGET_INFO_CUDA_DEVICE"


class Devices:
    """The GPUs of a recording.

    `deviceId` is the number that CUDA gives a GPU in its process; TARGET_INFO_CUDA_DEVICE says which GPU of the
    host that is. If processes use one number for several GPUs, or several numbers for one GPU
    (CUDA_VISIBLE_DEVICES), devices get the host's numbers instead.
    """

    def __init__(self, database: Database) -> None:
        self._gpus = _gpus(database)
        known = database.has(_NUMBERS, "gpuId", "cudaId", "pid")
        rows = database.query(f"SELECT pid, cudaId, gpuId FROM {database.stored(_NUMBERS)}") if known else []
        self._of_process = {(pid, cuda): gpu for pid, cuda, gpu in rows if is_device(cuda) and is_device(gpu)}
        pairs = {(cuda, gpu) for (_, cuda), gpu in self._of_process.items()}
        self._by_number = dict(pairs)
        self._clash = not len(pairs) == len(self._by_number) == len(set(self._by_number.values()))

    def renumbered(
        self, pid: NDArray[np.int64], device: NDArray[np.signedinteger[Any]]
    ) -> NDArray[np.signedinteger[Any]]:
        if not self._clash:
            return device
        import pandas as pd

        place, pairs = pd.factorize((pid.astype(np.int64) << 32) + device)  # device: -1 or more
        own = [(pair + 1 >> 32, (pair + 1 & 0xFFFFFFFF) - 1) for pair in pairs.tolist()]
        found: NDArray[np.int32] = np.array([self._of_process.get(one, one[1]) for one in own], np.int32)[place]
        return found

    def number_of(self, gpu: int) -> int:
        """The device number that operations on this GPU have; -1 if no process uses it. `gpu`: the host's number of
        the GPU."""
        if self._clash or not self._by_number:
            return gpu
        return next((cuda for cuda, own in self._by_number.items() if own == gpu), -1)

    @property
    def of_host(self) -> list[int]:
        """The host's numbers of its GPUs, sorted."""
        return sorted(self._gpus)

    def listed(self) -> dict[int, Device]:
        """Each GPU that the file lists, by the device number of its operations."""
        if self._clash or not self._by_number:
            return self._gpus
        return {cuda: self._gpus.get(gpu, Device()) for cuda, gpu in self._by_number.items()}


def _gpus(database: Database) -> dict[int, Device]:
    """Each GPU that the file lists, by the host's number."""
    table = "TARGET_INFO_GPU"
    if not database.has(table, "id"):
        return {}
    names = [c if database.has(table, c) else "''" for c in ("uuid", "busLocation", "name", "smCount")]
    rows = database.query(f"SELECT id, {', '.join(names)} FROM {database.stored(table)} WHERE typeof(id) = 'integer'")
    return {
        number: Device(_uuid(str(uuid or "")), str(bus or ""), str(name or ""), multiprocessors(sms))
        for number, uuid, bus, name, sms in rows
        if is_device(number)
    }


def _uuid(text: str) -> str:
    """The UUID; "" if it is all zeros."""
    return text if text.strip("0-") else ""
