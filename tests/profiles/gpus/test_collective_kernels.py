"""Which kernels are collectives: names as recordings and the libraries' sources have them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from profiles import analyse
from profiles.gpus.collective_kernels import KINDS, function_of, is_collective, kind_of, sounds_like_one
from tests.made.build import Build
from tests.recordings import DATA, SHARED, needs_shared

EXCHANGES = {
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "all_reduce",
    "ncclKernel_AllReduce_RING_LL_Sum_float": "all_reduce",
    "void ncclAllReduceRingLLKernel<float>()": "all_reduce",
    "_Z33ncclAllReduceTreeLLKernel_sum_i328ncclColl": "all_reduce",
    "_Z23ncclDevKernel_SendRecv24ncclDevKernelArgsStorageILm4096EE": "send_recv",
    "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)": "other",
    "mscclKernel_Sum_half_Simple_false(ncclDevComm*, mscclAlgo*, mscclWork*)": "other",
    "void mscclpp::collective::allgatherFullmesh2<true>(void*)": "all_gather",
    "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)": "all_reduce",
    "void <unnamed>::two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 8>(T1 *, unsigned)": "all_reduce",
    "_ZN12_GLOBAL__N_126multimem_all_reduce_kernelIN3c108BFloat16ELi16EEEvPT_mPPjmm": "all_reduce",
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)": "all_reduce",
    "_ZN5aiter33reduce_scatter_cross_device_storeIDF16bLi8EEEvPNS_8RankDataENS_11RankSignalsEjiii": "reduce_scatter",
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<(X)1, float>(P)": "all_reduce",
    "void tensorrt_llm::kernels::twoShotAllReduceKernel<half, 8>(AllReduceParams)": "all_reduce",
    "void stream_executor::gpu::AllReduceKernelImpl<float, (xla::ReductionKind)0>(Params<float>)": "all_reduce",
    "all_reduce_kernel_oneshot": "all_reduce",
    "void barrier_on_stream_kernel_threadgroup<(threadgroup_t)1>(int, int)": "other",
    "void deep_ep::intranode::combine<__nv_bfloat16, 8, 768, 4096>(__nv_bfloat16*)": "all_to_all",
    "void deep_ep::legacy::internode_ll::dispatch<true, 3, 10, 7168>(void*, float*)": "all_to_all",
    "void deep_ep::internode::notify_dispatch<false, 4>(int const*, int*)": "all_to_all",
    "EpDispatchIntraNodeKernel_bf16": "all_to_all",
    "void userbuffers_fp16_sum_inplace_gpu_rr_rs_oop<2>(int, int)": "reduce_scatter",
    "void userbuffers_fp16_sum_inplace_gpu_rw_ag<2>(int, int)": "all_gather",
    "userbuffers_fp16_sum_inplace_gpu_mc(int, int)": "all_reduce",
    "kuserbuffers_pushsend(int*, int*, int4*, int4*, int)": "send_recv",
    "persistent_all_reduce_two_shot": "all_reduce",
    "all_gather_kernel": "all_gather",
    "ring_all_reduce_kernel": "all_reduce",
}
LOCAL = [
    "gather",
    "reduce_kernel",
    "my_nccl_like_kernel",
    "scatter_kernel",
    "dispatch",
    "void moe_combine_kernel<float>(float*)",
    "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*)",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, all_reduce_one_shot>>(T3)",
    "void cub::DeviceReduceKernel<cub::DispatchReduce<float *>>(T1)",
    "splitKreduce_kernel",
    "void mlx::core::cu::all_reduce<float, float, mlx::core::cu::Sum, 4>(float*)",
    "block_all_reduce_sum_f32_f32_kernel(float*, float*, int)",
    "input_reduce_scatter_fusion_3",
    "triton_poi_fused_all_reduce_0",
    "nvshmemi_init_array_kernel",
]
UNKNOWN = [
    "all_reduce_kernel",
    "xcclDevKernel_AllReduce_Sum_f32_RING_LL",
    "void gemm_all_reduce_one_shot<half>(half*)",
    "void acme::tree_all_to_all_v2(float*)",
]


def of(names: list[str]) -> pd.Index:
    return pd.Index(names, dtype="str")


@pytest.mark.parametrize(("name", "kind"), EXCHANGES.items())
def test_an_exchange_is_told_by_its_function_and_of_its_kind(name: str, kind: str) -> None:
    assert is_collective(of([name])).all() and not sounds_like_one(of([name])).any()
    assert list(KINDS)[kind_of(of([name]))[0]] == kind


@pytest.mark.parametrize("name", LOCAL)
def test_what_works_on_one_gpu_is_no_exchange_and_sounds_like_none(name: str) -> None:
    assert not is_collective(of([name])).any() and not sounds_like_one(of([name])).any()


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_only_sounds_like_an_exchange_is_counted_and_stays_compute(name: str) -> None:
    assert not is_collective(of([name])).any() and sounds_like_one(of([name])).all()


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("std::enable_if<(true), void>::type vllm::sum<1>(float (*)(int)) [clone .kd]", "vllm::sum"),
        ("_ZN4vllm12_GLOBAL__N_13sumIfLi2EEEvPf", "vllm::sum"),
        ("_ZL3sumPf", "sum"),
        ("void cut<float, at::native::off", "cut"),
        ("_Z", ""),
        ("", ""),
    ],
)
def test_the_function_of_a_kernel_is_its_name_without_what_it_is_made_for(name: str, function: str) -> None:
    assert function_of(name) == function


def test_an_exchange_by_any_name_is_exposed_for_as_long_as_nccls() -> None:
    for name in [*EXCHANGES, *UNKNOWN]:
        made = Build()
        for step in range(4):
            made.mark(f"step {step}", 100 * step, 100 * step + 90)
            made.kernel(100 * step + 10, 100 * step + 60, "gemm", call=(100 * step + 2, 100 * step + 4))
            made.kernel(100 * step + 50, 100 * step + 80, name, stream=9, call=(100 * step + 5, 100 * step + 6))
        analysis = analyse([made.timeline()])
        told = [doubt.text for doubt in analysis.measures.doubts if doubt.code == "exchange-unknown"]
        assert analysis.measures.gpus[0].ledger_ns["collective"] == (0 if name in UNKNOWN else 4 * 20)
        assert len(told) == (name in UNKNOWN)


def shares(path: Path) -> tuple[float, int]:
    """Of the window the exposed share of its collectives, and how many there are."""
    (gpu,) = analyse([path]).measures.gpus
    return (gpu.ledger_ns["collective"] or 0) / gpu.span_ns, gpu.collectives.count


@pytest.mark.parametrize("name", ["k_custom", "k_sym", "k_xla"])
def test_the_same_training_has_the_same_exchange_whoever_wrote_its_kernels(name: str) -> None:
    share, count = shares(DATA / "made" / f"{name}.json.gz")
    assert (share, count) == shares(DATA / "made" / "k_plain.json.gz")
    assert round(share, 3) == 0.090 and count == 12


@needs_shared
def test_symmetric_memorys_all_reduces_of_a_b200_are_collectives() -> None:
    (gpu,) = analyse([SHARED / "third" / "public" / "b200-multimem.json.gz"]).measures.gpus
    assert gpu.collectives.kinds["all_reduce"]["count"] == 73
