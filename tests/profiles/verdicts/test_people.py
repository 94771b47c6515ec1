"""What recordings of people's own programs showed: a finding that misled, each with the program that had it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from profiles import analyse
from profiles.model.findings import Finding
from tests.made.build import Build

US, MS = 1_000, 1_000_000
ATEN = "void at::native::vectorized_elementwise_kernel<4>"
NCCL = "ncclDevKernel_{}(ncclDevKernelArgsStorage<4096ul>)"


def findings(*programs: Build) -> dict[str, Finding]:
    for rank, made in enumerate(programs):
        made.recording = replace(made.recording, path=f"rank{rank}.sqlite", rank=rank, rank_source="marks")
    return {one.code: one for one in analyse([made.timeline() for made in programs]).measures.findings}


def looped(*kernels: str, steps: int = 12, gap_ns: int = MS, each_ns: int = 200 * US, mark: str = "step {}") -> Build:
    """Steps of kernels, launched `gap_ns` after the step before by a host that is in no call."""
    made, now = Build(), 10 * MS
    for number in range(steps):
        now += gap_ns
        made.mark(mark.format(number), now - 20 * US, now + len(kernels) * each_ns, domain="")
        for name in kernels:
            made.kernel(now, now + each_ns, name, call=(now - 10 * US, now - 9 * US))
            now += each_ns
    return made


def copying(src_kind: str, *, each_ns: int, start_ns: int = 0, share: float = 0.5) -> Build:
    """A loop of synchronous copies and a kernel after each, which computes that share of the loop's time; the host
    prepares it for `start_ns` after the first copy."""
    made, now = Build(), 10 * MS
    for number in range(10):
        made.copy("h2d", now, now + each_ns, 8 << 20, call=(now - US, now + each_ns + US), api="cudaMemcpy",
                  src_kind=src_kind)  # fmt: skip
        now += each_ns + 5 * US + (start_ns if number == 0 else 0)
        lasts = int(each_ns * share / (1 - share))
        made.kernel(now, now + lasts, f"kernel {number}", call=(now - 4 * US, now - 3 * US))
        now += lasts + US
    return made


@pytest.mark.parametrize(
    ("kernels", "graph", "said", "unsaid"),
    [
        ([ATEN], False, "torch.compile(model, mode=", "the compiled model"),
        ([ATEN, "triton_poi_fused_add_mul_0"], False, "the optimizer's step in a separate torch", "model, mode"),
        ([ATEN], True, "outside of the CUDA graphs", "reduce-overhead"),
    ],
)  # fmt: skip
def test_what_is_compiled_or_in_graphs_is_not_told_to_be(
    kernels: list[str], graph: bool, said: str, unsaid: str
) -> None:
    made = looped(*kernels, "multi_tensor_apply_kernel")
    if graph:
        for row in [*made.rows["marks"]]:
            made.graph(row["end_ns"], row["end_ns"] + 50 * US, call=(row["start_ns"], row["start_ns"] + US))
    change = findings(made)["python-in-the-loop"].change
    assert said in change and unsaid not in change


@pytest.mark.parametrize("each_ns", [200 * US, 10 * US])
def test_a_server_that_hardly_computes_may_have_no_requests(each_ns: int) -> None:
    found = findings(looped(*[ATEN] * 4, mark="execute_model_{}", each_ns=each_ns))
    assert found["python-in-the-loop"].change.startswith("nothing, if the GPU idled because no request came")
    assert "tiny-batch" not in found


@pytest.mark.parametrize(
    ("mark", "within", "said", "unsaid"),
    [
        ("execute_context_1(888)_generation_0(0)", True, "prompt", "decod|request"),
        ("execute_context_1(888_888)_generation_0(0)", True, "prompt", "decod|request"),
        ("execute_context_1(888)_generation_0(0)", False, "no request came.*prompts", "decod"),
        ("step[EXTEND bs=2 toks=888]", True, "prompt", "decod|request"),
        ("[Executor] _forward_step {}: 1 ctx reqs, 0 gen reqs", True, "prompt", "decod|request"),
        ("execute_context_1(888)_generation_4(4)", True, "graphs for decoding", "request"),
        ("execute_context_0(0)_generation_{}(16)", False, "no request came.*graphs for decoding", "prompt"),
        ("step[DECODE bs=32]", True, "graphs for decoding", "request"),
    ],
)
def test_a_server_is_told_of_requests_between_passes_and_of_decoding_where_it_decodes(
    mark: str, within: bool, said: str, unsaid: str
) -> None:
    """It waits for launches before each kernel of a pass, or before the first one."""
    made, now = Build(), 10 * MS
    for number in range(8):
        made.mark(mark.format(number + 1), now, now + 12 * MS, domain="")
        at = now + 20 * US
        for place in range(10):
            at += (MS if within else 9 * MS * (place == 0)) + 10 * US
            made.kernel(at, at + 100 * US, ATEN, call=(at - 5 * US, at - 4 * US))
            at += 100 * US
        now += 13 * MS
    change = findings(made)["python-in-the-loop"].change
    assert re.search(said, change) and not re.search(unsaid, change), change


@pytest.mark.parametrize(("kernels", "example"), [(4, True), (25, False)])
def test_a_handful_of_kernels_of_a_framework_is_an_example(kernels: int, example: bool) -> None:
    made = Build()
    made.mark("ProfilerStep#1", 9 * MS, 9 * MS + kernels * MS, domain="")
    for number in range(kernels):
        at = (10 + number) * MS
        made.kernel(at, at + 100 * US, ATEN, call=(at - 5 * US, at - 4 * US))
    found = findings(made)
    assert ("launch-bound" in found or "python-in-the-loop" in found) is not example
    assert ("too few" in getattr(found.get("loss-not-judged"), "text", "")) is example


@pytest.mark.parametrize("graph", [False, True])
def test_waits_that_end_with_a_graph_are_told_of_the_graph(graph: bool) -> None:
    made, now = Build(), 10 * MS
    for _ in range(40):
        made.kernel(now, now + MS, ATEN, call=(now - 1_500 * US, now - 1_499 * US),
                    api="cudaGraphLaunch" if graph else "cudaLaunchKernel")  # fmt: skip
        now += 2 * MS
    found = findings(made)["launched-work-waits"]
    assert ("CUDA graph" in found.text) is ("cudaGraphUpload" in found.change) is graph


@pytest.mark.parametrize(
    ("calls", "streams", "said", "advised"),
    [
        ((), 1, "does not show", "what else runs"),
        (("cuMemAllocManaged",), 1, "does not show", "managed memory"),
        (("cuGraphicsMapResources",), 1, "graphics$", "opengl"),
        (("cudaStreamWaitEvent_v3020",), 1, "an event$", "what ends when a wait does"),
        (("hipLaunchHostFunc",), 1, "a function of the host$", "what ends when a wait does"),
        ((), 2, "another stream$", "what ends when a wait does"),
        (("cudaStreamWaitEvent_v3020",), 2, "an event or another stream$", "what ends when a wait does"),
    ],
)
def test_launched_work_waits_for_what_the_recording_shows(
    calls: tuple[str, ...], streams: int, said: str, advised: str
) -> None:
    made, now = Build(), 10 * MS
    for number in range(40):
        call = (now - 1_500 * US, now - 1_499 * US)
        made.kernel(now, now + MS, "solve", call=call, stream=7 + number % streams)
        now += 2 * MS
    for name in calls:
        made.api(name, MS, MS + US)
    found = findings(made)["launched-work-waits"]
    assert re.search(said, found.text) and advised in found.change


@pytest.mark.parametrize(("start_ns", "share", "priced"), [(0, 0.5, True), (20 * MS, 0.01, False)])
def test_the_start_of_a_program_after_its_first_copy_is_no_price_of_synchronous_copies(
    start_ns: int, share: float, priced: bool
) -> None:
    made = copying("pinned", each_ns=100 * US, start_ns=start_ns, share=share)
    (gpu,) = analyse([made.timeline()]).measures.gpus
    found = findings(made)["copies-synchronous"]
    h2d = gpu.ledger_ns["h2d"] or 0
    assert found.at_most_gain is not None
    assert (found.at_most_gain > 1.01 * (gpu.span_ns / (gpu.span_ns - h2d) - 1)) is priced


@pytest.mark.parametrize(("src_kind", "told"), [("pinned", True), ("pageable", False)])
def test_copies_from_other_memory_are_no_slower_link(src_kind: str, told: bool) -> None:
    fast, slow = copying("pinned", each_ns=200 * US), copying(src_kind, each_ns=800 * US)
    for row in [*slow.rows["kernels"], *slow.rows["copies"]]:
        row["device"] = 1
    assert ("slow-link" in findings(fast, slow)) is told


def exchanging(kinds: list[str], *, late: int = 0, compute_ns: int = 2 * MS) -> Build:
    """Ten steps that compute, then a collective of each kind; it lasts longer on all ranks but the `late` one."""
    made, now = Build(), 10 * MS
    made.device(0, uuid=f"gpu of {late}")
    for _ in range(10):
        made.kernel(now, now + compute_ns, ATEN, call=(now - 10 * US, now - 9 * US))
        made.kernel(
            now + compute_ns, now + compute_ns + US, "multi_tensor_apply_kernel", call=(now - 8 * US, now - 7 * US)
        )
        now += compute_ns + US
        for kind in kinds:
            made.kernel(now + late, now + 500 * US, NCCL.format(kind), call=(now - 6 * US, now - 5 * US))
            now += 510 * US
    return made  # fmt: skip


def test_gathering_answers_is_no_sharded_model() -> None:
    gathered = findings(exchanging(["AllGather_RING_LL"]))["collectives-exposed"]
    assert "FSDP" not in gathered.change and "sharded" not in gathered.text
    sharded = findings(exchanging(["AllGather_RING_LL", "ReduceScatter_Sum_bf16_RING_LL"]))["collectives-exposed"]
    assert "FSDP" in sharded.change


@pytest.mark.parametrize(("kind", "told"), [("Broadcast_RING_LL", False), ("AllReduce_Sum_f32_RING_LL", True)])
def test_many_broadcasts_are_no_gradients_in_pieces(kind: str, told: bool) -> None:
    kinds = ["AllReduce_Sum_f32_RING_LL", *[kind] * 11]
    assert ("collectives-not-fused" in findings(exchanging(kinds))) is told


@pytest.mark.parametrize(("broadcasts", "code"), [(1, "all-reduce-exposed"), (3, "collectives-exposed")])
def test_what_is_exposed_longest_has_its_own_name(broadcasts: int, code: str) -> None:
    kinds = ["AllReduce_Sum_f32_RING_LL"] * 2 + ["Broadcast_RING_LL"] * broadcasts
    found = findings(exchanging(kinds))
    assert {"all-reduce-exposed", "collectives-exposed"} & set(found) == {code}
    assert ("broadcast from one rank" in found[code].text) is (code == "collectives-exposed")
    assert ("all-reduce" in found[code].text) is (code == "all-reduce-exposed")


def test_collectives_alone_do_not_show_what_could_hide_them() -> None:
    made = exchanging(["AllReduce_Sum_f32_RING_LL"])
    made.rows["kernels"] = [row for row in made.rows["kernels"] if row["name"].startswith("nccl")]
    assert list(findings(made)) == ["loss-not-judged"]


@pytest.mark.parametrize(("compute_ns", "told"), [(2 * MS, True), (5 * US, False)])
def test_ranks_that_wait_while_a_program_starts_have_no_straggler(compute_ns: int, told: bool) -> None:
    kinds = ["AllReduce_Sum_f32_RING_LL"]
    ranks = [exchanging(kinds, late=late, compute_ns=compute_ns) for late in (0, 400 * US)]
    if not told:  # a capture without steps
        for made in ranks:
            made.rows["kernels"] = [row for row in made.rows["kernels"] if row["name"] != "multi_tensor_apply_kernel"]
    assert ("straggler" in findings(*ranks)) is told


@pytest.mark.parametrize(("loading_ms", "starting_ms"), [(20, 60), (10, 10)])
def test_a_wait_that_loading_fills_for_a_quarter_is_the_start_of_the_program(loading_ms: int, starting_ms: int) -> None:
    made = Build()
    for number in range(40):
        start = 10 * MS + number * MS + (60 * MS if number >= 20 else 0)
        made.kernel(start, start + MS, f"kernel {number}", call=(start - 10, start - 5))
    made.api("cuLibraryLoadData", 40 * MS, (40 + loading_ms) * MS)
    measures = analyse([made.timeline()]).measures
    assert measures.gpus[0].startup_ns == starting_ms * MS
    # One pause between kernels is no loop, whatever the host does meanwhile.
    assert [one.code for one in measures.findings] == ["loss-not-judged"]


@pytest.mark.parametrize(
    ("waits_ns", "marked", "told"), [(300 * US, False, False), (300 * US, True, True), (2 * MS, False, True)]
)
def test_what_python_takes_to_begin_a_step_is_no_slow_input(waits_ns: int, marked: bool, told: bool) -> None:
    made, now = Build(), 10 * MS
    for number in range(12):
        if marked:
            made.mark("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", now, now + waits_ns, domain="")
        now += waits_ns
        made.mark(f"step {number}", now - 20 * US, now + MS, domain="")
        made.copy("h2d", now, now + 20 * US, 1 << 20, call=(now - 10 * US, now + 20 * US))
        made.kernel(now + 21 * US, now + MS, ATEN, call=(now + US, now + 2 * US))
        now += MS
    assert ("input-pipeline-slow" in findings(made)) is told


def test_float32_in_pytorch_is_told_of_tf32() -> None:
    found = findings(looped(ATEN, "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_nt_align1>"))
    assert "set_float32_matmul_precision" in found["off-tensor-cores"].change


@pytest.mark.parametrize(("filling", "told"), [(1, True), (20, False)])
def test_a_gpu_that_kernels_fill_for_a_tenth_of_the_time_is_no_slower_than_a_cpu(filling: int, told: bool) -> None:
    kernels = ["forward", ATEN] * 10
    made, now = Build(), 10 * MS
    for number in range(8):
        made.mark(f"step {number}", now - 20 * US, now + 2 * MS, domain="")
        for at, name in enumerate(kernels):
            lasts = 12 * US if at < filling else 2 * US
            made.kernel(now, now + lasts, name, call=(now - 2 * US, now - US))
            now += lasts + 80 * US
    assert ("cpu-may-be-faster" in findings(made)) is told


def test_a_recurrent_layer_of_cudnn_is_not_told_to_be_compiled_by_pytorch() -> None:
    kernels = [
        "void LSTM_elementWise_fp<float, float, float, (cudnnRNNBiasMode_t)2>",
        ATEN,
        "multi_tensor_apply_kernel",
    ]
    found = findings(looped(*kernels * 400, each_ns=US))
    assert "not-compiled" not in found
    change = found["python-in-the-loop"].change
    assert "make_graphed_callables" in change and "reduce-overhead" not in change
    assert "not-compiled" in findings(looped(*kernels[1:] * 600, each_ns=US))


@pytest.mark.parametrize(("second", "told"), [("cudaGraphUpload", {"launch-bound"}), (None, {"python-in-the-loop"})])
def test_a_host_in_calls_of_several_kinds_is_not_in_python(second: str | None, told: set[str]) -> None:
    made = looped(ATEN, "multi_tensor_apply_kernel")
    for row in [*made.rows["marks"]]:
        launched = row["start_ns"] + 10 * US
        if second:
            made.api("cudaEventCreate", launched - 980 * US, launched - 500 * US)
            made.api(second, launched - 490 * US, launched - 10 * US)
    (gpu,) = analyse([made.timeline()]).measures.gpus
    calls = {(row["start_ns"], row["end_ns"]) for row in made.rows["api"]}
    idle = [one for one in range(gpu.window_ns[0], gpu.window_ns[1], US) if not busy(made, one)]
    outside = sum(not any(start <= one < end for start, end in calls) for one in idle)
    assert abs((gpu.outside_calls_ns or 0) - outside * US) < 40 * US
    assert set(findings(made)) & {"launch-bound", "python-in-the-loop"} == told


def busy(made: Build, at: int) -> bool:
    return any(row["start_ns"] <= at < row["end_ns"] for row in made.rows["kernels"])


@pytest.mark.parametrize(
    ("unfused", "kernel", "told"),
    [(60, ATEN, True), (20, ATEN, False), (60, "triton_poi_fused_add_mul_0", False), (60, "add_kernel(float*)", False)],
)
def test_a_step_of_few_kernels_is_not_compiled_where_much_of_it_is_elementwise(
    unfused: int, kernel: str, told: bool
) -> None:
    """Launched ahead, 60 or 20 of 140 such kernels, the others matrix products: torch.compile would fuse them."""
    made, now = Build(), 10 * MS
    for number in range(12):
        made.mark(f"ProfilerStep#{number}", now - 2 * MS, now + 10 * MS, domain="")
        for name in [kernel] * unfused + ["sm90_xmma_gemm_bf16bf16_bf16f32"] * (140 - unfused):
            made.kernel(now, now + 100 * US, name, call=(now - MS, now - MS + US))
            now += 101 * US
    found = findings(made)
    assert ("not-compiled" in found) is told
    if told:
        one = found["not-compiled"]
        assert one.evidence["unfused_ns"] == 60 * 100 * US * 11  # the last step's end is not known
        assert one.change.startswith("torch.compile(model)") and "140 kernels per step" in one.text


@pytest.mark.parametrize("kernels", [20, 300, 900])
@pytest.mark.parametrize("in_call", [True, False])
@pytest.mark.parametrize("name", [ATEN, "void tensorflow::BiasNHWCKernel<float>", "mine(float*)"])
def test_launch_idle_has_an_owner_and_advice_however_few_the_kernels(name: str, in_call: bool, kernels: int) -> None:
    """An eighth of the time the GPU waits for a launch: in the launch call, or between the calls."""
    made, now = Build(), 10 * MS
    for number in range(8):
        made.mark(f"step {number}", now - US, now + kernels * 160 * US - 2 * US, domain="")
        for _ in range(kernels):
            called = now + (US if in_call else 16 * US)
            made.kernel(now + 20 * US, now + 160 * US, name, call=(called, now + 19 * US))
            now += 160 * US
    found = findings(made)
    assert ("launch-bound" if in_call else "python-in-the-loop") in found
    assert all(one.change for one in found.values()) and "loss-not-judged" not in found
