"""Keep on disk for the next process the programs that XLA has compiled and, in the folder `choices`, the kernels that
it chose.

`ring.init` turns the cache on if there is a GPU. RINGSCOPE_XLA_CACHE names another directory than
~/.cache/ringscope/xla, or is `off`. Ranks that start together compile at the same time: on two H200s a decoder's first
step came after 64 s. It came after more than 130 s if the second rank waited for the first one's program.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import re
from functools import cache
from importlib import metadata
from pathlib import Path

from profiles.ground.files import user_cache

from . import seams

VARIABLE = "RINGSCOPE_XLA_CACHE"
FLAG = "--tf_xla_persistent_cache_directory"
# ERRATA and ASKED also decide which kernels are allowed. TensorFlow and XLA do not compare these variables when they
# find a cached program or choice, so they are part of the cache's key.
ERRATA = "CUDNN_ERRATA_JSON_FILE"  # names a file with cuDNN engines that must not be used
MAJOR = 75  # CUDA's number of this attribute of a device (CUdevice_attribute)
ASKED = ("TF_ENABLE_WINOGRAD_NONFUSED", "TF_FP16_CONV_USE_FP32_COMPUTE", "TF_USE_DEFAULT_CONV_ALGO")
DETERMINISTIC = "-deterministic"


def turn_on() -> Path | None:
    """Set the cache directory for TensorFlow, which reads its flags when it first looks at devices. Returns the
    directory; None if there is no GPU, or if the user has turned the cache off or set a directory already."""
    flags = os.environ.get("TF_XLA_FLAGS", "")
    wanted = os.environ.get(VARIABLE, "")
    if wanted == "off" or folder() or not (gpu := _gpu()):
        return None
    cache = user_cache()
    if not wanted and cache is None:
        return None
    name = _key(gpu) + (DETERMINISTIC if _is_deterministic() else "")
    directory = (Path(wanted) if wanted or cache is None else cache / "xla") / name
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:  # the home directory cannot be written, so XLA compiles each time
        return None
    os.environ["TF_XLA_FLAGS"] = f"{flags} {FLAG}={directory}".strip()
    return directory


def folder() -> str | None:
    """The directory that `turn_on` or the user has named to TensorFlow, by TF_XLA_FLAGS; None if none is named."""
    named = re.search(rf"{FLAG}=(\S+)", os.environ.get("TF_XLA_FLAGS", ""))
    return named and named[1]


def may_lack_determinism() -> bool:
    """True if determinism was enabled only after `turn_on` had chosen the directory for programs that need not be
    deterministic. TensorFlow and XLA look up programs and choices by the computation alone, so they would use programs
    that are not deterministic."""
    return bool(re.search(r"/[0-9a-f]{16}$", folder() or "")) and _is_deterministic()


def _is_deterministic() -> bool:
    if not seams.has("a separate XLA cache for deterministic training"):
        return False
    from tensorflow.python.framework.config import is_op_determinism_enabled

    return bool(is_op_determinism_enabled())


def capability() -> int:
    """The major number of the first GPU's compute capability; 0 if the driver shows no GPU. This initialises no device
    in TensorFlow."""
    return int(_gpu().get("capability", 0))


def gpu_name() -> str | None:
    """The name of the first GPU that the driver shows this process; None if it shows none."""
    return str(_gpu()["gpu"]) if _gpu() else None


def _key(gpu: dict[str, str | int]) -> str:
    """A digest of everything that a compiled program depends on: GPU, driver, libraries, compiler options and allowed
    kernels."""
    packages = ("tensorflow", "nvidia-cudnn-cu12", "nvidia-cublas-cu12")
    facts = gpu | {name: _version(name) for name in packages} | {"flags": os.environ.get("XLA_FLAGS", "")}
    facts |= {name: os.environ[name] for name in ASKED if name in os.environ}
    if errata := os.environ.get(ERRATA):
        facts[ERRATA] = _digest(Path(errata))
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def _digest(file: Path) -> str:
    """A digest of the file's contents; "" if the file cannot be read, because then cuDNN excludes no engine."""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return ""


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


@cache
def _gpu() -> dict[str, str | int]:
    """The first GPU's name and compute capability, and the versions of driver and cuDNN; empty if there is no GPU."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return {}
    device, version, major = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    name = ctypes.create_string_buffer(256)
    if cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0):
        return {}
    cuda.cuDeviceGetName(name, len(name), device)
    cuda.cuDeviceGetAttribute(ctypes.byref(major), MAJOR, device)
    cuda.cuDriverGetVersion(ctypes.byref(version))
    driver = Path("/proc/driver/nvidia/version")
    return {
        "gpu": name.value.decode(),
        "capability": major.value,
        "cuda": version.value,
        "driver": driver.read_text().splitlines()[0] if driver.exists() else "",
        "cudnn": _cudnn(),
    }


def _cudnn() -> int:
    try:
        return int(ctypes.CDLL("libcudnn.so.9").cudnnGetVersion())
    except (OSError, AttributeError):
        return 0
