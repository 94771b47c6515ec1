"""Programs that XLA has compiled, kept on disk for the next process and for the other ranks of this host.

`ring.init` turns it on where there is a GPU. RINGSCOPE_XLA_CACHE names another directory than ~/.cache/ringscope/xla,
or is `off`.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

VARIABLE = "RINGSCOPE_XLA_CACHE"
FLAG = "--tf_xla_persistent_cache_directory"
ASK_EVERY_S = 0.05


def turn_on() -> Path | None:
    """Name the directory to TensorFlow, which reads its flags when it first looks at devices; None where there is no
    GPU, or the user has turned it off or named a directory already."""
    flags = os.environ.get("TF_XLA_FLAGS", "")
    wanted = os.environ.get(VARIABLE, "")
    if wanted == "off" or FLAG in flags or not (gpu := _gpu()):
        return None
    root = Path(wanted) if wanted else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "ringscope/xla"
    directory = root / _key(gpu)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:  # a home that cannot be written to: compile each time
        return None
    os.environ["TF_XLA_FLAGS"] = f"{flags} {FLAG}={directory}".strip()
    return directory


def _key(gpu: dict[str, str | int]) -> str:
    """What a compiled program holds for: this GPU, driver, libraries and compiler options."""
    packages = ("tensorflow", "nvidia-cudnn-cu12", "nvidia-cublas-cu12")
    facts = gpu | {name: _version(name) for name in packages} | {"flags": os.environ.get("XLA_FLAGS", "")}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _gpu() -> dict[str, str | int]:
    """The first GPU's name, and the versions of the driver and cuDNN; nothing where there is none."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return {}
    device, version, name = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(256)
    if cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0):
        return {}
    cuda.cuDeviceGetName(name, len(name), device)
    cuda.cuDriverGetVersion(ctypes.byref(version))
    driver = Path("/proc/driver/nvidia/version")
    return {
        "gpu": name.value.decode(),
        "cuda": version.value,
        "driver": driver.read_text().splitlines()[0] if driver.exists() else "",
        "cudnn": _cudnn(),
    }


def _cudnn() -> int:
    try:
        return int(ctypes.CDLL("libcudnn.so.9").cudnnGetVersion())
    except (OSError, AttributeError):
        return 0


class Place(NamedTuple):
    """Calls of a graph, each of which returns a number that nobody reads."""

    before: Callable[[], Any]
    after: Callable[[], Any]


class Order:
    """The order in which the ranks of a host compile one program: the first alone, the others once it has, from disk.

    token: the same on all ranks, another for each program. Where nothing is kept on disk nobody waits.
    """

    def __init__(self, token: str, local_rank: int, local_size: int) -> None:
        self._done = Path(tempfile.gettempdir()) / f"ringscope-{token}-{socket.gethostname()}"
        self._first = local_rank == 0
        self._open = local_size == 1 or FLAG not in os.environ.get("TF_XLA_FLAGS", "")

    @contextmanager
    def place(self) -> Iterator[Place | None]:
        """What the first step's graph is to call around the program; None where nobody waits any more."""
        try:
            yield None if self._open else Place(self._wait, self._tell)
        finally:
            if self._first and not self._open:
                self._tell()  # whatever became of it
            self._open = True

    def _wait(self) -> Any:
        while not self._first and not self._done.exists():
            time.sleep(ASK_EVERY_S)
        return np.int64(0)

    def _tell(self) -> Any:
        if self._first:
            self._done.touch()
        return np.int64(0)
