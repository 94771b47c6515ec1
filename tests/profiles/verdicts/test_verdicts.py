"""Every verdict on measures that have the fault and on measures that do not; prices against sums made here."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from profiles import measure
from profiles.model.findings import Finding, Straggler
from profiles.runs.records import Cell
from profiles.verdicts import Context, find
from tests.figures import figures
from tests.made.build import Build
from tests.made.hand import gpu, measures

MS = 1_000_000
CELL = Cell(model="resnet50", ranks=2, per_rank_batch=128)


def _find(code: str, *gpus: Any, cell: Cell | None = None, **context: Any) -> Finding | None:
    found = [f for f in find(measures(gpus), Context(cell=cell, **context)) if f.code == code]
    assert len(found) <= 1
    return found[0] if found else None


PAGEABLE = {"count": 10, "bytes": 10 * 77 * MS, "gb_per_s": 8.0, "pageable_share": 1.0}
INPUTS = {
    "count": 10,
    "bytes": 770 * MS,
    "busy_ns": 20 * MS,
    "exposed_ns": 20 * MS,
    "exposed_this_step_ns": 20 * MS,
    "exposed_later_step_ns": 0,
    "overlap": 0.0,
}
LATER = {**INPUTS, "exposed_this_step_ns": 0, "exposed_later_step_ns": 20 * MS, "overlap": 0.7}
STORM = {
    "kernels": {"per_step": 3800, "short_elementwise_runs": {"runs": 9, "kernels": 90, "total_ns": 1}},
    "groups": {"elementwise": (2500, 3 * MS), "reduction": (400, 3 * MS), "convolution_matmul": (700, MS)},
    "ledger": {"idle_launch": MS, "idle_turnaround": MS // 5},
}
REDUCTIONS = [("void tensorflow::functor::ColumnReduceKernel<float *>", 1000, 9 * MS)]
CONVOLVED = [("sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc", 700, MS), *REDUCTIONS]

# code: (with the fault, without it); each the arguments of `gpu` and, under `cell`, what the harness knows
SHORT = {"share_under_5us": 0.8, "under_5us_ns": 20 * MS}
IDLE_CODES = ("python-in-the-loop", "cpu-may-be-faster", "tiny-batch")
ONE_GPU: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "not-compiled": (STORM, {**STORM, "groups": {**STORM["groups"], "fused": (300, MS)}}),
    "unfused-batch-norm": (
        {"top": CONVOLVED, "groups": {"reduction": (400, 3 * MS), "convolution_matmul": (700, MS)}},
        {
            "top": CONVOLVED,
            "groups": {"reduction": (400, 3 * MS), "convolution_matmul": (700, MS), "batch_norm": (106, MS)},
        },
    ),
    "generic-rnn-cell": (
        {
            "groups": {"rnn_gates": (900, MS), "elementwise": (2000, MS)},
            "kernels": {"recurrent_cells": 300},
            "ledger": {"idle_launch": MS},
        },
        {"groups": {"rnn_gates": (4, MS), "rnn_cell": (12, MS)}, "ledger": {"idle_launch": MS}},
    ),
    "launch-bound": ({"ledger": {"idle_launch": MS}}, {"ledger": {"idle_wait": MS}}),
    "short-kernels": ({"ledger": {"idle_turnaround": MS}}, {"ledger": {"idle_turnaround": MS // 10}}),
    "loss-fetched-every-step": (
        {"d2h_per_step": 2, "ledger": {"idle_sync": MS}},
        {"d2h_per_step": 0, "ledger": {"idle_sync": MS}},
    ),
    "host-synchronises": ({"ledger": {"idle_sync": MS}}, {"d2h_per_step": 2, "ledger": {"idle_sync": MS}}),
    "launched-work-waits": ({"ledger": {"idle_wait": MS}}, {"ledger": {"idle_wait": MS // 10}}),
    "tiny-batch": (
        {"kernels": SHORT, "ledger": {"idle_launch": 5 * MS}},
        {"kernels": SHORT, "ledger": {"idle_launch": MS}},
    ),
    "copies-between-gpus": (
        {"ledger": {"p2p": MS}, "cell": replace(CELL, strategy="replicas", step="fit")},
        {"ledger": {"p2p": MS // 20}},
    ),
    "off-tensor-cores": (
        {"top": [("cutlass_80_simt_sgemm_128x32_nn_align1", 100, 20 * MS)]},
        {"top": [("cutlass_80_tensorop_f16_s16816gemm_align8", 100, 20 * MS)]},
    ),
    "python-in-the-loop": (
        {
            "ledger": {"idle_launch": 2 * MS},
            "host": [{"kind": "api", "name": "cuLaunchKernel", "ns": MS, "share": 0.05}],
        },
        {
            "ledger": {"idle_launch": 2 * MS},
            "host": [{"kind": "api", "name": "cuLaunchKernel", "ns": 20 * MS, "share": 1.0}],
        },
    ),
    "cpu-may-be-faster": (
        {"ledger": {"compute": MS, "idle_launch": 9 * MS}},
        {"ledger": {"compute": 6 * MS, "idle_launch": 4 * MS}},
    ),
    "input-pipeline-slow": ({"ledger": {"idle_feed": MS}}, {"ledger": {"idle_feed": MS // 10}}),
    "no-prefetch": (
        {"ledger": {"idle_feed": 3 * MS, "h2d": 2 * MS}, "inputs": INPUTS},
        {"ledger": {"idle_feed": MS, "h2d": 2 * MS}, "inputs": INPUTS},
    ),
    "prefetch-on-host-only": (
        {"ledger": {"idle_feed": MS // 5, "h2d": 2 * MS}, "inputs": INPUTS},
        {"ledger": {"h2d": 2 * MS}, "inputs": LATER},
    ),
    "copies-pageable": (
        {"ledger": {"h2d": 2 * MS}, "h2d": PAGEABLE, "inputs": INPUTS},
        {"ledger": {"h2d": 2 * MS}, "h2d": {**PAGEABLE, "pageable_share": 0.0}, "inputs": INPUTS},
    ),
    "copies-synchronous": (
        {"ledger": {"h2d": 2 * MS}, "h2d": {"count": 20, "under_64kib": 10, "synchronous": 20}},
        {"ledger": {"h2d": 2 * MS}, "h2d": {"count": 20, "under_64kib": 10, "synchronous": 0}},
    ),
    "copies-exposed-although-prefetched": (
        {"ledger": {"h2d": 2 * MS}, "inputs": LATER},
        {"ledger": {"h2d": 2 * MS}, "inputs": INPUTS},
    ),
    "copies-exposed": (
        {"ledger": {"h2d": 2 * MS}, "h2d": {"pageable_share": 0.0, "gb_per_s": 50.0}},
        {"ledger": {"h2d": 2 * MS}, "h2d": PAGEABLE, "inputs": INPUTS},
    ),
    "float32-input": (
        {"cell": CELL, "ledger": {"h2d": 2 * MS}, "inputs": INPUTS},
        {"cell": replace(CELL, input_dtype="uint8"), "ledger": {"h2d": 2 * MS}, "inputs": INPUTS},
    ),
    "all-reduce-exposed": ({"ledger": {"collective": MS}}, {"busy": {"collective": MS}}),
    "collectives-not-fused": (
        {"ledger": {"collective": MS}, "per_step_collectives": 161},
        {"ledger": {"collective": MS}, "per_step_collectives": 1},
    ),
    "gradients-not-compressed": (
        {"cell": CELL, "ledger": {"collective": 2 * MS}, "transfer": 2 * MS},
        {"cell": replace(CELL, compression="fp16"), "ledger": {"collective": 2 * MS}, "transfer": 2 * MS},
    ),
    "model-too-small": (
        {"step_ns": 3 * MS, "ledger": {"collective": MS}},
        {"step_ns": 30 * MS, "ledger": {"collective": 10 * MS}},
    ),
}


@pytest.mark.parametrize("code", ONE_GPU)
def test_a_verdict_is_given_where_the_fault_is_and_only_there(code: str) -> None:
    faulty, healthy = ({**arguments} for arguments in ONE_GPU[code])
    cells = [arguments.pop("cell", None) for arguments in (faulty, healthy)]
    found = _find(code, gpu(**faulty), cell=cells[0])
    assert found is not None and found.text and found.change and found.refuted_by
    assert found.at_most_gain is None or found.at_most_gain >= 0.01
    assert _find(code, gpu(**healthy), cell=cells[1]) is None


@pytest.mark.parametrize("code", ONE_GPU)
def test_advice_in_a_script_of_the_users_names_no_option_of_a_cell(code: str) -> None:
    arguments = {**ONE_GPU[code][0]}
    for name in ("cell", "machine"):
        arguments.pop(name, None)
    for finding in find(measures([gpu(**arguments)]), Context()):
        for words in (finding.change, finding.refuted_by):
            assert not re.search(r"ringscope bench|harness/|--(?!html|perfetto|xla_|cuda-)[a-z]", words), words


def test_a_straggler_is_named_and_priced_by_what_the_others_wait() -> None:
    waits = gpu(rank=0, ledger={"collective": 2 * MS}, waiting=MS, arrived_last=0.1)
    last = gpu(rank=1, ledger={"collective": MS}, waiting=0, arrived_last=0.9)
    found = _find("straggler", waits, last)
    assert found is not None and found.gpu == 1 and "rank 1" in found.text
    assert found.at_most_gain == pytest.approx(10 / 9 - 1)
    even = [gpu(rank=r, ledger={"collective": 2 * MS}, waiting=MS, arrived_last=0.5) for r in (0, 1)]
    assert _find("straggler", *even) is None


def test_a_straggler_has_been_one_since_the_call_that_was_found_not_since_the_first_step() -> None:
    waits = gpu(rank=0, ledger={"collective": 2 * MS}, waiting=MS, arrived_last=0.1)
    last = gpu(rank=1, ledger={"collective": MS}, waiting=0, arrived_last=0.9)
    both = measures([waits, last])
    for told, since in (
        (Straggler(1, 1, 35 * MS, 20, 0.95), {"since_ns": 35 * MS, "since_step": 3}),
        (Straggler(0, 0, 35 * MS, 20, 0.95), {}),  # the other one: it says nothing of this one
        (None, {}),
    ):
        both.straggler = told
        (found,) = (f for f in find(both) if f.code == "straggler")
        assert {key: value for key, value in found.evidence.items() if key.startswith("since")} == since
        assert ("from 35.00 ms on" in found.text) == bool(since)


@pytest.mark.parametrize(
    ("code", "window", "computing", "tenths", "found"),
    [
        *((code, "capture", 0, [100] * 10, False) for code in IDLE_CODES),
        *((code, "capture", MS // 2, [1] * 9 + [991], False) for code in IDLE_CODES),
        *((code, "steps", MS // 100, [1] * 9 + [991], True) for code in IDLE_CODES),
        # Of one operator or a few profiled without steps nothing follows for a batch or a device.
        *((code, "capture", MS // 2, [100] * 10, code == "python-in-the-loop") for code in IDLE_CODES),
    ],
)
def test_idle_between_collectives_or_in_a_set_up_says_nothing_of_a_training(
    code: str, window: str, computing: int, tenths: list[int], found: bool
) -> None:
    """A benchmark of NCCL waits for its launches nearly all the time, and so does a program that loads its data, whose
    kernels lie in one part of the capture."""
    one = gpu(
        ledger={"collective": MS // 2, "idle_launch": 9 * MS},
        busy={"compute": computing},
        kernels={**SHORT, "in_tenths": tenths},
        host=[{"kind": "api", "name": "cudaHostAlloc", "ns": 10 * MS, "share": 0.1}],
    )
    one.window = window
    assert (_find(code, one) is not None) == found


def test_numbers_and_kernels_in_a_sentence_are_as_the_page_writes_them() -> None:
    found = _find("not-compiled", gpu(**STORM))
    assert found is not None and "3,800 kernels per step" in found.text
    reductions = {"groups": {"reduction": (400, 3 * MS), "convolution_matmul": (700, MS)}}
    long = "void tensorflow::functor::ColumnReduceKernel<float *, Eigen::Sum<std::pair<int, int>>>(float *, int)"
    found = _find("unfused-batch-norm", gpu(top=[CONVOLVED[0], (long, 1000, 9 * MS)], **reductions))
    assert found is not None and "(tensorflow::functor::ColumnReduceKernel)" in found.text
    cutlass = "void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_128x128_32x3_nt_align4>(T1::Params)"
    found = _find("off-tensor-cores", gpu(top=[(cutlass, 100, 20 * MS)]))
    assert found is not None and found.text.startswith("cutlass_80_tensorop_f16_s16816gemm_128x128_32x3_nt_align4 is")


def test_a_gpu_that_computes_the_same_kernels_more_slowly_is_named() -> None:
    usual = [gpu(rank=r, ledger={"compute": 8 * MS, "collective": 2 * MS}) for r in (0, 1, 2)]
    slow = gpu(rank=3, ledger={"compute": 9 * MS, "collective": MS})
    found = _find("slow-gpu", *usual, slow)
    assert found is not None and found.gpu == 3 and found.cost_ns_per_step == MS
    assert _find("slow-gpu", *usual) is None


@pytest.mark.parametrize(("waiting", "gain"), [(7 * MS, 10 / 2 - 1), (3 * MS, 10 / 5 - 1), (None, 10 / 8 - 1)])
def test_ranks_that_wait_inside_collectives_keep_no_link_busy(waiting: int | None, gain: float) -> None:
    """Of 8 ms a step in collectives, and 2 ms of compute: the step can be no shorter than the link or the GPU works."""
    one = gpu(ledger={"compute": 2 * MS, "collective": 8 * MS}, waiting=waiting)
    one.collectives.exposed_waiting_ns = one.collectives.waiting_ns
    found = _find("all-reduce-exposed", one)
    assert found is not None and found.at_most_gain == pytest.approx(gain)


@pytest.mark.parametrize("code", ["all-reduce-exposed", "collectives-exposed"])
@pytest.mark.parametrize(("waiting", "first"), [(9, True), (5, False)])
def test_a_slow_gpu_comes_before_collectives_that_mostly_wait_for_it(code: str, waiting: int, first: bool) -> None:
    """Of 1.4 ms a step that collectives take on the fast GPU, 0.9 or 0.5 ms wait for the slow one."""
    fast = gpu(ledger={"compute": 8_600_000, "collective": 1_400_000}, waiting=waiting * MS // 10)
    slow_ns = 8_600_000 + waiting * MS // 10
    slow = gpu(rank=1, ledger={"compute": slow_ns, "collective": 10 * MS - slow_ns}, waiting=0)
    for one in (fast, slow):
        one.collectives.exposed_waiting_ns = one.collectives.waiting_ns
        if code == "collectives-exposed":
            kinds = {"count": 10, "exposed_ns": one.collectives.exposed_ns}
            one.collectives.kinds = {"all_gather": dict(kinds), "reduce_scatter": dict(kinds)}
    found = find(measures([fast, slow]), Context())
    codes = [one.code for one in found if one.code in (code, "slow-gpu")]
    assert codes == (["slow-gpu", code] if first else [code, "slow-gpu"])
    (exchange,) = (one for one in found if one.code == code)
    assert f"{waiting}.0 % waiting for other ranks" in exchange.text


def test_the_reductions_of_a_model_without_convolutions_are_no_batch_normalisation() -> None:
    """As of a transformer by TensorFlow, without XLA: gradients of layer normalisation and of biases."""
    products = [("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT", 648, 36 * MS), ("sm80_xmma_gemm_f32f32", 9, MS)]
    converts = [("EigenMetaKernel<TensorEvaluator<const TensorConversionOp<Eigen::bfloat16>>>", 432, 66 * MS)]
    groups = {"reduction": (400, 3 * MS), "convolution_matmul": (657, MS)}
    assert _find("unfused-batch-norm", gpu(top=[*REDUCTIONS, *converts, *products], groups=groups)) is None


@pytest.mark.parametrize(("more", "words"), [(0, "as many"), (3, "nearly as many"), (400, None)])
def test_a_slow_gpu_is_named_though_it_runs_a_few_other_kernels(more: int, words: str | None) -> None:
    """As ResNet-50's on two H200s, of which another program took one: 3,813 and 3,810 kernels a step."""
    usual, slow = (gpu(rank=r, ledger={"compute": ns}) for r, ns in ((0, 8 * MS), (1, 9 * MS)))
    usual.kernels.per_step, slow.kernels.per_step = 3810, 3810 + more
    found = _find("slow-gpu", usual, slow)
    assert (found is not None) == (words is not None)
    assert found is None or f"longer per step than the others, with {words} kernels" in found.text


@pytest.mark.parametrize(
    ("cores", "threads", "found"),
    [
        (8, (30, 30), True),
        (64, (30, 30), False),
        (32, (20, 20), False),  # pools of 16, and what launches beside them
        (32, (36, 36), True),  # pools of 32
        (1, (1, 1), True),
    ],
)
def test_more_launching_threads_than_cores_are_oversubscription(
    cores: int, threads: tuple[int, int], found: bool
) -> None:
    ranks = [gpu(rank=rank, ledger={"idle_launch": MS}) for rank in (0, 1)]
    for one, count in zip(ranks, threads, strict=True):
        one.calling_threads = count
    finding = _find("threads-oversubscribed", *ranks, machine={"cpu": {"usable": cores}})
    assert (finding is not None) == found


def test_threads_of_one_process_with_several_gpus_count_once() -> None:
    several = [gpu(rank=0, ledger={"idle_launch": MS}) for _ in range(2)]
    for device, one in enumerate(several):
        one.device, one.calling_threads = device, 18  # the same 18
    assert _find("threads-oversubscribed", *several, machine={"cpu": {"usable": 16}}) is None
    finding = _find("threads-oversubscribed", *several, machine={"cpu": {"usable": 8}})
    assert finding is not None and figures(finding.text)[:3] == ["18", "1", "8"]


def test_a_fault_of_some_gpus_is_one_finding_that_names_them() -> None:
    gpus = [gpu(rank=rank, ledger={"collective": ns}) for rank, ns in enumerate((MS, 0, 2 * MS))]
    found = _find("all-reduce-exposed", *gpus)
    assert found is not None and found.gpu == 2 and found.evidence["gpus"] == [0, 2]


def test_a_fault_of_every_gpu_is_one_finding_with_the_worst_gpus_numbers() -> None:
    found = _find("launch-bound", *(gpu(rank=r, ledger={"idle_launch": (r + 1) * MS}) for r in (0, 1)))
    assert found is not None and found.gpu is None and found.evidence["gpu"] == 1
    assert found.cost_ns_per_step == 2 * MS and found.at_most_gain == pytest.approx(10 / 8 - 1)


def test_findings_stand_in_the_order_of_what_they_give_back() -> None:
    found = find(measures([gpu(ledger={"idle_launch": MS, "collective": 3 * MS, "idle_turnaround": 2 * MS})]))
    gains = [-1 if f.at_most_gain is None else f.at_most_gain for f in found]
    assert len(gains) >= 3 and gains == sorted(gains, reverse=True)


def test_a_gain_never_makes_a_step_shorter_than_its_busiest_resource() -> None:
    copying = gpu(
        ledger={"compute": 6 * MS, "h2d": 4 * MS},
        busy={"h2d": 9 * MS},
        inputs=INPUTS | {"exposed_ns": 40 * MS},
    )
    found = _find("no-prefetch", copying, cell=replace(CELL, feed="host"))
    assert found is not None and found.at_most_gain == pytest.approx(10 / 9 - 1)
    copying.copies["h2d"].pageable_share, copying.copies["h2d"].gb_per_s = 1.0, 8.0
    found = _find("no-prefetch", copying, cell=replace(CELL, feed="host"))
    assert found is not None and found.at_most_gain == pytest.approx(10 / 6 - 1)  # pinned memory is faster, too


def test_kernels_that_do_not_fill_the_gpu_take_more_samples_for_nothing_at_best() -> None:
    few = gpu(kernels={"share_under_5us": 0.8, "under_5us_ns": 20 * MS}, ledger={"idle_launch": 5 * MS})
    found = _find("tiny-batch", few)
    assert found is not None and found.at_most_gain == pytest.approx(10 / (10 - 5 - 2) - 1)


@pytest.mark.parametrize(
    ("cell", "waiting", "groups", "said", "unsaid"),
    [
        (None, 0, {}, ("compression='fp16'", "groups=4"), ("arrive together", "--")),
        (
            replace(CELL, compression="fp16"),
            0,
            {"fused": (9, MS)},
            ("--aggregate 2", "overlap=True"),
            ("--compression", "groups=4"),
        ),
        (CELL, 2 * MS, {}, ("arrive together", "--compression fp16"), ()),
    ],
)
def test_what_makes_the_all_reduce_less_exposed_is_what_the_cell_does_not_do_yet(
    cell: Cell | None, waiting: int, groups: dict[str, tuple[int, int]], said: Any, unsaid: Any
) -> None:
    one = gpu(ledger={"collective": 3 * MS}, waiting=waiting, groups=groups)
    found = _find("all-reduce-exposed", one, cell=cell)
    assert found is not None and all(words in found.change for words in said)
    assert not any(words in found.change for words in unsaid)


@pytest.mark.parametrize(
    ("ns_per_step", "overlap", "told"), [(3 * MS, 0.0, True), (MS, 0.0, False), (3 * MS, 0.6, False)]
)
def test_a_compiled_step_is_told_to_overlap_where_that_pays_and_is_not_done(
    ns_per_step: int, overlap: float, told: bool
) -> None:
    one = gpu(ledger={"collective": ns_per_step}, groups={"fused": (9, MS)})
    one.collectives.overlap = overlap
    found = _find("all-reduce-exposed", one, cell=replace(CELL, step="compiled"))
    assert found is not None and ("ring.distribute(model, overlap=True)" in found.change) is told


@pytest.mark.parametrize(
    ("kernel", "precision", "step", "told"),
    [
        (
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "mixed_bfloat16",
            "compiled",
            True,
        ),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "float32", "fit", False),
        ("ncclKernel_AllReduce_RING_LL_Sum_half(ncclWorkElem)", "mixed_float16", "compiled", False),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "float32", "fit", True),
        ("gemm_f32f32_f32f32", "mixed_bfloat16", "compiled", False),
        ("gemm_bf16bf16_bf16f32", "mixed_bfloat16", "fit", True),
        ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", "mixed_float16", "compiled", True),
    ],
)
def test_gradients_are_in_float32_where_the_longest_all_reduce_says_so_else_the_cell(
    kernel: str, precision: str, step: str, told: bool
) -> None:
    top = [("fusion_bf16", 9, 9 * MS), (kernel, 9, 2 * MS), ("ncclDevKernel_AllReduce_Sum_f16_RING_LL", 9, MS)]
    top = top if "AllReduce" in kernel else top[:2]
    cell = replace(CELL, precision=precision, step=step)
    one = gpu(ledger={"collective": 2 * MS}, transfer=2 * MS, top=top)
    assert (_find("gradients-not-compressed", one, cell=cell) is not None) == told
    assert ("--compression fp16" in _find("all-reduce-exposed", one, cell=cell).change) == told  # type: ignore[union-attr]


STARVED = {"ledger": {"idle_feed": 3 * MS, "h2d": 2 * MS}}


@pytest.mark.parametrize(
    ("feed", "marked", "found"),
    [("host", 0, True), ("pinned", 10, False), ("prefetch", 0, False), (None, 10, False), (None, 0, True)],
)
def test_a_feed_that_prefetches_and_starves_is_not_told_to_prefetch(feed: str | None, marked: int, found: bool) -> None:
    cell = None if feed is None else replace(CELL, feed=feed)
    starving = gpu(**STARVED, inputs={**INPUTS, "marked": marked})
    assert (_find("no-prefetch", starving, cell=cell) is not None) == found
    assert _find("input-pipeline-slow", starving, cell=cell) is not None


@pytest.mark.parametrize(("launch_ns", "first"), [(4 * MS, True), (7 * MS, False)])
def test_input_comes_first_unless_the_gpu_waits_twice_as_long_for_launches(launch_ns: int, first: bool) -> None:
    one = gpu(ledger={"idle_feed": 5 * MS // 2, "idle_launch": launch_ns})
    found = [finding.code for finding in find(measures([one]))]
    assert "input-pipeline-slow" in found and (found[0] == "input-pipeline-slow") == first


def test_input_comes_after_an_exchange_that_costs_more() -> None:
    one = gpu(ledger={"idle_feed": 5 * MS // 2, "collective": 5 * MS})
    found = [finding.code for finding in find(measures([one]))]
    assert found.index("all-reduce-exposed") < found.index("input-pipeline-slow")


@pytest.mark.parametrize(
    ("call_ns", "held_up_ns"),
    [(None, 0), (20 * MS, 0), (25 * MS, 5 * MS), (90 * MS, 10 * MS)],
)
def test_pageable_copies_hold_launches_up_for_no_longer_than_their_calls_last(
    call_ns: int | None, held_up_ns: int
) -> None:
    one = gpu(ledger={"h2d": 2 * MS, "idle_launch": MS}, h2d=PAGEABLE, inputs={**INPUTS, "call_ns": call_ns})
    one.batch_gap_ledger_ns = {"idle_launch": 10 * MS}
    found = _find("copies-pageable", one)
    assert found is not None and found.evidence["idle_launch_held_up_ns"] == held_up_ns
    assert found.cost_ns_per_step == 2 * MS + held_up_ns // 10


def test_no_two_findings_are_paid_for_the_launch_idle_after_a_small_copy() -> None:
    one = gpu(ledger={"h2d": 2 * MS, "idle_launch": MS}, h2d=PAGEABLE, inputs={**INPUTS, "call_ns": 90 * MS})
    one.batch_gap_ledger_ns = {"idle_launch": 10 * MS}
    one.held_launches = {"gaps": 10, "count": 10, "idle_launch_ns": 6 * MS, "bytes": 1024}
    found = {finding.code: finding.cost_ns_per_step for finding in find(measures([one]))}
    assert found["small-copy-before-step"] == 6 * MS // 10
    assert found["copies-pageable"] == 2 * MS + 4 * MS // 10
    assert found["launch-bound"] == 4 * MS // 10


@pytest.mark.parametrize(
    ("groups", "said", "unsaid"),
    [
        ({"elementwise": (9, MS)}, 'step="compiled"', "already"),
        ({"fused": (9, MS)}, "compiled already", 'step="compiled"'),
        ({"rnn_cell": (9, MS)}, "GRU and LSTM then run as loops, without cuDNN", "jit_compile"),
    ],
)
@pytest.mark.parametrize("code", ["launch-bound", "short-kernels"])
def test_what_is_compiled_is_not_told_to_compile_and_what_is_cudnns_how_it_can_be(
    code: str, groups: dict[str, tuple[int, int]], said: str, unsaid: str
) -> None:
    found = _find(code, gpu(ledger={"idle_launch": MS, "idle_turnaround": MS}, groups=groups))
    assert found is not None and said in found.change and unsaid not in found.change
    assert "HOROVOD" not in found.change  # there is no all-reduce


@pytest.mark.parametrize(
    ("kernel", "found"),
    [
        ("cutlass_80_tensorop_s1688gemm_128x256_16x3_nt_align4", False),  # TF32: 4 numbers are 16 bytes
        ("cutlass_80_tensorop_s1688gemm_128x256_16x3_nt_align2", True),
        ("cutlass_80_tensorop_bf16_s16816gemm_bf16_128x64_nt_align4", True),
        ("cutlass_80_tensorop_bf16_s16816gemm_bf16_128x64_nt_align8", False),
        ("cutlass_75_tensorop_f16_s1688gemm_f16_128x64_nt_align4", True),
        ("cutlass_80_simt_sgemm_128x32_8x5_nn_align1", True),
        ("ampere_sgemm_128x64_tn", True),
        ("ampere_sgemm_32x32_sliced1x4_tn", True),
        ("cudnn_ampere_scudnn_128x64_relu_xregs_large_nn_v1", True),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x256x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4", True),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64x64_stage3_warpsize2x2x1_tensor16x8x8", False),
        ("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x4_tn", False),
        ("volta_sgemm_128x64_nn", False),  # GPUs without TF32
        ("cutlass_80_simt_dgemm_128x64_8x4_nn_align1", True),  # by its alignment, not as float32
        ("cutlass_80_simt_dgemm_128x64_8x4_nn_align4", False),
    ],
)
def test_products_off_tensor_cores_are_told_by_their_names(kernel: str, found: bool) -> None:
    assert (_find("off-tensor-cores", gpu(top=[(kernel, 100, 20 * MS)])) is not None) == found


@pytest.mark.parametrize("kernel", ["volta_sgemm_64x64_nt", "cudnn_volta_scudnn_128x64_relu_medium_nn_v1"])
@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("Tesla T4", True),
        ("Tesla V100-SXM2-32GB", True),
        ("NVIDIA GeForce RTX 2080 Ti", True),
        ("Quadro RTX 6000", True),
    ]
    + [("NVIDIA GeForce GTX 1650", False), ("Quadro T1000", False), ("NVIDIA GeForce MX450", False), (None, False)],
)
def test_voltas_kernels_in_float32_are_told_of_voltas_and_turings_with_tensor_cores(
    name: str | None, found: bool, kernel: str
) -> None:
    one = gpu(top=[(kernel, 100, 20 * MS)])
    one.name = name
    assert (_find("off-tensor-cores", one) is not None) == found


def test_gpus_with_other_work_are_not_compared_by_their_compute() -> None:
    usual, other = (gpu(rank=r, ledger={"compute": ns, "collective": MS}) for r, ns in ((0, 7 * MS), (1, 9 * MS)))
    for one, count in ((usual, 1000), (other, 1400)):
        one.kernels.per_step, one.kernels.count = None, count  # captures without steps
    assert _find("slow-gpu", usual, other) is None


def test_copies_to_the_host_are_a_steps_only_where_there_are_steps() -> None:
    one = gpu(d2h_per_step=2, ledger={"idle_sync": MS})
    one.window = "capture"
    assert _find("loss-fetched-every-step", one) is None


def test_stages_that_wait_for_each_other_are_told_beside_the_share_of_equal_ones() -> None:
    cell = replace(CELL, strategy="split", micro_batches=4, step="fit")
    first, last = gpu(ledger={"idle_launch": MS, "idle_wait": MS}), gpu(ledger={"idle_launch": 4 * MS})
    found = _find("pipeline-bubble", first, last, cell=cell)
    assert found is not None and found.gpu == 1 and found.cost_ns_per_step == 3 * MS  # 8 + 6 ms of work, 7 for each
    assert found.evidence["bubble_of_equal_stages"] == pytest.approx(1 / 5)
    assert found.evidence["waiting_share"] == [pytest.approx(0.2), pytest.approx(0.4)]
    assert "--micro-batches 16" in found.change and "1.33 x" in found.change
    assert _find("pipeline-bubble", first, last, cell=CELL) is None
    assert _find("pipeline-bubble", gpu(), gpu(rank=1), cell=cell) is None


SPLIT = replace(CELL, strategy="split", step="fit", feed="prefetch")
# As a GRU that is cut before its last layer: the first GPU works for 6 of 10 ms, the last one for next to nothing.
FIRST = {"ledger": {"idle_launch": 4 * MS}, "kernels": SHORT}
LAST = {
    "ledger": {"compute": MS // 10, "idle_launch": 99 * MS // 10},
    "kernels": {**SHORT, "under_5us_ns": 900_000},
}


def test_what_a_stage_waits_for_another_one_is_told_once() -> None:
    first, last = gpu(**FIRST), gpu(rank=0, **LAST)
    last.device = 1
    found = {finding.code: finding for finding in find(measures([first, last]), Context(cell=SPLIT))}
    bubble = found.pop("pipeline-bubble")
    assert bubble.gpu == 1 and bubble.cost_ns_per_step == 3_050_000  # 6.1 ms of work, half for each
    assert [one for one in figures(bubble.text) if "%" in one][:2] == ["99.0 %", "60.0 %"]
    assert {"launch-bound", "tiny-batch"} <= set(found) and "cpu-may-be-faster" not in found
    assert {finding.gpu for finding in found.values()} == {0}
    assert found["launch-bound"].cost_ns_per_step == 3_900_000  # less the 0.1 ms in which the last stage works


def test_stages_on_gpus_of_two_processes_do_not_wait_for_each_other() -> None:
    """Of a hybrid of two processes with two stages each, one pair waits."""
    pairs = [gpu(rank=rank, **kind) for rank in (0, 1) for kind in ((FIRST, LAST) if rank else ({}, {}))]
    hybrid = replace(SPLIT, strategy="hybrid", ranks=4)
    found = _find("pipeline-bubble", *pairs, cell=hybrid)
    assert (
        found is not None
        and found.gpu == 3
        and found.evidence["waiting_for_stages_share"]
        == [
            pytest.approx(0.01),
            pytest.approx(0.6),
        ]
    )


def test_equal_stages_that_are_both_launched_late_are_not_told_to_be_equal() -> None:
    idle = {"ledger": {"idle_launch": 9 * MS}}
    found = {finding.code: finding for finding in find(measures([gpu(**idle), gpu(**idle)]), Context(cell=SPLIT))}
    assert found["pipeline-bubble"].cost_ns_per_step == MS  # two of 1 ms, at the same time at best
    assert found["launch-bound"].cost_ns_per_step == 8 * MS


@pytest.mark.parametrize(("top", "images"), [(CONVOLVED, True), ([("GRU_elementWise_bp2", 9, MS)], False)])
def test_input_is_said_to_be_images_where_convolutions_run(top: Any, images: bool) -> None:
    one = gpu(ledger={"h2d": 2 * MS, "idle_feed": 3 * MS}, inputs=INPUTS, top=top)
    found = {finding.code: finding for finding in find(measures([one]), Context(cell=CELL))}
    assert ("images are uint8" in found["float32-input"].text) is images
    assert found["float32-input"].change.startswith("images" if images else "features as float16")
    assert ("smaller images" in found["input-pipeline-slow"].change) is images


def test_findings_that_are_paid_for_the_same_time_say_that_their_gains_do_not_add() -> None:
    one = gpu(ledger={"h2d": 2 * MS, "idle_launch": 4 * MS}, h2d=PAGEABLE, inputs=INPUTS, kernels=SHORT)
    texts = {
        finding.code: finding.text for finding in find(measures([one]), Context(cell=replace(CELL, feed="prefetch")))
    }
    for code, with_it in (("float32-input", "prefetch-on-host-only"), ("launch-bound", "tiny-batch")):
        assert with_it in texts[code].rpartition(";")[2] and texts[code].endswith("cannot be added")
    assert not any("cannot be added" in texts[code] for code in ("prefetch-on-host-only", "tiny-batch"))
    launched, copied = gpu(ledger={"idle_launch": 4 * MS}), gpu(rank=1, ledger={"h2d": 2 * MS}, h2d=PAGEABLE)
    assert not any("cannot be added" in finding.text for finding in find(measures([launched, copied])))


UNLIKE_HOROVOD = {
    "copies": (("split", "hybrid", "replicas"), r"--step compiled|jit_compile|steps_per_execution|--feeds pinned"),
    "server": (("parameter_server",), r"--step compiled|jit_compile|--feeds|Labels as int64|callbacks"),
    "sharded": (("sharded",), r"--aggregate|HOROVOD_ENABLE_ASYNC|FSDP"),
    "tf.distribute": (("mirrored", "multiworker"), r"--step compiled|jit_compile"),
}


@pytest.mark.parametrize("strategy", [(name, words) for names, words in UNLIKE_HOROVOD.values() for name in names])
def test_no_change_is_named_that_the_strategy_cannot_make(strategy: tuple[str, str]) -> None:
    cell = replace(CELL, strategy=strategy[0], step="fit", feed="prefetch")
    idle = {"idle_feed": MS, "h2d": MS, "idle_launch": 2 * MS, "idle_sync": MS, "idle_turnaround": MS, "collective": MS}
    one = gpu(ledger=idle, h2d=PAGEABLE, inputs=INPUTS, d2h_per_step=9, per_step_collectives=9, kernels=SHORT)
    one.held_launches = {"gaps": 10, "count": 10, "idle_launch_ns": 5 * MS, "bytes": 6144}
    one.collectives.negotiation_ns = 5 * MS
    if strategy[0] == "sharded":
        one.collectives.kinds = {"reduce_scatter": {"count": 10, "busy_ns": MS, "exposed_ns": MS, "bytes": MS}}
    found = {finding.code: finding for finding in find(measures([one]), Context(cell=cell))}
    assert {"launch-bound", "tiny-batch", "copies-pageable", "prefetch-on-host-only", "short-kernels"} <= set(found)
    for finding in found.values():
        assert not re.search(strategy[1], finding.change), finding
    assert ("loss-fetched-every-step" in found) is (strategy[0] != "parameter_server")
    assert ("host-synchronises" in found) is (strategy[0] == "parameter_server")


@pytest.mark.parametrize(
    ("strategy", "said", "unsaid"),
    [
        ("horovod", ("--compression fp16",), ()),
        ("mirrored", ("tf.distribute.NcclAllReduce",), ("--compression", "HOROVOD")),
        ("multiworker", ("tf.distribute.NcclAllReduce",), ("--compression", "HOROVOD")),
    ],
)
def test_the_words_are_those_of_the_cells_strategy(strategy: str, said: Any, unsaid: Any) -> None:
    one = gpu(ledger={"collective": 3 * MS}, per_step_collectives=60, transfer=2 * MS)
    found = {f.code: f for f in find(measures([one]), Context(cell=replace(CELL, strategy=strategy, step="fit")))}
    told = " ".join(finding.change for finding in found.values())
    assert all(words in told for words in said) and not any(words in told for words in unsaid)
    assert ("gradients-not-compressed" in found) is (strategy == "horovod")


@pytest.mark.parametrize(
    ("code", "toy"),
    [
        *((code, {"kernels": {**SHORT, "per_step": 9}}) for code in ("cpu-may-be-faster", "tiny-batch")),
        *((code, {"steps": 4}) for code in ("cpu-may-be-faster", "tiny-batch")),
        ("tiny-batch", {"kernels": {**SHORT, "under_5us_ns": MS}}),
    ],
)
def test_of_a_toy_nothing_follows_for_a_batch_or_a_device(code: str, toy: dict[str, Any]) -> None:
    """A few kernels a step, a few steps; or a step whose time is not in its short kernels, however many these are."""
    given: dict[str, Any] = {"kernels": SHORT, "ledger": {"compute": MS, "idle_launch": 9 * MS}}
    assert _find(code, gpu(**given)) is not None
    assert _find(code, gpu(**(given | toy))) is None


def test_of_a_recording_in_which_nothing_computes_it_is_told_that_nothing_does() -> None:
    """As `nvprof --print-gpu-trace` of a program's begin shows it: weights on their way to the GPU."""
    begin = Build()
    for at in range(0, 4_000_000, 1_000_000):
        begin.copy("h2d", at, at + 900_000, 4 << 20, src_kind="pageable", dst_kind="device")
    assert [finding.code for finding in measure([begin.timeline()]).findings] == ["loss-not-judged"]
    begin.kernel(4_000_000, 4_500_000)
    assert "copies-pageable" in {finding.code for finding in measure([begin.timeline()]).findings}
