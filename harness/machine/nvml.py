"""GPUs, their links, and the driver, as NVIDIA's management library (NVML) reports them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def _library() -> Iterator[Any]:
    """The package pynvml, with NVML initialised. Raises OSError with the reason if NVML does not answer."""
    try:
        import pynvml
    except ImportError:
        raise OSError("the package nvidia-ml-py is not installed") from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:  # there is no driver, or it does not answer
        raise OSError(f"no NVIDIA driver: {error}") from None
    try:
        yield pynvml
    except pynvml.NVMLError as error:
        raise OSError(f"the NVIDIA driver does not answer: {error}") from None
    finally:
        pynvml.nvmlShutdown()


def gpu_list() -> tuple[list[dict[str, Any]], str | None]:
    """Every GPU of this host in the order of NVML, and the reason if there is none."""
    try:
        with _library() as nvml:
            gpus = [_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
    except OSError as error:
        return [], str(error)
    return gpus, None if gpus else "the NVIDIA driver reports no GPU"


def _gpu(nvml: Any, index: int) -> dict[str, Any]:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def ask(function: str, *arguments: Any) -> Any:
        """NVML's answer; None if this GPU or driver does not support the query."""
        try:
            return getattr(nvml, function)(handle, *arguments)
        except (nvml.NVMLError, AttributeError):
            return None

    pci, memory, capability = ask("nvmlDeviceGetPciInfo"), ask("nvmlDeviceGetMemoryInfo"), None
    if pair := ask("nvmlDeviceGetCudaComputeCapability"):
        capability = f"{pair[0]}.{pair[1]}"
    return {
        "index": index,
        "name": ask("nvmlDeviceGetName"),
        "uuid": ask("nvmlDeviceGetUUID"),
        "bus_id": getattr(pci, "busId", None),
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
    """The link between each pair of GPUs, named as by `nvidia-smi topo -m`: NV<links>, PIX, PXB, PHB, NODE, SYS."""
    try:
        with _library() as nvml:
            handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
            return [[_join(nvml, a, b) if a is not b else "X" for b in handles] for a in handles]
    except OSError:
        return None


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
    """The number of NVLinks from `a` that end at `b`. With an NVSwitch links end at no GPU, so all active links of `a`
    count."""
    target = nvml.nvmlDeviceGetPciInfo(b).busId
    direct = 0
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            direct += int(nvml.nvmlDeviceGetNvLinkRemotePciInfo(a, link).busId == target)
        except nvml.NVMLError:
            continue
    return direct or _active_nvlinks(nvml, a)


def driver_versions() -> dict[str, str | None]:
    """`driver`: the version of the kernel driver; `cuda_driver`: the newest CUDA version that it supports."""
    try:
        with _library() as nvml:
            version, driver = int(nvml.nvmlSystemGetCudaDriverVersion()), nvml.nvmlSystemGetDriverVersion()
    except OSError:  # gpu_list gives the reason
        return {"driver": None, "cuda_driver": None}
    return {"driver": driver, "cuda_driver": f"{version // 1000}.{version % 1000 // 10}"}


def visible_gpus() -> list[dict[str, Any]]:
    """The GPUs of this host that CUDA_VISIBLE_DEVICES makes visible to ranks."""
    gpus, _ = gpu_list()
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is None:
        return gpus
    wanted = [part.strip() for part in allowed.split(",") if part.strip()]
    return [gpu for gpu in gpus if str(gpu["index"]) in wanted or any(str(gpu["uuid"]).startswith(w) for w in wanted)]
