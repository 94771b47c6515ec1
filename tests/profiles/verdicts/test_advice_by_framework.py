"""Findings in the words of the framework that was recorded, and none that has no place there."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from profiles import analyse
from profiles.model.findings import Finding
from profiles.model.measures import Measures
from profiles.readers import read
from tests.made.build import Build
from tests.recordings import MORE, PUBLIC, needs_shared
from tests.tiers import few

US, MS = 1_000, 1_000_000


def findings(made: Build) -> dict[str, Finding]:
    return {one.code: one for one in analyse([made.timeline()]).measures.findings}


def loop(kernels: list[str], *, steps: int = 12, marks: str = "", gap_ns: int = MS, each_ns: int = 100 * US) -> Build:
    """Steps of kernels, each launched `gap_ns` after the one before has ended, by a host that is in no call."""
    made = Build()
    now = 10 * MS
    for number in range(steps):
        now += gap_ns
        if marks:
            made.mark(marks.format(number), now - 20 * US, now + len(kernels) * each_ns, domain="")
        for at, name in enumerate(kernels):
            call = (now - 10 * US, now - 5 * US) if at == 0 else (now - 9 * US, now - 8 * US)
            made.kernel(now, now + each_ns, name, call=call)
            now += each_ns
    return made


TORCH = ["void at::native::vectorized_elementwise_kernel<4>", "ampere_s1688gemm_128x64_tn", "multi_tensor_apply_kernel"]


def test_a_host_that_is_elsewhere_makes_one_finding_and_not_two() -> None:
    found = findings(loop(TORCH, marks="step {}"))
    assert "python-in-the-loop" in found and "launch-bound" not in found
    assert "torch.compile" in found["python-in-the-loop"].change


def test_a_host_without_a_framework_may_compute_or_wait() -> None:
    """No recording that is read tells whether the host's thread slept."""
    found = findings(loop(["stencil(double*, int)"], marks="step {}"))["python-in-the-loop"]
    assert "it computes, or waits for a clock, a file or another thread" in found.text
    assert found.change.startswith("if the host computes")


@pytest.mark.parametrize(
    ("copying_us", "codes"), [(300, {"launch-bound", "python-in-the-loop"}), (700, {"launch-bound"})]
)
def test_a_host_that_mostly_is_in_calls_makes_one_finding_too(copying_us: int, codes: set[str]) -> None:
    """Of each millisecond that the GPU waits so much is spent in a call, the rest elsewhere."""
    made = loop(TORCH, marks="step {}")
    for row in [*made.rows["marks"]]:
        made.api("cudaFuncGetAttributes", row["start_ns"] - copying_us * US, row["start_ns"] - 10 * US)
    found = {code: one for code, one in findings(made).items() if code in ("launch-bound", "python-in-the-loop")}
    assert set(found) == codes
    assert ("idle_outside_calls_ns" in found["launch-bound"].evidence) is (len(codes) == 1)


def test_gpus_of_one_host_that_is_elsewhere_make_one_finding_and_not_two() -> None:
    """The first waits longest, the second longest while the host is in no call."""
    first, second = loop(TORCH, marks="step {}", gap_ns=MS), loop(TORCH, marks="step {}", gap_ns=960 * US)
    for row in [*first.rows["marks"]]:
        first.api("cudaHostAlloc", row["start_ns"] - 110 * US, row["start_ns"] - 10 * US)
    made = []
    for rank, one in enumerate((first, second)):
        one.recording = replace(one.recording, path=f"rank{rank}.sqlite", rank=rank, rank_source="marks")
        made.append(one.timeline())
    found = {one.code: one for one in analyse(made).measures.findings}
    assert "launch-bound" not in found and found["python-in-the-loop"].evidence["gpu"] == 1


@pytest.mark.parametrize(("gap_us", "told"), [(8, False), (20, True)])
def test_waiting_for_launches_below_three_percent_is_not_worth_a_word(gap_us: int, told: bool) -> None:
    """Of some 310 us a step: nobody compiles an inference for 2 %."""
    assert ("launch-bound" in findings(loop(TORCH, gap_ns=gap_us * US, marks="execute_model {}"))) is told


def test_two_gpus_of_which_one_alone_is_launched_late_by_its_host_have_one_finding_for_it() -> None:
    late, less = loop(TORCH, marks="step {}"), loop(TORCH, marks="step {}", gap_ns=7 * US)
    for rank, made in enumerate((late, less)):
        made.recording = replace(made.recording, path=f"rank{rank}.sqlite", rank=rank, rank_source="marks")
    measures = analyse([late.timeline(), less.timeline()]).measures
    codes = [one.code for one in measures.findings]
    assert "python-in-the-loop" in codes and "launch-bound" not in codes


@pytest.mark.parametrize("framework", ["jax", "cuda", "pytorch"])
def test_no_frameworks_words_are_said_to_another(framework: str) -> None:
    made = loop(TORCH if framework == "pytorch" else ["solve", "exchange"], gap_ns=50 * US)
    if framework == "jax":
        made.mark("PjitFunction(train_step)", 10 * MS, 11 * MS, domain="TSL")
    (gpu,) = analyse([made.timeline()]).measures.gpus
    assert gpu.framework == framework
    for one in findings(made).values():
        assert not re.search(
            r"tf\.|dataset\.|ring\.|hvd\.|HOROVOD|ringscope bench|model\.compile\(\)|--full", one.change
        )


def test_a_plain_cuda_program_has_no_model_to_train_on_a_cpu() -> None:
    found = findings(loop(["solve"] * 3, gap_ns=300 * US, each_ns=4 * US))
    assert not {"cpu-may-be-faster", "tiny-batch", "not-compiled"} & set(found)


def test_a_gpu_that_idles_while_a_dataloader_is_asked_is_input_bound_first() -> None:
    """The loader is asked for a batch for 2 of every 4 ms; what ends the idle time is a kernel."""
    made = Build()
    now = 10 * MS
    for step in range(10):
        made.mark(f"ProfilerStep#{step}", now, now + 4 * MS, domain="")
        made.mark("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", now, now + 2 * MS, domain="")
        made.kernel(now + 2_100 * US, now + 4 * MS, TORCH[0], call=(now + 2_050 * US, now + 2_060 * US))
        now += 4 * MS
    measures = analyse([made.timeline()]).measures
    (gpu,) = measures.gpus
    assert gpu.ledger_ns["idle_feed"] == 9 * 2 * MS  # the first step begins with its kernel
    assert measures.findings[0].code == "input-pipeline-slow"
    assert "DataLoader" in measures.findings[0].change


def test_a_loader_of_another_thread_makes_nobody_wait() -> None:
    made = loop(TORCH)
    made.mark("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 0, 100 * MS, domain="", tid=2)
    (gpu,) = analyse([made.timeline()]).measures.gpus
    assert not gpu.ledger_ns["idle_feed"]


@pytest.mark.parametrize(
    ("cell", "recurrent"),
    [
        (["gemm", "sigmoid", "sigmoid", "sigmoid", "tanh", "tanh", "add"], True),
        (["gemm", "sigmoid", "sigmoid", "tanh", "add"], True),
        (["conv", "sigmoid", "mul", "conv", "sigmoid", "mul", "sigmoid"], False),  # SiLU
        (["gemm", "tanh", "gemm", "tanh", "gemm", "tanh"], False),  # GELU by tanh
    ],
)
def test_only_what_runs_cell_by_cell_is_a_recurrence(cell: list[str], recurrent: bool) -> None:
    made = loop([*cell * 40, "ApplyMomentum"], marks="step {}", gap_ns=100 * US, each_ns=4 * US)
    made.rows["marks"] = [{**row, "domain": "ringscope"} for row in made.rows["marks"]]
    assert ("generic-rnn-cell" in findings(made)) == recurrent


@pytest.mark.parametrize(
    ("kernel", "code", "kind"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "all-reduce-exposed", "all_reduce"),
        ("ncclDevKernel_AllGather_RING_LL", "collectives-exposed", "all_gather"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", "collectives-exposed", "reduce_scatter"),
        ("ncclDevKernel_SendRecv", "collectives-exposed", "send_recv"),
    ],
)
def test_collectives_are_told_apart_by_their_kind(kernel: str, code: str, kind: str) -> None:
    made = loop([*TORCH, kernel], marks="step {}", gap_ns=US)
    measures = analyse([made.timeline()]).measures
    assert list(measures.gpus[0].collectives.kinds) == [kind]
    assert {one.code for one in measures.findings} & {"all-reduce-exposed", "collectives-exposed"} == {code}


def test_the_start_of_a_process_is_not_launch_bound() -> None:
    made = loop(TORCH, gap_ns=US, each_ns=MS)
    made.api("cudaFree", 10 * MS + 2 * US, 10 * MS + 3 * US)
    last = max(row["end_ns"] for row in made.rows["kernels"])
    made.api("cudaFree", last + 10, last + 30 * MS)
    made.kernel(last + 33 * MS, last + 34 * MS, TORCH[0], call=(last + 33 * MS - US, last + 33 * MS))
    measures = analyse([made.timeline()], window="capture").measures
    assert measures.gpus[0].startup_ns == 30 * MS - 10
    assert "start-up-inside-window" in {one.code for one in measures.doubts}
    # The one gap is no loop: it is named, with what it is lost to, and nothing is advised.
    (found,) = measures.findings
    assert found.code == "loss-not-judged" and found.evidence["lost_ns_by_owner"]["idle_launch"] == 33 * MS


def test_memory_that_is_freed_all_along_is_a_fault_of_the_loop() -> None:
    made = loop(TORCH, gap_ns=2 * MS)
    for row in list(made.rows["kernels"]):
        made.api("cudaFree", row["start_ns"] - 1_900 * US, row["start_ns"] - 100 * US)
    found = findings(made)
    assert found["memory-allocated-in-the-loop"].evidence["calls"] == ["cudaFree"]
    assert "PYTORCH_NO_CUDA_MEMORY_CACHING" in found["memory-allocated-in-the-loop"].change


def test_a_graph_that_is_changed_before_every_launch_is_priced_by_its_calls() -> None:
    made = loop(["train"], marks="step {}", gap_ns=MS)
    for row in list(made.rows["kernels"]):
        made.api("cuGraphExecKernelNodeSetParams_v2", row["start_ns"] - 600 * US, row["start_ns"] - 200 * US)
    found = findings(made)["graphs-updated-every-step"]
    assert found.evidence["calls_per_step"] == 1
    assert found.evidence["idle_launch_in_them_ns"] == 11 * 400 * US


def measured(path: str) -> Measures:
    return analyse([read((MORE if path.startswith("kineto/") else PUBLIC) / path)]).measures


INPUT_BOUND = [
    "kineto/facebookresearch__param__resnet_kineto.json.gz",
    "kineto/kineto__resnet50_w0_a.pt.trace.json.gz",
    "kineto/tracelens__h100__google_owlv2-large-patch14-ensemble__1016001.json.gz",
]


@needs_shared
@pytest.mark.parametrize("path", few(INPUT_BOUND))
def test_real_trainings_that_wait_for_their_dataloader_say_so_first(path: str) -> None:
    first = measured(path).findings[0]
    assert first.code == "input-pipeline-slow" and "DataLoader" in first.change


@needs_shared
def test_a_real_trace_without_a_pool_of_memory_is_not_launch_bound_first() -> None:
    measures = measured("kineto/tracelens__ddp_resnet18.json.gz")
    assert measures.findings[0].code == "memory-allocated-in-the-loop"
    assert "hipFree" in measures.findings[0].text


@needs_shared
def test_bytes_that_kinetos_kernels_carry_are_read() -> None:
    (gpu,) = measured("kineto/hta__nccl_parser_config__nccl_data.json.gz").gpus
    # ResNet-50's 25.6 million parameters as float32, and buffers.
    assert gpu.collectives.bytes_per_step == 102_441_032
    assert gpu.collectives.kinds["broadcast"]["bytes"] == 638_712
