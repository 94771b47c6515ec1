"""Steps by the marks that frameworks and servers write, and repetitions that are no steps."""

from __future__ import annotations

import itertools

import pytest

from profiles import analyse
from profiles.gpus import gather
from profiles.readers import read
from profiles.steps import find
from profiles.steps.found import FoundSteps
from tests.made.build import Build
from tests.recordings import MORE, PUBLIC, SHARED, needs_shared

LAYER = ["norm", "qkv", "attention", "projection", "norm", "up", "down"]


def repeated(times: int, names: list[str], *, each: int = 1_000) -> Build:
    """Kernels one after the other, each launched just before it."""
    made = Build()
    now = 10_000
    for name in itertools.chain.from_iterable([names] * times):
        made.kernel(now, now + each, name, call=(now - 500, now - 400))
        now += each + 100
    return made


def found(made: Build) -> FoundSteps:
    timeline = made.timeline()
    (gpu,) = gather.gather([timeline])
    return find.find(gpu, [timeline])


def marked(pattern: str, *, steps: int = 6, domain: str = "") -> Build:
    made = Build()
    now = 1_000_000
    for number in range(steps):
        made.mark(pattern.format(number), now, now + 900_000, domain=domain)
        made.kernel(now + 100_000, now + 400_000, "forward", call=(now + 10_000, now + 20_000))
        made.kernel(now + 500_000, now + 800_000, "backward", call=(now + 30_000, now + 40_000))
        now += 1_000_000
    return made


@pytest.mark.parametrize(
    "pattern",
    [
        "step {}",
        "ProfilerStep#{}",
        "train#step_num={},_r=1#",
        "iteration {}",
        "train_step_{}",
        "Iter {}",
        "Training Step {}",
    ],
)
def test_marks_of_frameworks_are_steps(pattern: str) -> None:
    steps = found(marked(pattern))
    assert (steps.source, steps.count, steps.unit) == ("marks", 6, "step")
    assert steps.step_number.tolist() == list(range(6))


@pytest.mark.parametrize(
    "pattern",
    [
        "step[DECODE bs={}]",
        "execute_context_{}(1)_generation_4(9)",
        "execute_model_{}",
        "execute_new_1_cached_{}",
        "[Executor] _forward_step {}: 1 ctx reqs, 4 gen reqs",
        "inference#step_num={},_r=1#",
        "eval_step#step_num={}#",
    ],
)
def test_passes_of_a_server_are_batches(pattern: str) -> None:
    steps = found(marked(pattern))
    assert (steps.source, steps.count, steps.unit) == ("marks", 6, "batch")


@pytest.mark.parametrize(
    "name", ["epoch {}", "step one", "stepping {}", "step 99999999999999999999999{}", "footstep {}"]
)
def test_other_ranges_are_no_steps(name: str) -> None:
    assert found(marked(name)).source is None


def test_layers_in_one_marked_pass_are_no_steps() -> None:
    made = repeated(33, LAYER)
    made.mark("step[DECODE bs=32]", 5_000, 20_000)  # the launches end in it, the kernels run on
    steps = found(made)
    assert steps.source is None and steps.repeats is not None
    assert (steps.repeats.period_ns, steps.repeats.count) == (7 * 1_100, 32)


def test_kernels_that_repeat_and_take_no_batch_are_no_steps() -> None:
    steps = found(repeated(40, LAYER))
    assert steps.source is None and steps.repeats is not None
    assert steps.refused is not None and "the kernels repeat every 7.700 µs (39 times)" in steps.refused


@pytest.mark.parametrize("holds", ["optimiser kernel", "input copy", "forward range", "gradient of a node"])
def test_a_period_is_a_step_where_each_holds_what_a_step_does(holds: str) -> None:
    made = repeated(40, LAYER if holds != "optimiser kernel" else [*LAYER, "multi_tensor_apply_kernel"])
    for number in range(40):
        begins = 10_000 + number * 7 * 1_100
        if holds == "input copy":
            made.copy("h2d", begins - 90, begins - 10, size=1 << 20)
        elif holds == "forward range":
            made.mark("Batch- Forward", begins - 550, begins, domain="")
        elif holds == "gradient of a node":
            made.mark("Sum.3(Accumulate_Grad/Sum_1)", begins - 550, begins, domain="")
    assert found(made).source == "period"


@pytest.mark.parametrize(
    ("kernels", "beside", "unit"),
    [
        ([], None, "batch"),
        (["void at::native::(anonymous namespace)::multi_tensor_apply_kernel<...>"], None, "step"),
        (["sm80_xmma_wgrad_implicit_gemm"], None, "step"),
        ([], "loss.backward", "step"),
    ],
)
def test_a_loop_of_pytorch_that_goes_forward_alone_is_of_batches(
    kernels: list[str], beside: str | None, unit: str
) -> None:
    names = ["void at::native::vectorized_elementwise_kernel<4, ...>", "sgemm", "softmax", *kernels]
    made = repeated(40, names)
    for number in range(40):
        begins = 10_000 + number * len(names) * 1_100
        made.copy("h2d", begins - 90, begins - 10, size=1 << 20)
        if beside:
            made.mark(beside, begins - 550, begins, domain="")
    steps = found(made)
    assert (steps.source, steps.unit) == ("period", unit)


def test_a_layers_own_gradient_makes_no_step_of_the_layer() -> None:
    made = repeated(40, LAYER)
    for number in range(40):
        begins = 10_000 + number * 7 * 1_100
        made.mark(f"MatMul.3(layer{number}_Grad/MatMul)", begins - 550, begins, domain="")
    assert found(made).source is None


def test_gradients_reduced_layer_by_layer_make_no_steps_of_the_layers() -> None:
    assert found(repeated(40, [*LAYER, "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL"])).source is None


LAYERS = [
    ("tracelens__inference__sglang_decode__sglang_Qwen3-8B_decode.json.gz", 250_174, 34),
    ("tracelens__h100__Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz", 1_393_658, 33),
]


@needs_shared
@pytest.mark.parametrize(("name", "period_ns", "count"), LAYERS)
def test_transformer_layers_of_one_marked_pass_are_no_steps(name: str, period_ns: int, count: int) -> None:
    (gpu,) = analyse([read(MORE / "kineto" / name)]).measures.gpus
    assert gpu.window == "capture" and gpu.steps.count == 0
    assert gpu.steps.repeats == {"period_ns": period_ns, "count": count}


@needs_shared
def test_a_step_that_kineto_repeats_on_the_gpus_track_is_counted_once() -> None:
    (gpu,) = analyse([read(MORE / "kineto/hta__nccl_parser_config__nccl_data.json.gz")]).measures.gpus
    assert (gpu.steps.source, gpu.steps.count) == ("marks", 3)


@needs_shared
def test_steps_in_a_small_part_of_a_recording_leave_the_lead_to_the_capture() -> None:
    (gpu,) = analyse([read(PUBLIC / "nvprof-sqlite/ort-training.nvvp")]).measures.gpus
    assert gpu.steps.count == 98 and gpu.window == "steps"
    assert gpu.leads_with_capture and gpu.capture is not None
    assert sum(ns for ns in gpu.capture["ledger_ns"].values() if ns is not None) == gpu.capture["span_ns"]
    (whole,) = analyse([read(PUBLIC / "nvprof-sqlite/ort-training.nvvp")], window="capture").measures.gpus
    assert whole.capture is None
    assert gpu.capture["ledger_ns"] == whole.ledger_ns and gpu.capture["window_ns"] == whole.window_ns


@pytest.mark.parametrize("late_ns", [0, 400_000])
def test_a_step_that_a_second_thread_marks_too_is_counted_once(late_ns: int) -> None:
    made = marked("step {}")
    for number in range(6):
        start = 1_000_000 * (number + 1) + late_ns
        made.mark(f"step {number}", start, start + 900_000, domain="", tid=2)
    assert found(made).start_ns.tolist() == found(marked("step {}")).start_ns.tolist()


def overlapping(*, unknown: int = 0) -> Build:
    """Each step's second half runs on a stream of its own, beside the next step's first half: four kernels each. Before
    all of it `unknown` kernels that were launched before the recording began."""
    made = Build()
    for number in range(unknown):
        made.kernel(1_000_000 + 1_000 * number, 1_000_500 + 1_000 * number, "before")
    for number in range(8):
        now = 1_000_000 * (number + 1)
        made.mark(f"step {number}", now, now + 900_000)
        for kernel in range(4):
            late = 700_000 if kernel >= 2 else 0
            start = now + 100_000 + 200_000 * kernel + late
            called = now + 10_000 * (kernel + 1)
            made.kernel(start, start + 90_000, f"k{kernel}", stream=7 + (kernel >= 2), call=(called, called + 5_000))
    return made


@pytest.mark.parametrize("unknown", [0, 30])
def test_kernels_of_steps_that_overlap_are_counted_by_their_calls(unknown: int) -> None:
    (gpu,) = analyse([overlapping(unknown=unknown).timeline()]).measures.gpus
    assert [row.kernels for row in gpu.steps.rows] == [4] * len(gpu.steps.rows) and len(gpu.steps.rows) >= 6
    assert gpu.kernels.per_step == 4


@needs_shared
def test_each_step_of_a_real_recording_whose_steps_overlap_launched_as_many_kernels() -> None:
    (gpu,) = analyse([SHARED / "third" / "public" / "overlapping-steps.json.gz"]).measures.gpus
    assert [row.kernels for row in gpu.steps.rows] == [1_555] * 5
