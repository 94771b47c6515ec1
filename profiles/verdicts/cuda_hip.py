"""The advice for each finding in a program that calls CUDA or HIP itself, less advice that the recording refutes.

Sources: the CUDA runtime API (docs.nvidia.com/cuda/cuda-runtime-api) and the HIP runtime API
(rocm.docs.amd.com/projects/HIP).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..metrics.peaks import lacks_tf32
from ..model.measures import GpuMeasures
from .gpu_facts import SIZES, Words, in_float32, in_graphs, pageable
from .host_idle import mostly_after_waits


@dataclass(frozen=True, slots=True)
class Api:
    """CUDA or HIP: the API's name, the prefix of its calls, and advice that differs between the two APIs.

    pinned: the call that allocates pinned memory. tensor_float: how matrix products in float32 get onto the tensor
    cores. early_launch: how to launch a kernel before the previous one ends, if the API can.
    """

    name: str
    calls: str
    pinned: str
    tensor_float: str
    early_launch: str | None = None

    def changes(self) -> Mapping[str, Words]:
        """Advice by the code of the finding."""
        return {
            "off-tensor-cores": self._tensor_cores,
            "launch-bound": lambda gpu: f"launch ahead of the GPU; fewer, larger kernels; {self._graph(gpu)}",
            "python-in-the-loop": lambda gpu: (
                "if the host computes between launches, move that to another thread, or launch ahead of it"
                + ("" if mostly_after_waits(gpu) else f"; {self._graph(gpu)}")
            ),
            "graphs-updated-every-step": "keep buffers where they are, or make a graph for each set of buffers",
            "short-kernels": lambda gpu: "; ".join(filter(None, ("fuse kernels", self._graph(gpu), self.early_launch))),
            "tiny-batch": "more blocks in each kernel: more independent work in one launch, or long loops split over "
            f"several blocks; or several such kernels at once, on streams of their own; {self.name} graphs make no "
            "kernel larger",
            "input-pipeline-slow": "read and make the next input in another thread while the GPU works",
            "no-prefetch": lambda gpu: f"read and make the next input in another thread; {self._ahead(gpu)}",
            "prefetch-on-host-only": self._ahead,
            "small-copy-before-step": "pass small inputs as arguments of the kernel, or copy them with the others",
            "copies-pageable": f"pinned memory: {self.pinned}, or {self.calls}HostRegister of the memory that you have",
            "copies-synchronous": self._ahead,
            "copies-exposed-although-prefetched": "copy fewer bytes",
            "copies-exposed": lambda gpu: (
                f"{self._ahead(gpu)}; keep data that is needed again on the GPU; copy fewer bytes"
            ),
            "copies-to-host-exposed": lambda gpu: (
                f"{self.calls}MemcpyAsync into pinned memory{self._prefetched(gpu)} on a separate stream, while the "
                "next kernels run; copy fewer bytes"
            ),
            "offloaded-to-host": f"keep on the GPU what returns to it; else {self.calls}MemcpyAsync with pinned memory "
            "on a separate stream, while other kernels run",
            "copies-on-gpu-exposed": "work in place, or swap pointers in place of copying one buffer into another",
            "memory-allocated-in-the-loop": f"use {self.calls}MallocAsync and {self.calls}FreeAsync, or "
            "allocate buffers once and keep them",
            "loss-fetched-every-step": "copy results back less often, and asynchronously",
            "checkpoint-in-the-loop": "save less often; copy the weights into pinned memory, and write them from "
            "another thread",
            "host-synchronises": self._waits,
            "all-reduce-exposed": "run the collective on a separate stream while other kernels run",
            "copies-between-gpus": "compute first the data that other GPUs need (the edges of a domain), and copy "
            "them on a separate stream while the rest is computed; fewer, larger copies",
            "collectives-exposed": "compute first the data that other ranks need, and exchange them on a separate "
            "stream while the rest is computed",
            # RCCL has NCCL's names.
            "collectives-not-fused": "ncclGroupStart and ncclGroupEnd around them, or one call over a larger buffer",
        }

    def _tensor_cores(self, gpu: GpuMeasures) -> str:
        if not in_float32(gpu):
            return SIZES
        return "float16 numbers in matrix products" if lacks_tf32(gpu.name) else self.tensor_float

    def _graph(self, gpu: GpuMeasures) -> str:
        if in_graphs(gpu):
            return f"put the launches outside of the {self.name} graphs into them"
        return f"capture the launches that repeat in a {self.name} graph"

    def _ahead(self, gpu: GpuMeasures) -> str:
        source = f" from pinned memory ({self.pinned})" if pageable(gpu) else ""
        return f"{self.calls}MemcpyAsync{source} on a separate stream, while kernels run"

    def _prefetched(self, gpu: GpuMeasures) -> str:
        managed = "managed" in (gpu.waits_on or ()) and not gpu.copies["d2h"].pageable_share
        return f", or {self.calls}MemPrefetchAsync of managed memory," if managed else ""

    def _waits(self, gpu: GpuMeasures) -> str:
        """Advice on waits of the host for the GPU, by the call with the longest wait."""
        call = next((str(one["call"]) for one in gpu.host_waits if one["call"]), "")
        if "emcpy" in call:
            return (
                f"{self.calls}MemcpyAsync with pinned memory, and launch the next kernels before you wait for its end"
            )
        event = f"launch the next kernels before waiting; {self.calls}StreamWaitEvent"
        if call and "DeviceSynchronize" not in call:
            return f"{event} if the GPU, not the host, must wait"
        return f"{event} in place of {self.calls}DeviceSynchronize"

    def managed(self, *, by_host: bool) -> str:
        """Advice on managed memory whose pages move when they are touched. `by_host`: True if mostly the host touches
        them."""
        calls = self.calls
        # The host reads results page by page, or writes to pages that were prefetched to the GPU.
        ahead = (
            f"{calls}MemPrefetchAsync to {calls}CpuDeviceId of what the host reads next, all at once (or one "
            f"{calls}Memcpy); to the GPU only what the host has finished writing"
            if by_host
            else f"{calls}MemPrefetchAsync of the pages that are needed next, on a separate stream"
        )
        return (
            f"{ahead}; {calls}MemAdvise where both sides read ({calls}MemAdviseSetReadMostly) or one is the usual one "
            f"({calls}MemAdviseSetPreferredLocation); else {calls}Malloc and copies of your own"
        )


CUDA = Api(
    "CUDA",
    "cuda",
    pinned="cudaMallocHost",
    tensor_float="TF32 or 16-bit numbers in matrix products (cublasSetMathMode)",
    early_launch="programmatic dependent launch",
)
# TF32 is NVIDIA's, so only 16-bit numbers are advised.
HIP = Api("HIP", "hip", pinned="hipHostMalloc", tensor_float="16-bit numbers in matrix products")
