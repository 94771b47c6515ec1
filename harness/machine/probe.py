"""`python -m harness.machine.probe`: the versions and builds of TensorFlow, Horovod, cuDNN and NCCL, as a line of JSON.

A separate process, so that no other has to import TensorFlow or load CUDA; it allocates nothing on a GPU.
"""

from __future__ import annotations

import ctypes
import glob
import json
import os
import sys
from typing import Any

HOROVOD_FEATURES = ("mpi_built", "gloo_built", "nccl_built", "cuda_built", "rocm_built", "ccl_built", "ddl_built")


def main() -> None:
    reasons: dict[str, str] = {}
    answer: dict[str, Any] = {}
    for name, ask in (
        ("tensorflow", _tensorflow),
        ("horovod", _horovod),
        ("cuda_runtime", _cuda_runtime),
        ("cudnn", _cudnn),
        ("nccl", _nccl),
        ("seams", _seams),
    ):
        try:
            answer[name] = ask()
        except Exception as error:  # a broken library is a result here; the other libraries are still asked
            answer[name] = None
            reasons[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    print(json.dumps(answer | {"reasons": reasons}))


def _tensorflow() -> dict[str, Any]:
    import tensorflow as tf

    build = tf.sysconfig.get_build_info()
    return {
        "version": tf.__version__,
        "cuda_build": bool(build.get("is_cuda_build")),
        "built_for_cuda": build.get("cuda_version"),
        "built_for_cudnn": build.get("cudnn_version"),
        # Listing initialises the driver, but makes no context. 0 means that TensorFlow would silently use the CPU.
        "gpus": len(tf.config.list_physical_devices("GPU")),
    }


def _horovod() -> dict[str, Any]:
    import horovod
    import horovod.tensorflow as hvd

    features = {name: bool(getattr(hvd, name)()) for name in HOROVOD_FEATURES}
    return {"version": horovod.__version__, **features, "mpi_library": _mpi_library()}


def _seams() -> dict[str, Any]:
    """The number of private names of Keras, TensorFlow and Horovod that ring uses, and the missing ones."""
    from ringscope.ring.internals import seams, versions

    missing = [
        {"kind": one.seam.kind, "line": one.line, "in_last": one.package.is_last} for one in seams.look(load=True)
    ]
    return {"names": seams.count(), "missing": missing, "outside": versions.outside()}


def _mpi_library() -> str | None:
    with open("/proc/self/maps") as maps:
        path = next((line.split(maxsplit=5)[-1].strip() for line in maps if "/libmpi.so" in line), None)
    if path is None:
        return None
    # bytes, more than any MPI_MAX_LIBRARY_VERSION_STRING
    text, length = ctypes.create_string_buffer(8192), ctypes.c_int()
    ctypes.CDLL(path).MPI_Get_library_version(text, ctypes.byref(length))
    return text.value.decode(errors="replace").partition(",")[0].strip()


def _cuda_runtime() -> str:
    number = _call("cudart", "cudaRuntimeGetVersion")
    return f"{number // 1000}.{number % 1000 // 10}"


def _nccl() -> str:
    number = _call("nccl", "ncclGetVersion")
    # NCCL up to 2.8: 2804 is 2.8.4; since 2.9: 22602 is 2.26.2 (nccl.h, NCCL_VERSION)
    major, rest = divmod(number, 10000) if number >= 10000 else divmod(number, 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


def _cudnn() -> str:
    function = _library("cudnn").cudnnGetVersion
    function.restype = ctypes.c_size_t
    number = int(function())
    # cuDNN 9: 90501 is 9.5.1; up to cuDNN 8: 8907 is 8.9.7
    major, rest = divmod(number, 10000) if number >= 90000 else divmod(number, 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


def _call(library: str, function: str) -> int:
    number = ctypes.c_int()
    if status := getattr(_library(library), function)(ctypes.byref(number)):
        raise OSError(f"{function} failed with status {status}")
    return number.value


def _library(name: str) -> ctypes.CDLL:
    """The newest lib<name>.so.*: where the loader finds it, else in NVIDIA's Python packages, else in CUDA's folder.
    Raises OSError."""
    versions = ("9", "8") if name == "cudnn" else ("13", "12", "11.0", "2")
    for version in versions:
        try:
            return ctypes.CDLL(f"lib{name}.so.{version}")
        except OSError:
            continue
    places = [os.path.join(folder, "nvidia", "*", "lib") for folder in sys.path] + ["/usr/local/cuda*/lib64"]
    for place in places:
        for path in sorted(glob.glob(os.path.join(place, f"lib{name}.so.*")), reverse=True):
            try:
                return ctypes.CDLL(path)
            except OSError:
                continue
    raise OSError(f"lib{name} is not found")


if __name__ == "__main__":
    main()
