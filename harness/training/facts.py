"""Facts that a rank records after training: its last logs, its weights, its memory, its GPU."""

from __future__ import annotations

import ctypes
import hashlib
import math
import sys
import uuid
from pathlib import Path
from typing import Any

from profiles.ground.errors import RingscopeError


def closing(model: Any, logs: Any) -> dict[str, Any]:
    """The last logs, a SHA-256 of the trainable weights (equal on ranks that trained together), memory, and
    versions."""
    import horovod
    import keras
    import tensorflow as tf

    return of_model(model, logs) | {
        "trainable_bytes": _bytes_of(model.trainable_variables),
        "memory_peak_bytes": memory_peak_bytes(),
        "optimizer_bytes": _bytes_of(model.optimizer.variables),
        "versions": {"tensorflow": tf.__version__, "keras": keras.__version__, "horovod": horovod.__version__},
    }


def of_model(model: Any, logs: Any) -> dict[str, Any]:
    """The facts that any backend of Keras can give."""
    import keras

    digest = hashlib.sha256()
    for weight in model.trainable_weights:
        digest.update(keras.ops.convert_to_numpy(weight).tobytes())
    return {
        "logs": {name: float(value) for name, value in logs.items()},
        "weights_sha256": digest.hexdigest(),
        "parameters": int(model.count_params()),
        "layers": sum(1 for _ in model._flatten_layers(include_self=False, recursive=True)),
        "host_memory_peak_bytes": host_memory_peak_bytes(),
    }


def check_on_gpu(model: Any) -> None:
    """Raise RingscopeError if this process has a GPU, but a trainable weight is not on it."""
    for variable in model.trainable_variables:
        if "GPU" not in (device := variable.value.device):
            raise RingscopeError(
                f"{variable.path} is placed on {device}, not on a GPU: its steps would run on"
                " the CPU; see ringscope doctor"
            )


def _bytes_of(variables: Any) -> int:
    import tensorflow as tf

    return sum(math.prod(v.shape) * tf.as_dtype(v.dtype).size for v in variables)


def memory_built_bytes() -> int:
    """Bytes that this process holds on its first GPU, or in host memory without a GPU. Call it when the model is
    built."""
    import tensorflow as tf

    if tf.config.get_visible_devices("GPU"):
        return int(tf.config.experimental.get_memory_info("GPU:0")["current"])
    return int(Path("/proc/self/status").read_text().partition("VmRSS:")[2].split()[0]) * 1024


def memory_peak_bytes() -> list[int] | None:
    """The peak memory that TensorFlow's allocator has handed out on each GPU of this process so far; None without
    GPUs."""
    import tensorflow as tf

    gpus = range(len(tf.config.get_visible_devices("GPU")))  # other tasks of a tf.distribute cluster have GPUs too
    return [int(tf.config.experimental.get_memory_info(f"GPU:{number}")["peak"]) for number in gpus] or None


def host_memory_peak_bytes() -> int:
    """The peak host memory of this process (VmHWM), in bytes."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def check_seen(framework: str, gpus: object) -> None:
    """Raise RingscopeError if the driver shows this process a GPU, but the framework has not found it. gpus: what the
    framework has found; false if nothing."""
    if not gpus and gpu_uuid(0) is not None:
        raise unseen(framework)


def unseen(framework: str) -> RingscopeError:
    """The error that a framework sees none of this host's GPUs."""
    return RingscopeError(
        f"{framework} sees no GPU in {sys.prefix}, and would train on the CPU: install its CUDA build there, or "
        "set CUDA_VISIBLE_DEVICES= to have all strategies train on the CPU"
    )


def gpu_uuid(ordinal: int) -> str | None:
    """The UUID of a GPU as nvidia-smi prints it; None without a driver. ordinal: among the GPUs that this process
    sees."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    count, device, raw = ctypes.c_int(), ctypes.c_int(), (ctypes.c_ubyte * 16)()
    cuda.cuInit(0)  # a framework that is built for the CPU has not called it
    cuda.cuDeviceGetCount(ctypes.byref(count))
    if cuda.cuDeviceGet(ctypes.byref(device), min(ordinal, count.value - 1)):
        return None
    if cuda.cuDeviceGetUuid(raw, device):
        return None
    return f"GPU-{uuid.UUID(bytes=bytes(raw))}"
