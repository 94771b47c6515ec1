"""What to change in programs of JAX, CUDA and HIP, by what their recordings show; no remedy that one refutes.

JAX's by its documentation of jit, transfers and XLA's GPU flags (docs.jax.dev).
"""

from __future__ import annotations

from ..model.measures import GpuMeasures
from .collectives import summed_as
from .pytorch import SIZES, compiled, in_float32, in_graphs, pageable

_SEVERAL = 3
SCAN = "several steps in one call (jax.lax.scan); a larger batch"
HIDE = "XLA_FLAGS=--xla_gpu_enable_latency_hiding_scheduler=true"


def jax_launches(gpu: GpuMeasures) -> str:
    """XLA's own kernels are there where something is under jax.jit already, if only each operator by itself."""
    jitted = compiled(gpu) and not _by_operator(gpu)
    return f"donate_argnums; {SCAN}" if jitted else f"jax.jit around the whole step with donate_argnums; {SCAN}"


def _by_operator(gpu: GpuMeasures) -> bool:
    """Does the GPU wait for calls of several jitted functions, as where each operator is one?"""
    host = (*gpu.host_while_idle, *(one for gap in gpu.idle_gaps for one in gap.host))
    return len({one["name"] for one in host if one["name"].startswith("PjitFunction(")}) >= _SEVERAL


def jax_python(gpu: GpuMeasures) -> str:
    return jax_launches(gpu) + "; no float(loss) or block_until_ready per step"


def jax_short(gpu: GpuMeasures) -> str:
    return "a larger batch" if compiled(gpu) else "jax.jit around the whole step; a larger batch"


def jax_tensor_cores(gpu: GpuMeasures) -> str:
    if in_float32(gpu):
        return 'jax.config.update("jax_default_matmul_precision", "tensorfloat32"), or bfloat16'
    return SIZES


def jax_all_reduce(gpu: GpuMeasures) -> str:
    half = "" if summed_as(gpu) == "16 bits" else "16-bit gradients; "
    return f"{HIDE}; {half}a larger batch"


def cuda_tensor_cores(gpu: GpuMeasures) -> str:
    if in_float32(gpu):
        return "TF32 or 16-bit numbers in matrix products (cublasSetMathMode)"
    return SIZES


def cuda_launches(gpu: GpuMeasures) -> str:
    return f"launch ahead of the GPU; fewer, larger kernels; {_graph(gpu)}"


def cuda_host(gpu: GpuMeasures) -> str:
    return f"move what the host computes between launches to another thread, or launch ahead of it; {_graph(gpu)}"


def cuda_short(gpu: GpuMeasures) -> str:
    return f"fuse kernels; {_graph(gpu)}; programmatic dependent launch"


def _graph(gpu: GpuMeasures) -> str:
    return "what is launched outside of the CUDA graphs into them" if in_graphs(gpu) else "a CUDA graph of what repeats"


def cuda_ahead(gpu: GpuMeasures) -> str:
    pinned = " from pinned memory (cudaMallocHost)" if pageable(gpu) else ""
    return f"cudaMemcpyAsync{pinned} on a stream of its own, while kernels run"


def cuda_input_ahead(gpu: GpuMeasures) -> str:
    return f"read and make the next input in another thread; {cuda_ahead(gpu)}"


def cuda_copies(gpu: GpuMeasures) -> str:
    return f"{cuda_ahead(gpu)}; keep on the GPU what is needed again; fewer bytes"


def cuda_waits(gpu: GpuMeasures) -> str:
    """By the call in which the host waits longest."""
    call = next((str(one["call"]) for one in gpu.host_waits if one["call"]), "")
    if "emcpy" in call:
        return "cudaMemcpyAsync with pinned memory, and what comes next launched before its end is waited for"
    if call and "DeviceSynchronize" not in call:
        return "launch what comes next before waiting; cudaStreamWaitEvent where it is the GPU that must wait"
    return "launch what comes next before waiting; cudaStreamWaitEvent in place of cudaDeviceSynchronize"
