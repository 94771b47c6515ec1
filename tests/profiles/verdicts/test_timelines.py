"""Verdicts on timelines with one fault and on the same training without it; on real recordings, what they must say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import profiles
from profiles.model.findings import Finding
from profiles.readers import xplane
from profiles.runs.records import Cell
from profiles.verdicts import Context
from profiles.verdicts.pytorch import TRAINING as CHANGES
from tests.made.build import Build
from tests.made.training import CONV, MS, US, training
from tests.recordings import DATA

BATCH = {"ns": MS, "bytes": 8 * MS, "memory": "pageable", "when": "due"}
AHEAD = {**BATCH, "when": "ahead", "exposed_ns": 400 * US}
HIDDEN = {**BATCH, "when": "ahead", "memory": "pinned"}
EAGER = (("Mul_GPU_DT_FLOAT_DT_FLOAT_kernel", 3 * US), (CONV, 3 * US)) * 600
FUSED = (("loop_multiply_fusion_12", 3 * US), (CONV, 3 * US)) * 600
NORMALISED = ((CONV, 5 * MS), ("void tensorflow::functor::ColumnReduceKernel<float *>", 4 * MS))
CUDNN_NORMALISED = ((CONV, 5 * MS), ("void bn_fw_tr_1C11_singleread<float>", 4 * MS))
GATE, TANH = ("Sigmoid_GPU_DT_FLOAT_kernel", 3 * US), ("Tanh_GPU_DT_FLOAT_kernel", 3 * US)
CELLS = (GATE, GATE, TANH, (CONV, 3 * US)) * 80
CUDNN_CELL = (("elemWiseRNNcell<float>", MS), (CONV, 3 * MS)) * 2
UNEVEN = (("cutlass_80_simt_sgemm_128x32_8x5_nn_align1", 9 * MS),)
CELL = Cell(model="resnet50", ranks=1, per_rank_batch=64)
UINT8 = Cell(model="resnet50", ranks=1, per_rank_batch=64, input_dtype="uint8")

CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "not-compiled": ({"kernels": EAGER}, {"kernels": FUSED}),
    "unfused-batch-norm": ({"kernels": NORMALISED}, {"kernels": CUDNN_NORMALISED}),
    "generic-rnn-cell": ({"kernels": CELLS, "hand_over_ns": 2 * US}, {"kernels": CUDNN_CELL}),
    "launch-bound": ({"late_ns": MS}, {}),
    "short-kernels": ({"kernels": FUSED, "hand_over_ns": 2 * US}, {"kernels": FUSED}),
    "loss-fetched-every-step": ({"fetch_ns": 500 * US, "late_ns": 20 * US}, {"late_ns": 20 * US}),
    "host-synchronises": ({"synced_ns": MS}, {"fetch_ns": MS}),
    "launched-work-waits": ({"stalled_ns": MS}, {"late_ns": MS}),
    "tiny-batch": ({"kernels": ((CONV, 3 * US),) * 40, "late_ns": MS}, {"kernels": ((CONV, 3 * US),) * 40}),
    "off-tensor-cores": ({"kernels": UNEVEN}, {}),
    "python-in-the-loop": ({"late_ns": MS, "in_call": False}, {"late_ns": MS}),
    "cpu-may-be-faster": ({"kernels": ((CONV, 5 * US),) * 20, "late_ns": 2 * MS}, {"late_ns": 2 * MS}),
    "input-pipeline-slow": ({"copy": {**BATCH, "wait_ns": 2 * MS}}, {"copy": HIDDEN}),
    "no-prefetch": ({"copy": {**BATCH, "wait_ns": 4 * MS}}, {"copy": HIDDEN}),
    "prefetch-on-host-only": ({"copy": BATCH}, {"copy": AHEAD}),
    "copies-pageable": ({"copy": BATCH}, {"copy": {**BATCH, "memory": "pinned"}}),
    "copies-synchronous": ({"copy": {**BATCH, "api": "cuMemcpyHtoD_v2"}}, {"copy": BATCH}),
    "copies-exposed-although-prefetched": ({"copy": AHEAD}, {"copy": HIDDEN}),
    "copies-exposed": ({"copy": {**BATCH, "memory": "pinned", "wait_ns": 0}}, {"copy": HIDDEN}),
    "small-copy-before-step": ({"late_ns": MS, "small_copy": 1024}, {"late_ns": MS}),
    "float32-input": ({"copy": BATCH, "cell": CELL}, {"copy": BATCH, "cell": UINT8}),
    "all-reduce-exposed": ({"all_reduces": 1, "all_reduce_ns": MS}, {}),
    "collectives-not-fused": ({"all_reduces": 20, "all_reduce_ns": 50 * US}, {"all_reduces": 1, "all_reduce_ns": MS}),
    "model-too-small": (
        {"kernels": ((CONV, MS),), "all_reduces": 1, "all_reduce_ns": MS},
        {"all_reduces": 1, "all_reduce_ns": 2 * MS},
    ),
}


def _findings(*runs: dict[str, Any]) -> dict[str, Finding]:
    cells = [run.pop("cell", None) for run in runs]
    measured = profiles.analyse([training(**run) for run in runs], context=Context(cell=cells[0])).measures
    return {finding.code: finding for finding in measured.findings}


@pytest.mark.parametrize("code", CASES)
def test_the_timeline_with_the_fault_gets_the_verdict_and_the_one_without_does_not(code: str) -> None:
    faulty, healthy = CASES[code]
    assert code in _findings({**faulty})
    assert code not in _findings({**healthy})


def test_the_share_of_products_off_the_tensor_cores_is_that_of_the_compute_time() -> None:
    kernels = (("ampere_sgemm_128x64_tn", 3 * MS), (CONV, MS), ("cudnn_ampere_scudnn_128x64_relu_large_nn_v1", 2 * MS))
    found = _findings({"kernels": kernels})["off-tensor-cores"]
    assert found.text.startswith("ampere_sgemm_128x64_tn runs outside of the tensor cores")
    assert found.text.endswith("kernels like it take 83.3 % of the compute time")  # 5 of 6 ms
    assert found.at_most_gain is None


ATEN = ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >", 6 * US)


@pytest.mark.parametrize("code", [code for code in CASES if code in CHANGES])
def test_where_pytorchs_kernels_run_the_change_is_in_pytorchs_words(code: str) -> None:
    faulty = CASES[code][0]
    kernels = (*faulty["kernels"], ATEN) if "kernels" in faulty else ((ATEN[0], 9 * MS),)
    found = _findings({**faulty, "kernels": kernels})[code]
    words = CHANGES[code]
    assert not isinstance(words, str) or found.change.endswith(words)
    assert not re.search(r"tf\.|dataset|ring\.|hvd\.|ringscope|--[a-z]", found.change)


def test_what_torch_compile_fused_is_no_uncompiled_step() -> None:
    inductor = (("triton_poi_fused_add_mul_0", 3 * US), (CONV, 3 * US), ATEN) * 600
    assert "not-compiled" not in _findings({"kernels": inductor})
    assert "torch.compile" in _findings({"kernels": (*EAGER, ATEN)})["not-compiled"].change


def test_a_price_is_the_time_that_was_put_in() -> None:
    found = _findings({"late_ns": MS})["launch-bound"]
    # Eight steps begin with their first kernels, so seven of the waits lie in their window.
    assert found.cost_ns_per_step == 7 * MS // 8
    assert found.at_most_gain == pytest.approx((8 * 9 + 7) / (8 * 9) - 1)


def test_launch_idle_after_a_small_copy_is_its_findings_alone() -> None:
    found = _findings({"late_ns": MS, "small_copy": 1024})
    # Seven gaps of 1 ms, in each the copy's end 3 us after the GPU ran dry.
    assert found["small-copy-before-step"].evidence["idle_launch_after_it_ns"] == 7 * (MS - 3 * US)
    assert found["small-copy-before-step"].cost_ns_per_step == 7 * (MS - 3 * US) // 8
    assert not {"launch-bound", "python-in-the-loop"} & set(found)


@pytest.mark.parametrize("size, found", [(64 * 1024 - 1, True), (64 * 1024, False)])
def test_only_copies_under_64_kib_are_small(size: int, found: bool) -> None:
    assert ("small-copy-before-step" in _findings({"late_ns": MS, "small_copy": size})) == found


def test_the_rank_that_arrives_last_is_the_straggler() -> None:
    punctual = {"rank": 0, "all_reduces": 1, "all_reduce_ns": 200 * US, "waits_ns": MS}
    late = {"rank": 1, "all_reduces": 1, "all_reduce_ns": 200 * US, "arrives_late_ns": MS}
    found = _findings(punctual, late)
    assert found["straggler"].gpu == 1
    assert "straggler" not in _findings(*({**late, "rank": rank} for rank in (0, 1)))


def test_gradients_in_float32_are_found_where_the_cell_says_so() -> None:
    ranks = [{"rank": rank, "all_reduces": 1, "all_reduce_ns": MS} for rank in (0, 1)]
    for compression, found in (("none", True), ("fp32", True), ("fp16", False)):
        cell = Cell(model="resnet50", ranks=2, per_rank_batch=64, compression=compression)
        assert ("gradients-not-compressed" in _findings(*({**rank, "cell": cell} for rank in ranks))) == found


def test_ranks_that_launch_from_more_threads_than_there_are_cores_are_told_so() -> None:
    made = [training(rank=rank, late_ns=MS) for rank in (0, 1)]
    for cores, found in ((1, True), (2, False)):
        findings = profiles.analyse(made, context=Context(machine={"cpu": {"usable": cores}})).measures.findings
        assert ("threads-oversubscribed" in {finding.code for finding in findings}) == found


def test_the_gpu_that_computes_more_slowly_is_named() -> None:
    usual, slow = ({"rank": r, "kernels": ((CONV, ns),)} for r, ns in ((0, 9 * MS), (1, 10 * MS)))
    assert _findings(usual, slow)["slow-gpu"].gpu == 1
    assert "slow-gpu" not in _findings({"rank": 0}, {"rank": 1})


@pytest.mark.parametrize("feed", ["prefetch", "device"])
def test_of_the_real_resnet50_compiling_is_worth_most_and_the_copies_follow(feed: str) -> None:
    timelines = [profiles.read(DATA / f"resnet50-2gpu-{feed}.rank{rank}.sqlite.xz") for rank in (0, 1)]
    findings = profiles.analyse(timelines).measures.findings
    codes = [finding.code for finding in findings]
    assert codes[0] == "not-compiled"
    assert "copies-pageable" in codes
    assert ("prefetch-on-host-only" in codes) == (feed == "prefetch")
    # Compiled, with prefetch_to_device, two H200s trained 7 364 images/s where these did 1 513 and 1 604.
    assert 1 + (findings[0].at_most_gain or 0) >= 7364 / (1513 if feed == "prefetch" else 1604)


def test_the_compiled_resnet50_is_told_to_stage_its_batches_and_no_more_to_compile() -> None:
    timelines = [profiles.read(DATA / f"resnet50-4gpu-compiled.rank{rank}.sqlite.xz") for rank in (0, 1)]
    findings = {finding.code: finding for finding in profiles.analyse(timelines).measures.findings}
    assert next(iter(findings)) == "copies-pageable"
    assert not {"not-compiled", "unfused-batch-norm", "launch-bound"} & set(findings)
    assert findings["small-copy-before-step"].evidence["copy_bytes"] == 4 * 256  # int32 labels
    # Without input copies at all, four such GPUs trained 25 018 images/s where these did 22 179.
    both = [findings[code].at_most_gain or 0 for code in ("copies-pageable", "small-copy-before-step")]
    assert 1 / (1 - sum(gain / (1 + gain) for gain in both)) >= 25018 / 22179


def test_what_a_larger_batch_gave_is_within_the_price_of_the_tiny_one() -> None:
    measured = profiles.analyse([profiles.read(DATA / "lstm-1gpu.rank0.sqlite.xz")]).measures
    (found,) = (finding for finding in measured.findings if finding.code == "tiny-batch")
    # On such a GPU the same model trained 44 007 samples/s with this batch and 90 396 with four times it.
    assert 1 + (found.at_most_gain or 0) >= 90396 / 44007


def test_short_kernels_of_two_gpus_get_the_same_advice_where_nothing_marks_their_steps(tmp_path: Path) -> None:
    """JAX on two H200s: kernels of 2 us and an exchange in each step (keras#20998, #19809)."""
    marked = DATA / "xplane" / "jax-2gpu-5-steps.xplane.pb"
    space = xplane.message()()
    space.ParseFromString(marked.read_bytes())
    for plane in space.planes:
        marks = {number for number, name in plane.stat_metadata.items() if name.name == "step_num"}
        for line in plane.lines:
            others = [event for event in line.events if not any(each.metadata_id in marks for each in event.stats)]
            del line.events[:]
            line.events.extend(others)
    unmarked = tmp_path / "unmarked.xplane.pb"
    unmarked.write_bytes(space.SerializeToString())
    found = [profiles.analyse([profiles.read(path)]).measures for path in (marked, unmarked)]
    assert [each.gpus[0].steps.count for each in found] == [5, 0]
    for each in found:
        assert each.findings[0].code == "launch-bound" and "jax.lax.scan" in each.findings[0].change
        assert "all-reduce-exposed" in {finding.code for finding in each.findings}


@pytest.mark.parametrize("model", ["gru", "lstm"])
def test_cudnns_recurrent_cells_are_not_taken_for_generic_ones(model: str) -> None:
    measured = profiles.analyse([profiles.read(DATA / f"{model}-1gpu.rank0.sqlite.xz")]).measures
    assert measured.gpus[0].kernels.groups["rnn_cell"]["count"] > 0
    assert "generic-rnn-cell" not in {finding.code for finding in measured.findings}


def test_launches_that_a_thread_holds_while_it_waits_for_its_batch_are_the_inputs_fault() -> None:
    """The step is launched by a thread of the framework's; Python, which gives it the step, waits for the batch."""
    made = Build()
    for step in range(8):
        at = step * 10 * MS
        made.mark("wait input", at + 3 * MS, at + 9 * MS)
        made.mark(f"step {step}", at + 9 * MS, at + 10 * MS)
        for place in range(30):
            call = at + 9_500 * US + place * US
            made.kernel(
                at + 10 * MS + place * 100 * US,
                at + 10 * MS + (place + 1) * 100 * US,
                CONV,
                call=(call, call + 500),
                tid=7,
            )
    measured = profiles.measure([made.timeline()])
    (gpu,) = measured.gpus
    # Of each 7 ms in which nothing runs 6 lie under the mark; the GPU runs dry at its very start.
    assert gpu.ledger_ns["idle_launch"] == 7 * 7 * MS and gpu.waited_ns == 7 * 6 * MS
    assert [finding.code for finding in measured.findings][0] == "input-pipeline-slow"
    found = measured.findings[0]
    assert found.evidence["idle_launch_while_waiting_ns"] == gpu.waited_ns and "60.0 %" in found.text
