"""Programs of many frameworks, each with one fault built in: what is said of them, and in whose words."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest

from profiles.measuring.analysis import analyse
from profiles.model.measures import Measures
from tests.made.build import Build

US, MS = 1_000, 1_000_000
STEPS = 12
NCCL = "ncclDevKernel_{}(ncclDevKernelArgsStorage<4096ul>)"
REDUCED = (NCCL.format("AllReduce_Sum_f32_RING_LL"),)
SHARDED = (NCCL.format("AllGather_RING_LL"), NCCL.format("ReduceScatter_Sum_bf16_RING_LL"))
SENT = (NCCL.format("SendRecv"),)
ATEN = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"
LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
ITERATOR = "IteratorGetNextOp::DoCompute"
UPDATE = "Optimizer.step#AdamW.step"


@dataclass(frozen=True)
class Program:
    """mark: of its steps or batches. wait: the range in which it waits for input. beside: ranges of every step."""

    kernels: tuple[str, ...]
    framework: str
    recorded: str = "kineto"
    mark: str | None = "ProfilerStep#{}"
    unit: str = "step"
    wait: str | None = LOADER
    beside: tuple[str, ...] = ()
    exchanges: tuple[str, ...] = ()
    gpu: str = "NVIDIA H100 80GB HBM3"
    calls: str = "cuda"
    domain: str = field(default="")


TORCH = ("sm90_xmma_gemm_bf16bf16_bf16f32", ATEN, "void at::native::multi_tensor_apply_kernel<adam>")
SERVED = ("nvjet_hsh_64x8_64x16_4x1_v_bz_TNT", "void vllm::rms_norm_kernel<c10::BFloat16>", "flash_fwd_splitkv_kernel")
FUSED = ("triton_poi_fused_add_mul_0", "triton_red_fused_native_layer_norm_1", "nvjet_hsh_192x192_64x4_2x1_v_bz_NNT")
TF = ("sm90_xmma_fprop_implicit_gemm_bf16", "void tensorflow::functor::BiasNHWCKernel", "EigenMetaKernel<add>")
ORT = ("void onnxruntime::cuda::_BinaryElementWise<float>", "volta_sgemm_64x64_nn")
PROGRAMS = {
    "pytorch": Program(TORCH, "pytorch", beside=(UPDATE,)),
    "ddp": Program(TORCH, "pytorch", beside=("DistributedDataParallel.forward",), exchanges=REDUCED),
    "fsdp": Program(TORCH, "pytorch", beside=("FSDP::all_gather",), exchanges=SHARDED),
    "experts": Program(TORCH, "pytorch", "nsys-sqlite", mark="step {}", beside=("aten::mm",), exchanges=SENT),
    "compiled": Program(FUSED, "pytorch", beside=("Torch-Compiled Region: 0/0", UPDATE)),
    "rocm": Program(("Cijk_Ailk_Bljk_BBS_BH_MT256x128x32", ATEN), "pytorch", gpu="AMD Instinct MI300X", calls="hip",
                    beside=(UPDATE,)),
    "vllm": Program(SERVED, "pytorch", mark="execute_context_0(0)_generation_{}(16)", unit="batch", wait=None),
    "sglang": Program(SERVED, "pytorch", mark="step[DECODE bs={}]", unit="batch", wait=None),
    "transformers": Program((ATEN, "void pytorch_flash::flash_fwd_kernel"), "pytorch", mark=None, wait=None),
    "jax": Program(("gemm_fusion_dot_3", "loop_add_fusion"), "jax", "xplane", mark="step {}", wait=None,
                   beside=("PjitFunction(train_step)",), exchanges=REDUCED),
    "jax in nsys": Program(("gemm_fusion_dot_3", "loop_add_fusion"), "jax", "nsys-sqlite", mark="step {}", wait=None,
                           beside=("XlaModule:#hlo_module=jit_train_step,program_id=3#",), domain="TSL"),
    "keras": Program(TF, "tensorflow", "nsys-sqlite", mark=None, wait=ITERATOR, beside=("ExecutorState::Process",),
                     exchanges=REDUCED, domain="TSL"),
    "mirrored": Program(TF, "tensorflow", "nsys-sqlite", mark=None, wait=ITERATOR, beside=("NcclAllReduce",),
                        exchanges=REDUCED, domain="TSL"),
    "cuda": Program(("stencil(double*, int)", "residual(double*)"), "cuda", "nvprof-sqlite", mark=None, wait=None),
    "halo": Program(("pack(double*)", "update(double*)"), "cuda", "nsys-sqlite", mark="timestep {}", wait=None,
                    exchanges=SENT),
    "hip": Program(("stencil(double*, int)", "residual(double*)"), "hip", "nvprof-sqlite", mark=None, wait=None,
                   calls="hip"),
    "onnxruntime": Program(ORT, "onnxruntime", "nvprof-sqlite", mark=None, wait=None),
    "triton": Program(("_attn_fwd", "matmul_kernel"), "cuda", "nsys-sqlite", mark=None, wait=None),
}  # fmt: skip
# What others of the same words do not say. `ring` and Horovod's variables are for Keras under Horovod.
KERAS = r"tf\.|dataset|model\.compile\(\)|steps_per_execution|ring\.|hvd|HOROVOD"
PYTORCHS = r"torch|DataLoader|\.item\(\)|no_sync"
OTHERS = {
    "pytorch": rf"{KERAS}|jax|XLA_FLAGS",
    "jax": rf"{KERAS}|{PYTORCHS}",
    "tensorflow": rf"{PYTORCHS}|jax",
    "cuda": rf"{KERAS}|{PYTORCHS}|jax|XLA|batch|gradient|micro",
    "hip": rf"{KERAS}|{PYTORCHS}|jax|XLA|batch|cuda|CUDA",
    "onnxruntime": rf"{KERAS}|{PYTORCHS}|jax|XLA|cudaM",
}
EXPECTED = {
    "input": {"input-pipeline-slow"},
    "launch": {"python-in-the-loop"},
    "sync": {"loss-fetched-every-step", "host-synchronises"},
    "copy": {"copies-pageable"},
    "exchange": {"all-reduce-exposed", "collectives-exposed"},
    "short": {"short-kernels", "not-compiled", "all-reduce-exposed", "collectives-exposed"},
}


def built(program: Program, fault: str | None) -> Measures:
    """Twelve steps of some 10 ms, without a pause but for what the fault puts in; copies come from pinned memory."""
    tool = {"kineto": "Kineto", "xplane": "TensorFlow profiler", "nvprof-sqlite": "nvprof"}.get(
        program.recorded, "nsys"
    )
    made = Build(format=program.recorded, tool=tool)
    made.device(0, name=program.gpu)
    launch, copy = {"api": f"{program.calls}LaunchKernel"}, {"api": f"{program.calls}MemcpyAsync"}
    now = 10 * MS
    for number in range(STEPS):
        late_ns = {"input": 3 * MS, "launch": 2 * MS}.get(fault or "", 0)
        began, at = now, now + late_ns
        called = at - (30 if late_ns else 250) * US
        for name in program.beside:  # of the host, which is ahead of the GPU unless it is late
            made.mark(
                name, *((now, at) if fault == "launch" else (now - 200 * US, now - 100 * US)), domain=program.domain
            )
        if fault == "input":
            made.mark(program.wait or "", now + 20 * US, at - 50 * US, domain=program.domain)
        if fault == "copy":
            made.copy("h2d", at, at + 4 * MS, 64 << 20, call=(at - 20 * US, at + 4 * MS), **copy)
            at, called = at + 4 * MS, at + 4 * MS - 15 * US
        many, each_ns, pause_ns = (60, 2 * US, 2 * US) if fault == "short" else (4, 800 * US, 0)
        for kernel in program.kernels * many:
            made.kernel(at, at + each_ns, kernel, call=(called, called + 2 * US), **launch)
            at, called = at + each_ns + pause_ns, called + 3 * US
        for name in program.exchanges:
            start, end = (at, at + 3 * MS) if fault == "exchange" else (at - 200 * US, at - 10 * US)
            made.kernel(start, end, name, stream=20, call=(start - 300 * US, start - 298 * US), **launch)
            at = max(at, end)
        called = called if fault == "sync" else at - 200 * US
        made.kernel(at, at + 400 * US, program.kernels[-1], call=(called, called + 2 * US), **launch)
        at += 400 * US
        if fault == "sync":  # the host waits for all that it has launched
            fetched = {"api": "hipMemcpyWithStream" if program.calls == "hip" else "cudaMemcpy"}
            made.copy("d2h", at, at + 3 * US, 4, call=(called + 3 * US, at + 5 * US), **fetched)
            made.api(f"{program.calls}StreamSynchronize", called + 4 * US, at + 6 * US)
            at += 2 * MS
        if program.mark:
            made.mark(program.mark.format(number + 1), began if late_ns else began - 290 * US, at - 300 * US, domain="")
        now = at + US
    return analyse([made.timeline()]).measures


CASES = [
    (name, fault)
    for name, program in PROGRAMS.items()
    for fault in (None, *EXPECTED)
    if (fault != "input" or program.wait) and (fault != "exchange" or program.exchanges)
]


@pytest.mark.parametrize(("name", "fault"), CASES)
def test_a_fault_is_found_first_and_told_in_the_programs_own_words(name: str, fault: str | None) -> None:
    program = PROGRAMS[name]
    measures = built(program, fault)
    (gpu,), found = measures.gpus, measures.findings
    assert gpu.framework == program.framework
    if program.mark and "timestep" not in program.mark:
        assert (gpu.steps.source, gpu.steps.unit) == ("marks", program.unit) and gpu.steps.count in (STEPS - 1, STEPS)
    assert not fault or found[0].code in EXPECTED[fault]
    assert fault or not found, [one.code for one in found]
    told = " ".join(one.change for one in found).replace("in Keras model.compile(jit_compile=True)", "")
    assert not re.search(OTHERS[program.framework], told), told
    assert name != "mirrored" or not re.search(r"ring\.|jit_compile", told)
    assert program.unit == "step" or not re.search(r"DataLoader|channels_last|DistributedData", told)
    if program.recorded == "kineto":
        assert "NVTX" not in " ".join(doubt.next for doubt in measures.doubts)
