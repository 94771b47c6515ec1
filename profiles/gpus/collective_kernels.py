"""Which kernels exchange data with other GPUs: the one place that knows them by name.

A name tells it by the function alone, never by template arguments or parameters: `reduce_kernel<..., AllReduceOp>` sums
on its own GPU. What merely sounds like an exchange and stands in no row below is left to compute, and counted
(`sounds_like_one`).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

# Kinds of collectives, by words in the name of a kernel or range, without case and underscores: the first that fits.
KINDS: Final = {
    "all_reduce": r"allreduce",
    "reduce_scatter": r"reducescatter",
    "all_gather": r"allgather",
    "all_to_all": r"alltoall",
    "send_recv": r"send|recv",
    "broadcast": r"broadcast|bcast",
    "reduce": r"reduce",
    "other": r"",  # one kernel that stands for any
}
_WORDS: Final = r"(?:all_?reduce|reduce_?scatter|all_?gather|all_?to_?all)"
# How an exchange goes about it. No kernel that works on one GPU alone is called so and after a collective.
_WAYS: Final = (
    r"(?:one_?shot|two_?shot|[12]_?stage|multimem|nvls|lamport|symm(?:_?mem|etric)|mnnvl|cross_?device|peer|p2p"
    r"|(?<![a-z])(?:push|pull|persistent)(?![a-z])|(?<![a-z])ring_?(?=all|reduce)|double_?tree|cube_?mesh|int(?:er|ra)_?node|prototype"
    r"|all_?reduce_?fusion|fused_?all_?reduce)"
)
_COLLECTIVE: Final = r"all_?(?:reduce|gather|to_?all)\w*|reduce_?scatter\w*|broadcast\w*|send\w*|recv\w*"
# Each family: the function with its scopes, wholly and without case; the kind where the words do not tell it.
FAMILIES: Final[tuple[tuple[str, str | None], ...]] = (
    # NVIDIA/nccl src/device (ncclKernel_, ncclDevKernel_, ncclSymkDevKernel_); ROCm/rccl has the same names
    (r"(?:nccl|rccl).*", None),
    # ROCm/rccl src/include/msccl/msccl_kernel.h
    (r"mscclKernel\w*", None),
    # microsoft/mscclpp src/ext/collectives (allreducePacket, allgatherFullmesh2), src/core/executor; its older tests'
    # allreduce7, allgather8 (test/mscclpp-test)
    (rf"mscclpp::(?:\w+::)*(?:{_COLLECTIVE}|executionKernel\w*)", None),
    (r"all(?:reduce|gather|toall)\d+", None),
    # pytorch/pytorch torch/csrc/distributed/c10d/symm_mem/CUDASymmetricMemoryOps.cu (multimem_all_reduce_kernel,
    # one_shot_all_reduce_kernel, two_shot_all_reduce_kernel_inplace), intra_node_comm.cu (oneShotAllReduceKernel,
    # hybridCubeMeshAllReduceKernel); pytorch/FBGEMM experimental/gen_ai/src/comm/car.cu (one_shot_all_reduce);
    # NVIDIA/TensorRT-LLM cpp/tensorrt_llm/kernels/customAllReduceKernels.cu (lamport_style_one_shot_all_reduce_norm_
    # kernel), customLowPrecisionAllReduceKernels.cu, communicationKernels (twoshot_allreduce_kernel,
    # moefinalize_allreduce_fusion_kernel_oneshot_lamport); flashinfer-ai/flashinfer include/flashinfer/comm
    # (allreduce_fusion_kernel_twoshot_sync, oneshotAllreduceFusionKernel); ROCm/aiter csrc/include
    # (allreduce_fusion_kernel_1stage, reduce_scatter_cross_device_store); mk1-project/quickreduce
    # (allreduce_prototype_twoshot); Triton: meta-pytorch/kraken (one_shot_all_reduce_bias_kernel), ROCm/iris iris/ccl
    # (persistent_all_reduce_two_shot), ByteDance-Seed/Triton-distributed (allreduce_one_shot_push_intra_node_kernel)
    (rf"(?=.*{_WAYS})(?:.*::)?[^:]*{_WORDS}[^:]*", None),
    # Triton kernels that are called no more than that; of all-reduce only with its way, as others sum all of a tensor
    (r"_*(?:all_?gather|reduce_?scatter|all_?to_?all_?v?)(?:_?kernel)?", None),
    # pytorch/pytorch torch/csrc/distributed/c10d/symm_mem/CUDASymmetricMemory.cu
    (r"c10d::symmetric_memory::(?:barrier|put_signal|wait_signal)_kernel", None),
    # vllm-project/vllm csrc/custom_all_reduce.cuh; sgl-project/sglang sgl-kernel; ROCm/aiter csrc/include
    (r"(?:.*::)?cross_device_reduce_\w+", "all_reduce"),
    # openxla/xla xla/stream_executor/gpu/all_reduce_kernel_lib.cu.h, multi_gpu_barrier_kernel.cu.h
    (r"stream_executor::gpu::(?:AllReduceKernel|MultiGpuBarrierKernel)\w*", None),
    # NVIDIA/nvshmem src/include/internal/non_abi/nvshmemi_h_to_d_coll_defs.cuh, src/device; ROCm/rocSHMEM. Not what
    # only fills an array.
    (r"(?:.*::)?(?:nv|roc)shmem(?!\w*init_array)\w*", None),
    (r"(?:barrier|sync|alltoall|broadcast|fcollect|rdxn|reduce|reducescatter)(?:_all)?_on_stream_kernel\w*", None),
    # pytorch/pytorch torch/csrc/distributed/c10d/symm_mem/nvshmem_extension.cu
    (r"(?:.*::)?(?:exchangeSplitAndOffset|allToAllV)\w*", "all_to_all"),
    # deepseek-ai/DeepEP csrc/kernels (intranode.cu, internode.cu, internode_ll.cu), and uccl-project/uccl and
    # AMD-AGI/Primus-Turbo after it. Its layout::get_dispatch_layout stays on its GPU.
    (
        r"(?:\w+::)*int(?:er|ra)node(?:_ll)?::(?:cached_)?(?:notify|dispatch|combine|barrier|clean_low_latency)\w*",
        "all_to_all",
    ),
    # ROCm/mori src/ops/dispatch_combine
    (r"(?:.*::)?Ep(?:Dispatch|Combine)Int(?:er|ra)Node\w*", "all_to_all"),
    # perplexityai/pplx-garden p2p-all-to-all/a2a-kernels
    (r"(?:.*::)?a2a_(?:dispatch|combine)_(?:send|recv)\w*", "all_to_all"),
    # NVIDIA/TensorRT-LLM cpp/tensorrt_llm/kernels/communicationKernels/moeAlltoAllKernels.cu, fusedMoeCommKernels.cu
    (r"(?:.*::)?(?:moeA2A(?:Dispatch|Combine)Kernel|moeAllToAllKernel)\w*", "all_to_all"),
    # NVIDIA/TransformerEngine transformer_engine/common/comm_gemm_overlap/userbuffers/userbuffers.cu: `_rs` scatters,
    # `_ag` gathers, the rest of the sums do both; TensorRT-LLM has some of them
    (r"(?:.*::)?userbuffers_\w*sum\w*_rs(?:_\w+)?", "reduce_scatter"),
    (r"(?:.*::)?userbuffers_\w*_(?:ag|allgather)(?:_\w+)?", "all_gather"),
    (r"(?:.*::)?userbuffers_\w*sum\w*", "all_reduce"),
    (r"(?:.*::)?kuserbuffers_\w+", "send_recv"),
)
# What sounds so, works on one GPU alone, and is common: parts of a block or warp, all elements of a tensor (MLX), what
# XLA and torch.compile fuse and call after all that it holds, such as a sum and a scatter, an array filled.
_LOCAL: Final = (
    r"(?:.*::)?_*(?:block|warp|wave|cta|thread|group)_?(?:\w+_)?all_?reduce\w*|mlx::.*|cub::.*|thrust::.*|at::native::.*"
    r"|(?:input|loop|wrapped|transpose|concatenate|triton|gemm|scatter)_\w*fusion\w*|triton_[a-z]{3}_fused_.*"
    r"|(?:.*::)?(?:nv|roc)shmemi?_init_array\w*"
)
# What is a product above all, and exchanges beside it: the ledger calls it compute.
_PRODUCT: Final = r"(?:.*::)?[^:]*(?:gemm|matmul|attention|flash_|fmha|megamoe)[^:]*"
_SOUNDS: Final = (
    rf".*(?:{_WORDS}|multimem|shmem|cross_?device|symm_?mem|int(?:er|ra)_?node|send_?recv|(?<![a-z])a2a(?![a-z])"
    r"|(?<![a-z])p2p(?![a-z])).*"
)


def is_collective(names: pd.Index) -> NDArray[np.bool_]:
    """Which names are those of a collective's kernels."""
    return np.fromiter(map(names_collective, names.tolist()), bool, len(names))


def names_collective(name: str) -> bool:
    """Is this the name of a collective's kernel?"""
    return _family(name) is not None


def sounds_like_one(names: pd.Index) -> NDArray[np.bool_]:
    """Which names are of kernels that are no collective by the table, and may be one by how they are called."""
    return np.fromiter(map(_sounds, names.tolist()), bool, len(names))


def kind_of(names: pd.Index) -> NDArray[np.int8]:
    """The place in KINDS of each name, a kernel's or a range's."""
    return np.fromiter(map(_kind_of, names.tolist()), np.int8, len(names))


@lru_cache(maxsize=1 << 16)
def _kind_of(name: str) -> int:
    told = (_family(name) or (None,))[0]
    if told is not None:
        return list(KINDS).index(told)
    plain = name.lower().replace("_", "")
    return next(number for number, pattern in enumerate(KINDS.values()) if re.search(pattern, plain))


@lru_cache(maxsize=1 << 16)
def _family(name: str) -> tuple[str | None] | None:
    """The kind that the family of a kernel says, if it says one; None: of no family."""
    function = function_of(name)
    if _fits(_LOCAL, function) or _fits(_PRODUCT, function):
        return None
    return next(((kind,) for pattern, kind in FAMILIES if _fits(pattern, function)), None)


@lru_cache(maxsize=1 << 16)
def _sounds(name: str) -> bool:
    function = function_of(name)
    return _family(name) is None and _fits(_SOUNDS, function) and not _fits(_LOCAL, function)


def _fits(pattern: str, function: str) -> bool:
    return re.fullmatch(pattern, function, re.IGNORECASE) is not None


def function_of(name: str) -> str:
    """The function of a kernel with its scopes: `void vllm::sum<float, 2>(float*)` and `_ZN4vllm3sumIfLi2EEvPf` are
    `vllm::sum`. Scopes without a name are left out."""
    if name.startswith("_Z"):
        return "::".join(_mangled(name))
    kept, depth = [""], 0
    for letter in re.sub(r"\(anonymous namespace\)::|<unnamed>::| *\[clone [^]]*\]", "", name):
        depth += letter in "<("
        if not depth:
            kept.append(letter)
        depth -= letter in ">)" and depth > 0
    return "".join(kept).removesuffix(" const").split(" ")[-1].removesuffix(".kd")


def _mangled(name: str) -> list[str]:
    """The names in the first, maybe nested, name of an Itanium ABI symbol, without numbered anonymous namespaces."""
    found: list[str] = []
    at = len(re.match(r"_Z(?:N[KVrRO]*)?", name).group())  # type: ignore[union-attr]  # it begins with _Z
    while length := re.compile(r"L?(\d+)").match(name, at):
        at = length.end() + int(length.group(1))
        found.append(name[length.end() : at])
    return [one for one in found if not one.startswith("_GLOBAL__N_")]
