"""Programs that XLA has compiled, and in `choices` which kernels it took, kept on disk for the next process.

`ring.init` turns it on where there is a GPU. RINGSCOPE_XLA_CACHE names another directory than ~/.cache/ringscope/xla,
or is `off`. Ranks that start together each compile: on two H200s that took a decoder 64 s to its first step, and more
than 130 s where the second waited for what the first had written.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
from functools import cache
from importlib import metadata
from pathlib import Path

from profiles.ground.files import user_cache

VARIABLE = "RINGSCOPE_XLA_CACHE"
FLAG = "--tf_xla_persistent_cache_directory"


def turn_on() -> Path | None:
    """Name the directory to TensorFlow, which reads its flags when it first looks at devices; None where there is no
    GPU, or the user has turned it off or named a directory already."""
    flags = os.environ.get("TF_XLA_FLAGS", "")
    wanted = os.environ.get(VARIABLE, "")
    if wanted == "off" or is_on() or not (gpu := _gpu()):
        return None
    cache = user_cache()
    if not wanted and cache is None:
        return None
    directory = (Path(wanted) if wanted or cache is None else cache / "xla") / _key(gpu)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:  # a home that cannot be written to: compile each time
        return None
    os.environ["TF_XLA_FLAGS"] = f"{flags} {FLAG}={directory}".strip()
    return directory


def is_on() -> bool:
    """True if TensorFlow has been told a directory, by `turn_on` or by the user."""
    return FLAG in os.environ.get("TF_XLA_FLAGS", "")


def has_gpu() -> bool:
    """True if the driver shows one; it starts no device."""
    return bool(_gpu())


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


@cache
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
