"""Recognise kernels that exchange data with other GPUs by their names; no other module knows these names.

Only the function's name counts, never its template arguments or parameters: `reduce_kernel<..., AllReduceOp>`
sums on its own GPU. A kernel that is in none of the families below counts as compute, even if its name sounds
like an exchange; `sounds_like_one` finds these kernels.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from ..model.names import fitting, once_for_few, wholly

if TYPE_CHECKING:
    import pandas as pd

# Kinds of collectives: the first counts whose pattern matches the name of a kernel or range, in lower case and
# without underscores.
KINDS: Final = {
    "all_reduce": r"allreduce",
    "reduce_scatter": r"reducescatter",
    "all_gather": r"allgather",
    "all_to_all": r"alltoall",
    "send_recv": r"send|recv",
    "broadcast": r"broadcast|bcast",
    "reduce": r"reduce",
    "other": r"",  # kernels that serve any kind of collective
}
_WORDS: Final = r"(?:all_?reduce|reduce_?scatter|all_?gather|all_?to_?all)"
# Words for the algorithm of an exchange. No kernel that works on one GPU alone has such a word beside a collective's.
_WAYS: Final = (
    r"(?:one_?shot|two_?shot|[12]_?stage|multimem|nvls|lamport|symm(?:_?mem|etric)|mnnvl|cross_?device|peer|p2p"
    r"|(?<![a-z])(?:push|pull|persistent)(?![a-z])|(?<![a-z])ring_?(?=all|reduce)|double_?tree|cube_?mesh|int(?:er|ra)_?node|prototype"
    r"|all_?reduce_?fusion|fused_?all_?reduce)"
)
_COLLECTIVE: Final = r"all_?(?:reduce|gather|to_?all)\w*|reduce_?scatter\w*|broadcast\w*|send\w*|recv\w*"
# Each family of kernels: a pattern for the whole function name with its scopes, ignoring case, and the kind of
# collective if KINDS cannot tell it. The comments name the repositories and files that define these kernels.
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
    (rf"(?=.*{_WAYS})(?:.*::)?(?=[^:]*\Z)[^:]*{_WORDS}[^:]*", None),
    # Triton kernels with just this name. Not all_reduce, because kernels of that name may sum one tensor on one GPU.
    (r"_*(?:all_?gather|reduce_?scatter|all_?to_?all_?v?)(?:_?kernel)?", None),
    # pytorch/pytorch torch/csrc/distributed/c10d/symm_mem/CUDASymmetricMemory.cu
    (r"c10d::symmetric_memory::(?:barrier|put_signal|wait_signal)_kernel", None),
    # vllm-project/vllm csrc/custom_all_reduce.cuh; sgl-project/sglang sgl-kernel; ROCm/aiter csrc/include
    (r"(?:.*::)?cross_device_reduce_\w+", "all_reduce"),
    # openxla/xla xla/stream_executor/gpu/all_reduce_kernel_lib.cu.h, multi_gpu_barrier_kernel.cu.h
    (r"stream_executor::gpu::(?:AllReduceKernel|MultiGpuBarrierKernel)\w*", None),
    # NVIDIA/nvshmem src/include/internal/non_abi/nvshmemi_h_to_d_coll_defs.cuh, src/device; ROCm/rocSHMEM. Without
    # init_array, which only fills an array.
    (r"(?:.*::)?(?:nv|roc)shmem(?!\w*init_array)\w*", None),
    (r"(?:barrier|sync|alltoall|broadcast|fcollect|rdxn|reduce|reducescatter)(?:_all)?_on_stream_kernel\w*", None),
    # pytorch/pytorch torch/csrc/distributed/c10d/symm_mem/nvshmem_extension.cu
    (r"(?:.*::)?(?:exchangeSplitAndOffset|allToAllV)\w*", "all_to_all"),
    # deepseek-ai/DeepEP csrc/kernels (intranode.cu, internode.cu, internode_ll.cu); uccl-project/uccl and
    # AMD-AGI/Primus-Turbo follow it. Without layout::get_dispatch_layout, which works on one GPU.
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
    # NVIDIA/TransformerEngine transformer_engine/common/comm_gemm_overlap/userbuffers/userbuffers.cu: `_rs` is
    # reduce-scatter, `_ag` all-gather, other sums are all-reduces; TensorRT-LLM has some of these kernels
    (r"(?:.*::)?userbuffers_(?=\w*sum)(?=\w*_rs(?:_|\Z))\w*", "reduce_scatter"),
    (r"(?:.*::)?userbuffers_(?=\w*_(?:ag|allgather)(?:_|\Z))\w*", "all_gather"),
    (r"(?:.*::)?userbuffers_(?=\w*sum)\w*", "all_reduce"),
    (r"(?:.*::)?kuserbuffers_\w+", "send_recv"),
)
# Common kernels that sound like an exchange but work on one GPU: reductions over a block or warp, or over all elements
# of a tensor (MLX); kernels that XLA and torch.compile name after all fused parts, such as a sum and a scatter; and
# kernels that only fill an array.
_LOCAL: Final = (
    r"(?:.*::)?(?=\w*\Z)_*(?:block|warp|wave|cta|thread|group)_?(?:\w+_)?all_?reduce\w*|mlx::.*|cub::.*|thrust::.*"
    r"|at::native::.*|(?:input|loop|wrapped|transpose|concatenate|triton|gemm|scatter)_(?=\w*fusion)\w*|triton_[a-z]{3}_fused_.*"
    r"|(?:.*::)?(?:nv|roc)shmemi?_init_array\w*"
)
# Matrix products and attention that also exchange data: they count as compute in the ledger.
_PRODUCT: Final = r"(?:.*::)?(?=[^:]*\Z)[^:]*(?:gemm|matmul|attention|flash_|fmha|megamoe)[^:]*"
_OF_A_FAMILY: Final = "(?i)" + "|".join(f"(?:{pattern})" for pattern, _ in FAMILIES)
_NOT_OF_ONE: Final = f"(?i)(?:{_LOCAL})|(?:{_PRODUCT})"
_SOUNDS: Final = (
    rf"(?i){_WORDS}|multimem|shmem|cross_?device|symm_?mem|int(?:er|ra)_?node|send_?recv|(?<![a-z])a2a(?![a-z])"
    r"|(?<![a-z])p2p(?![a-z])"
)
# A quick first test: a name that does not match is in no family and does not sound like an exchange.
_MAY_BE: Final = (
    r"(?i)nccl|rccl|mscc|all_?reduce|reduce_?scatter|all_?gather|all_?to_?all|broadcast|send|recv|executionKernel|barrier"
    r"|signal|multimem|shmem|on_stream_kernel|exchangeSplit|int(?:er|ra)_?node|a2a|p2p|userbuffers|cross_?device|symm_?mem"
)
_UNNAMED: Final = re.compile(r"\(anonymous namespace\)::|<unnamed>::| {0,3}\[clone [^][]*\]")
_BRACKETS: Final = re.compile(r"([<>()])")
_LENGTH: Final = re.compile(r"L?(\d{1,9})")  # the length of the next part of a mangled name


def is_collective(names: pd.Index) -> NDArray[np.bool_]:
    """True for each name of a collective kernel."""
    return _families(names)[0] >= 0


def names_collective(name: str) -> bool:
    """True if a collective kernel has this name."""
    import pandas as pd

    return bool(is_collective(pd.Index([name], dtype="str"))[0])


def sounds_like_one(names: pd.Index) -> NDArray[np.bool_]:
    """True for each name that is in no family, but sounds like a collective kernel's."""
    family, may_be, functions = _families(names)
    found = family < 0
    found[~may_be] = False
    found[may_be] &= fitting(functions, _SOUNDS) & ~wholly(functions, f"(?i){_LOCAL}")
    return found


@once_for_few
def kind_of(names: pd.Index) -> NDArray[np.int8]:
    """For each name of a kernel or range, the index of its kind in KINDS."""
    kinds = list(KINDS)
    plain = names.str.lower().str.replace("_", "", regex=False)
    found = np.full(len(names), -1, np.int8)
    for number, words in enumerate(KINDS.values()):
        found[(found < 0) & fitting(plain, words)] = number
    family = _families(names)[0]
    for number, (_, kind) in enumerate(FAMILIES):
        if kind is not None:
            found[family == number] = kinds.index(kind)
    found.setflags(write=False)  # the cached array is shared by all callers
    return found


@once_for_few
def _families(names: pd.Index) -> tuple[NDArray[np.int8], NDArray[np.bool_], pd.Index]:
    """For each name: the index of its family in FAMILIES, -1 for none; whether it passes `_MAY_BE`. Also the function
    names of those that pass."""
    import pandas as pd

    may_be = fitting(names, _MAY_BE)
    functions = pd.Index([function_of(name) for name in names[may_be].tolist()], dtype="str")
    family = np.full(len(functions), -1, np.int8)
    of_one = np.flatnonzero(wholly(functions, _OF_A_FAMILY))
    of_one = of_one[~wholly(functions[of_one], _NOT_OF_ONE)]
    for number, (pattern, _) in reversed(list(enumerate(FAMILIES))):
        family[of_one[wholly(functions[of_one], f"(?i){pattern}")]] = number
    found = np.full(len(names), -1, np.int8)
    found[may_be] = family
    for array in (found, may_be):
        array.setflags(write=False)  # the cached arrays are shared by all callers
    return found, may_be, functions


@lru_cache(maxsize=1 << 12)
def function_of(name: str) -> str:
    """The function of a kernel with its scopes: `void vllm::sum<float, 2>(float*)` and `_ZN4vllm3sumIfLi2EEvPf` are
    `vllm::sum`. Scopes without a name are left out."""
    if name.startswith("_Z"):
        return "::".join(_mangled(name))
    kept, depth = [], 0
    for part in _BRACKETS.split(_UNNAMED.sub("", name)):
        depth += part in ("<", "(")
        if not depth:
            kept.append(part)
        depth -= part in (">", ")") and depth > 0
    return "".join(kept).removesuffix(" const").split(" ")[-1].removesuffix(".kd")


def _mangled(name: str) -> list[str]:
    """The name in an Itanium ABI symbol, with its scopes but without numbered anonymous namespaces."""
    found: list[str] = []
    at = len(re.match(r"_Z(?:N[KVrRO]*)?", name).group())  # type: ignore[union-attr]  # it begins with _Z
    while length := _LENGTH.match(name, at):
        at = length.end() + int(length.group(1))
        found.append(name[length.end() : at])
    return [one for one in found if not one.startswith("_GLOBAL__N_")]
