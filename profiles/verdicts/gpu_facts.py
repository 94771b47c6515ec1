"""Facts of a GPU on which rules and the advice for every framework depend; most of them are told by kernels' names."""

from __future__ import annotations

import re
from collections.abc import Callable

from ..metrics.peaks import lacks_tf32
from ..model.measures import GpuMeasures

Words = str | Callable[[GpuMeasures], str]
"""Advice, or a function that makes it of a GPU's measures."""
SIZES = "batch, channels, units and classes in multiples of 8 for 16-bit numbers, of 16 for 8-bit ones"
_CONVOLUTIONS = re.compile(r"(?i)conv(?!er(?:sion|t))|[wd]grad|fprop|winograd")
# CUTLASS's kernel names give the alignment in numbers per load. A 16-byte load holds 8 numbers of 16 bits or 4 of TF32
# (s1688 without f16 in the name), so align4 is the best alignment for TF32, but not for 16 bits.
_MISALIGNED = re.compile(r"align[12](?![0-9])")
# Names of matrix products and convolutions in float32 that run on CUDA cores, on GPUs that could run them in TF32:
# CUTLASS's cutlass_80_simt_sgemm_..., cuBLAS's ampere_sgemm_128x64_tn and sm80_xmma_gemm_..._ffma_..., cuDNN's
# cudnn_ampere_scudnn_...
_CUDA_CORES = re.compile(r"(?:^|_)(?:simt_(?![dz])|ampere_s(?:gemm|cudnn)_|sm(?:[89]|1[0-9])[0-9]_xmma_\w*_ffma_)")
# The same names on Volta and Turing, whose tensor cores take float16.
_VOLTAS_CUDA_CORES = re.compile(r"(?:^|_)volta_s(?:gemm|cudnn)_")
_FOURS, _SIXTEEN_BITS = re.compile(r"align4(?![0-9])"), re.compile(r"f16|[hs]884|16816")


def recurrent(gpu: GpuMeasures) -> bool:
    """True if cuDNN runs recurrent cells."""
    return bool(gpu.kernels.groups.get("rnn_cell", {}).get("count"))


def convolves(gpu: GpuMeasures) -> bool:
    """True if convolutions run, as in an image model."""
    return any(_CONVOLUTIONS.search(kernel.name) for kernel in gpu.kernels.top)


def in_graphs(gpu: GpuMeasures) -> bool:
    return bool(gpu.kernels.graph_launches or gpu.kernels.graph_nodes)


def compiled(gpu: GpuMeasures) -> bool:
    """True if torch.compile or XLA made any of the kernels."""
    return bool(gpu.kernels.groups.get("fused", {}).get("count"))


def pageable(gpu: GpuMeasures) -> bool:
    """True if batches are copied from pageable memory, or if the recording does not name the kind of memory."""
    share = gpu.copies["h2d"].pageable_share
    return share is None or share >= 0.5


def in_float32(gpu: GpuMeasures) -> bool:
    """True if the longest matrix products run in float32 and not on the tensor cores."""
    found = (misaligned(kernel.name, gpu.name) for kernel in gpu.kernels.top)
    return on_cuda_cores(next(filter(None, found), ""), gpu.name)


def misaligned(kernel: str, gpu_name: str | None) -> str | None:
    """The part of a kernel's name that shows a bad alignment or no tensor cores (a template argument in CUTLASS);
    None if no part does."""
    return next((word for word in re.findall(r"[\w:]+", kernel) if _misaligned(word, gpu_name)), None)


def on_cuda_cores(word: str, gpu_name: str | None) -> bool:
    """True if this part of a kernel's name tells a matrix product in float32 on CUDA cores."""
    return bool(_CUDA_CORES.search(word) or (lacks_tf32(gpu_name) and _VOLTAS_CUDA_CORES.search(word)))


def _misaligned(word: str, gpu_name: str | None) -> bool:
    if _MISALIGNED.search(word) or on_cuda_cores(word, gpu_name):
        return True
    return any(_FOURS.search(name) and _SIXTEEN_BITS.search(name) for name in word.split(":"))
