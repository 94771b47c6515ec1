"""No remedy is given that the recording itself refutes: each has what must be there for it to be said."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from profiles import analyse
from profiles.doubts.steps import warm_up_inside
from profiles.metrics.kernels import of_group
from profiles.model.measures import GpuMeasures
from profiles.model.steps import Steps
from profiles.verdicts import find
from tests.made.build import Build
from tests.made.hand import gpu, measures
from tests.profiles.verdicts.test_people import ATEN, MS, US, looped

WAIT = {"call": "cudaStreamSynchronize", "within": None, "moves": None, "ns": 30 * MS, "count": 10}
COPIES = {"ledger": {"h2d": 2 * MS}, "h2d": {"count": 10, "bytes": 10 * MS, "gb_per_s": 8.0}}
COLLECTIVE = {"ledger": {"collective": 2 * MS}}
SYNC = {"ledger": {"idle_sync": 3 * MS}}
LAUNCH = {"ledger": {"idle_launch": 3 * MS}}
FEED = {"ledger": {"idle_feed": 3 * MS}, "host": [{"kind": "range", "name": "wait input", "ns": 1, "share": 1.0}]}
SHORT = {"ledger": {"idle_turnaround": MS}}
TRITON = {**SHORT, "groups": {"fused": (10, MS)}}


def _kernel(name: str, ns: int = 20 * MS) -> dict[str, Any]:
    return {"top": [(name, 100, ns)]}


def _summed(name: str) -> dict[str, Any]:
    return COLLECTIVE | _kernel(f"ncclDevKernel_AllReduce_Sum_{name}_RING_LL")


PINNED, PAGEABLE = ({**COPIES, "h2d": {**COPIES["h2d"], "pageable_share": share}} for share in (0.0, 1.0))
TO_HOST = {"ledger": {"d2h": 2 * MS}}
# What was recorded, and of whom; the finding, what it must not say to change, and what it must.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], str, str, str]] = {
    "pinned already": (PINNED, {"framework": "pytorch"}, "copies-exposed", "pin_memory|pinned", "non_blocking"),
    "managed memory to the host": (
        TO_HOST, {"framework": "cuda", "waits_on": ["managed"]}, "copies-to-host-exposed", "ringscope",
        "cudaMemPrefetchAsync of managed memory",
    ),
    "no managed memory to the host": (
        TO_HOST, {"framework": "cuda", "waits_on": []}, "copies-to-host-exposed", "managed", "into pinned memory on",
    ),
    "pageable": (PAGEABLE, {"framework": "pytorch"}, "copies-pageable", "ringscope", "pin_memory"),
    "16-bit products": (
        _kernel("cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2"),
        {"framework": "pytorch"}, "off-tensor-cores", "TF32|float32", "multiples of 8",
    ),
    "products in float32": (
        _kernel("cutlass_80_simt_sgemm_128x32_nn_align1"),
        {"framework": "pytorch"}, "off-tensor-cores", "multiples", "TF32",
    ),
    "products in float32 by cuBLAS": (
        _kernel("ampere_sgemm_128x64_tn"), {"framework": "pytorch"}, "off-tensor-cores", "multiples", "TF32",
    ),
    "products in float32 on Volta": (
        _kernel("cutlass_70_simt_sgemm_128x32_nn_align1"), {"framework": "pytorch", "name": "Tesla V100-SXM2-16GB"},
        "off-tensor-cores", r"TF32\)|float32_matmul|with bfloat16", "float16",
    ),
    "products in float32 on Turing": (
        _kernel("cutlass_70_simt_sgemm_128x32_nn_align1"), {"framework": "jax", "name": "NVIDIA GeForce RTX 2080 Ti"},
        "off-tensor-cores", "tensorfloat32|, or bfloat16", "float16",
    ),
    "products in float32 on Turing, cuda": (
        _kernel("cutlass_70_simt_sgemm_128x32_nn_align1"), {"framework": "cuda", "name": "Tesla T4"},
        "off-tensor-cores", "TF32", "float16",
    ),
    "products in float32 on Ampere": (
        _kernel("cutlass_80_simt_sgemm_128x32_nn_align1"), {"framework": "pytorch", "name": "NVIDIA RTX A6000"},
        "off-tensor-cores", "GradScaler", "TF32",
    ),
    "products in float64": (
        _kernel("cutlass_80_simt_dgemm_128x64_8x4_nn_align1"),
        {"framework": "pytorch"}, "off-tensor-cores", "TF32", "multiples",
    ),
    "16-bit gradients": (_summed("bf16"), {"framework": "pytorch"}, "all-reduce-exposed", "compress_hook", "no_sync"),
    "gradients in float32": (_summed("f32"), {"framework": "pytorch"}, "all-reduce-exposed", "hvd", "compress_hook"),
    "fsdp": (
        _summed("f32"), {"framework": "pytorch", "exchange": "fsdp"}, "all-reduce-exposed", "DistributedDataParallel",
        "larger batch",
    ),
    "weights on the host": (
        PINNED, {"framework": "pytorch", "exchange": "fsdp"}, "copies-exposed", "batch|uint8", "CPUOffload",
    ),
    "waits for the device": (
        SYNC, {"framework": "pytorch", "host_waits": [{**WAIT, "call": "cudaDeviceSynchronize"}]}, "host-synchronises",
        r"pinned|\.item", "synchronize",
    ),
    "waits for a number": (
        SYNC, {"framework": "pytorch", "host_waits": [{**WAIT, "within": "aten::item", "moves": "d2h"}]},
        "host-synchronises", "pinned|boolean", r"\.item\(\)",
    ),
    "waits for a copy": (
        SYNC, {"framework": "pytorch", "host_waits": [{**WAIT, "within": "aten::to", "moves": "h2d"}]},
        "host-synchronises", r"\.item|boolean", "pinned",
    ),
    "waits for copies of a few bytes": (
        {**SYNC, "h2d": {"count": 10, "bytes": 10 * 1023}},
        {"framework": "pytorch", "host_waits": [{**WAIT, "within": "aten::to", "moves": "h2d"}]},
        "host-synchronises", "copy batches", "small tensors on the device",
    ),
    "waits for copies of more bytes": (
        {**SYNC, "h2d": {"count": 10, "bytes": 10 * 1024}},
        {"framework": "pytorch", "host_waits": [{**WAIT, "within": "aten::to", "moves": "h2d"}]},
        "host-synchronises", "small tensors", "copy batches from pinned memory",
    ),
    "products in float32 by cuBLAS on Turing": (
        _kernel("volta_sgemm_64x64_nt"), {"framework": "pytorch", "name": "Tesla T4"},
        "off-tensor-cores", r"TF32\)|float32_matmul|with bfloat16|multiples", "float16",
    ),
    "a loader without workers": (
        FEED, {"framework": "pytorch", "loader": "DataLoader in the training's process"}, "input-pipeline-slow",
        "larger num_workers", r"num_workers=0",
    ),
    "a loader with workers": (
        FEED, {"framework": "pytorch", "loader": "DataLoader"}, "input-pipeline-slow", "num_workers=0|tf",
        "num_workers",
    ),
    "tf.data": (
        FEED, {"framework": "tensorflow", "loader": "tf.data"}, "input-pipeline-slow", "workers=|PyDataset",
        "dataset.map",
    ),
    "a PyDataset": (
        FEED, {"framework": "tensorflow", "loader": "PyDataset"}, "input-pipeline-slow", "tf.data|dataset.map",
        "workers=.*use_multiprocessing=True.*max_queue_size=",
    ),
    "a generator": (
        FEED, {"framework": "tensorflow", "loader": "generator"}, "input-pipeline-slow", "tf.data|dataset.map",
        "PyDataset.*workers=.*max_queue_size=",
    ),
    "nobody knows what": (
        FEED, {"framework": "tensorflow"}, "input-pipeline-slow", "torch", "dataset.map.*PyDataset",
    ),
    "torch.compile": (TRITON, {"framework": "pytorch"}, "short-kernels", "torch.compile", "larger batch"),
    "no torch.compile": (SHORT, {"framework": "pytorch"}, "short-kernels", "channels_last", "torch.compile"),
    "jax.jit already": (
        {**LAUNCH, "groups": {"fused": (10, MS)}}, {"framework": "jax"}, "launch-bound", r"jax\.jit", r"jax\.lax\.scan",
    ),
    "no jax.jit": (LAUNCH, {"framework": "jax"}, "launch-bound", "torch", r"jax\.jit"),
    "16-bit products of jax": (
        _kernel("cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2"),
        {"framework": "jax"}, "off-tensor-cores", "tensorfloat32|bfloat16", "multiples of 8",
    ),
    "products of jax in float32": (
        _kernel("cutlass_80_simt_sgemm_128x32_nn_align1"),
        {"framework": "jax"}, "off-tensor-cores", "multiples", "tensorfloat32",
    ),
    "16-bit gradients of jax": (
        _summed("bf16"), {"framework": "jax"}, "all-reduce-exposed", "16-bit", "latency_hiding",
    ),
    "gradients of jax in float32": (
        _summed("f32"), {"framework": "jax"}, "all-reduce-exposed", "torch", "16-bit gradients",
    ),
    "pinned already, cuda": (PINNED, {"framework": "cuda"}, "copies-exposed", "pinned", "separate stream"),
    "pageable, cuda": (PAGEABLE, {"framework": "cuda"}, "copies-pageable", "DataLoader", "cudaMallocHost"),
    "pinned already, hip": (PINNED, {"framework": "hip"}, "copies-exposed", "cuda|pinned", "hipMemcpyAsync"),
    "graphs already, cuda": (
        {**LAUNCH, "kernels": {"graph_nodes": 100}}, {"framework": "cuda"}, "launch-bound", "a CUDA graph",
        "outside of the CUDA",
    ),
    "products of hip in float32": (
        _kernel("cutlass_80_simt_sgemm_128x32_nn_align1"),
        {"framework": "hip"}, "off-tensor-cores", "TF32|cublas", "16-bit numbers",
    ),
    "no graphs, hip": (LAUNCH, {"framework": "hip"}, "launch-bound", "CUDA", "a HIP graph"),
    "a stream is waited for": (
        SYNC, {"framework": "cuda", "host_waits": [WAIT]}, "host-synchronises", "cudaDeviceSynchronize|pinned",
        "cudaStreamWaitEvent",
    ),
    "the device is waited for": (
        SYNC, {"framework": "cuda", "host_waits": [{**WAIT, "call": "cudaDeviceSynchronize"}]}, "host-synchronises",
        "pinned", "in place of cudaDeviceSynchronize",
    ),
    "a copy is waited for": (
        SYNC, {"framework": "cuda", "host_waits": [{**WAIT, "call": "cudaMemcpy", "moves": "d2h"}]},
        "host-synchronises", "DeviceSynchronize", "cudaMemcpyAsync",
    ),
    "no convolutions": (FEED, {"framework": "pytorch"}, "input-pipeline-slow", "images|decode", "DataLoader"),
}  # fmt: skip


def _changes(one: GpuMeasures, recorded: str = "nsys-sqlite") -> dict[str, str]:
    made = measures([one])
    made.recordings = [replace(recording, format=recorded) for recording in made.recordings]
    return {finding.code: finding.change for finding in find(made)}


@pytest.mark.parametrize("name", CASES)
def test_a_remedy_is_said_where_nothing_refutes_it_and_only_there(name: str) -> None:
    given, about, code, refuted, said = CASES[name]
    one = gpu(**given)
    for key, value in about.items():
        setattr(one, key, value)
    change = _changes(one)[code]
    assert not re.search(refuted, change), change
    assert re.search(said, change), change


@pytest.mark.parametrize(("pageable", "said"), [(0.0, True), (1.0, False)])
def test_managed_memory_is_not_spoken_of_where_pageable_memory_is_copied(pageable: float, said: bool) -> None:
    one = gpu(**TO_HOST)
    one.framework, one.waits_on, one.copies["d2h"].pageable_share = "cuda", ["managed"], pageable
    assert ("managed" in _changes(one)["copies-to-host-exposed"]) is said


@pytest.mark.parametrize(("framework", "halves"), [("pytorch", "compress_hook"), ("jax", "16-bit")])
@pytest.mark.parametrize(("dtype", "halved"), [("bfloat16", False), ("half", False), ("float", True), (None, True)])
def test_halves_of_bytes_are_for_gradients_that_are_not_halves_already(
    framework: str, halves: str, dtype: str | None, halved: bool
) -> None:
    """As the recording tells with each exchange; the kernel's name tells nothing, or another type's."""
    for kernel in ("ncclDevKernel_Generic_1", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"):
        one = gpu(**COLLECTIVE, **_kernel(kernel))
        one.framework = framework
        kind = {"count": 10, "busy_ns": 20 * MS, "exposed_ns": 20 * MS, "bytes": MS, "dtype": dtype}
        one.collectives.kinds = {"all_reduce": kind}
        assert (halves in _changes(one)["all-reduce-exposed"]) is halved


@pytest.mark.parametrize(("recorded", "told"), [("nsys-sqlite", False), ("nvprof-sqlite", True)])
def test_nvprofs_own_waits_are_told_of_in_its_recordings_alone(recorded: str, told: bool) -> None:
    one = gpu(ledger={"idle_wait": 2 * MS})
    assert ("nvprof" in _changes(one, recorded)["launched-work-waits"]) is told


@pytest.mark.parametrize(
    ("recorded", "first"), [("nsys-sqlite", "launched-work-waits"), ("nvprof-sqlite", "launch-bound")]
)
def test_waits_that_a_profiler_makes_come_after_what_is_the_programs(recorded: str, first: str) -> None:
    one = gpu(ledger={"idle_wait": 4 * MS, "idle_launch": 2 * MS})
    assert next(iter(_changes(one, recorded))) == first


SERVERS = r"request|replica|vLLM|SGLang|scheduler|decod"


@pytest.mark.parametrize("served", [False, True])
@pytest.mark.parametrize(
    "given", [LAUNCH, SYNC, SHORT, COLLECTIVE, PINNED], ids=lambda given: next(iter(given["ledger"]))
)
def test_a_servers_words_are_said_to_servers_alone(served: bool, given: dict[str, Any]) -> None:
    one = gpu(**given, top=[(ATEN, 100, MS)])
    one.framework, one.steps.unit, one.steps.served = "pytorch", "batch", served
    changes = " ".join(_changes(one).values())
    assert changes
    assert served or not re.search(SERVERS, changes), changes
    assert not served or given in (SHORT, PINNED) or re.search(SERVERS, changes), changes


@pytest.mark.parametrize(
    ("kernel", "own"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", False),
        ("void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>", True),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>", True),
    ],
)
def test_a_servers_own_all_reduce_is_no_remedy_where_it_runs(kernel: str, own: bool) -> None:
    one = gpu(**COLLECTIVE, top=[(ATEN, 100, MS), (kernel, 100, MS)])
    one.framework, one.steps.unit, one.steps.served = "pytorch", "batch", True
    assert ("own all-reduce" in _changes(one)["all-reduce-exposed"]) is not own


@pytest.mark.parametrize(
    ("mark", "served"), [("ProfilerStep#{}", False), ("execute_context_{}(9)_generation_0(0)", True)]
)
def test_a_server_is_known_by_its_marks(mark: str, served: bool) -> None:
    (one,) = analyse([looped(*[ATEN] * 4, mark=mark).timeline()]).measures.gpus
    assert one.steps.served is served


@pytest.mark.parametrize("marked", [0, 1])
def test_nobody_is_told_to_mark_steps_that_are_marked(marked: int) -> None:
    made = looped(ATEN, mark="{}", gap_ns=30 * US, each_ns=7 * US)
    made.recording = replace(made.recording, format="kineto")
    for number in range(marked):
        made.mark(f"ProfilerStep#{number}", 10 * MS, domain="")  # cut short
    (doubt,) = (one for one in analyse([made.timeline()]).measures.doubts if one.code == "steps-refused")
    assert ("prof.step()" in doubt.next) is (not marked)
    assert ("record several" in doubt.next) is bool(marked)


@pytest.mark.parametrize(("recorded", "cuts"), [("kineto", False), ("xplane", False), ("nsys-sqlite", True)])
def test_what_cannot_be_cut_is_not_told_to_be(recorded: str, cuts: bool) -> None:
    start = Build(format=recorded)
    for number in range(10):
        start.kernel(number * US, number * US + 500, f"kernel {number}", call=(number * US - 200, number * US - 100))
    start.memset(MS, MS + US, call=(MS - 20, MS - 10))
    broken = looped(ATEN, steps=30)
    broken.recording = replace(broken.recording, format=recorded)
    last = max(row["end_ns"] for row in broken.rows["kernels"])
    for row in [*broken.rows["kernels"], *broken.rows["marks"], *broken.rows["api"]]:
        if row["start_ns"] > last // 2:  # a pause in the middle
            row["start_ns"], row["end_ns"] = row["start_ns"] + 20 * MS, row["end_ns"] + 20 * MS
    made = [analyse([one.timeline()], window="capture").measures for one in (start, broken)]
    told = {doubt.code: doubt.next for one in made for doubt in one.doubts}
    for code in ("mostly-no-training", "breaks-inside-window"):
        assert ("ringscope cut" in told[code]) is cuts


@pytest.mark.parametrize(("count", "offered"), [(12, True), (0, False)])
def test_a_window_of_steps_is_offered_where_there_are_steps(count: int, offered: bool) -> None:
    steps = Steps("marks", None, count, warm_up=1, partial=1, breaks=0, period_ns=None)
    assert ("--window steps" in warm_up_inside(steps, "/gpus/0").next) is offered


def test_rows_of_tables_sorting_and_concatenation_are_named_apart_from_what_compiling_fuses() -> None:
    made, now = Build(), 10 * MS
    made.recording = replace(made.recording, format="kineto")
    names = [ATEN, "void split_embedding_codegen_forward_unweighted_kernel", "void cub::DeviceRadixSortOnesweepKernel",
             "void at::native::(anonymous namespace)::CatArrayBatchedCopy"]  # fmt: skip
    for number in range(8):
        made.mark(f"ProfilerStep#{number}", now - US, now + 1_200 * 10 * US, domain="")
        for at in range(1_200):
            made.kernel(now, now + 9 * US, names[at % 4], call=(now - 2 * US, now - US))
            now += 10 * US
    result = analyse([made.timeline()]).measures
    (one,), found = result.gpus, {finding.code: finding for finding in result.findings}["not-compiled"]
    assert one.kernels.unfused_ns == one.kernels.groups["elementwise"]["total_ns"] == one.kernels.count // 4 * 9 * US
    assert found.evidence["unfused_ns"] == one.kernels.unfused_ns
    assert all(what in found.text for what in ("lookups in embedding tables", "sorting", "concatenation"))


def test_a_rotary_embedding_is_no_row_of_a_table() -> None:
    names = pd.Index(["rotary_embedding_kernel", "indexSelectLargeIndex", "embedding_bag"])
    assert of_group(names, "embedding").tolist() == [False, True, True]


@pytest.mark.parametrize(("functions", "jitted"), [(["train_step"], True), (["matmul", "add", "sqrt"], False)])
def test_operators_that_are_jitted_one_by_one_are_no_jitted_step(functions: list[str], jitted: bool) -> None:
    one = gpu(**LAUNCH, groups={"fused": (10, MS)}, host=[
        {"kind": "range", "name": f"PjitFunction({name})", "ns": MS, "share": 0.1} for name in functions
    ])  # fmt: skip
    one.framework = "jax"
    assert ("jax.jit around" in " ".join(_changes(one).values())) is not jitted


@pytest.mark.parametrize("name", ["Tesla P100-PCIE-16GB", "NVIDIA GeForce GTX 1660 Ti", "Quadro P4000", "TITAN Xp"])
def test_tensor_cores_are_not_advised_on_a_gpu_without_any(name: str) -> None:
    old, new = (gpu(**_kernel("cutlass_70_simt_sgemm_128x32_nn_align1")) for _ in range(2))
    old.name, new.name = name, "NVIDIA A10"
    assert [["off-tensor-cores" in {one.code for one in find(measures([each]))}] for each in (old, new)] == [
        [False],
        [True],
    ]
