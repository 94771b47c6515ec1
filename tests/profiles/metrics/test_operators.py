"""Operators and layers: hand-built timelines against a count of every nanosecond, real ones against plain loops."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest

from profiles import measure, read
from profiles.gpus.gather import gather
from profiles.metrics import operator_names, operators
from profiles.model import paths
from profiles.model.measures import GpuMeasures
from profiles.model.operations import NamedOperator, Operators
from tests.made.build import Build
from tests.recordings import DATA, MORE

KINETO = sorted(MORE.glob("kineto/*.json.gz"))
SMALL = [path for path in KINETO if path.stat().st_size < 600_000]


def sums(found: Operators | None) -> dict[str, tuple[int, int, int, int]]:
    assert found is not None
    assert len({row.name for row in found.rows}) == len(found.rows) <= found.distinct
    told = {row.name: _figures(row) for row in found.rows}
    rest = [_figures(row) for row in (found.others, found.unknown)]
    return told | {"unknown": tuple(map(sum, zip(*rest, strict=True)))}


def _figures(row: NamedOperator) -> tuple[int, int, int, int]:
    return row.kernels, row.total_ns, row.owned_ns, row.idle_ns


def adds_up(gpu: GpuMeasures, found: Operators) -> None:
    every = [*found.rows, found.others, found.unknown]
    assert sum(row.kernels for row in every) == gpu.kernels.count
    assert sum(row.total_ns for row in every) == sum(group["total_ns"] for group in gpu.kernels.groups.values())
    known = {owner: ns or 0 for owner, ns in gpu.ledger_ns.items()}
    assert sum(row.owned_ns for row in every) == known["compute"] + known["collective"]
    assert sum(row.idle_ns for row in every) == sum(ns for owner, ns in known.items() if owner.startswith("idle"))


@pytest.mark.parametrize("seed", range(60))
def test_every_nanosecond_of_a_hand_built_timeline_belongs_to_the_operator_that_plain_loops_say(seed: int) -> None:
    chance, made = random.Random(seed), Build()
    ranges = []
    for number in range(chance.randrange(1, 9)):
        start, tid = chance.randrange(0, 60), chance.randrange(1, 3)
        ranges.append((start, start + chance.randrange(1, 50), tid, f"op{number % 4}"))
        made.operator(ranges[-1][3], *ranges[-1][:2], tid=tid)
    done = []
    for start in chance.sample(range(100, 180), chance.randrange(2, 12)):
        tid, called = chance.randrange(1, 4), chance.randrange(0, 90)
        name = chance.choice(["gemm", "relu", "ncclDevKernel_AllReduce"])
        done.append((start, start + chance.randrange(1, 25), name.startswith("nccl"), tid, called))
        made.kernel(*done[-1][:2], name, stream=len(done), call=(called, called + 5), tid=tid)
    (gpu,) = measure([made.timeline()], window="capture").gpus

    def under(tid: int, called: int) -> str:
        held = [(r[0], -r[1], at) for at, r in enumerate(ranges) if r[2] == tid and r[0] <= called < r[1]]
        return ranges[max(held)[2]][3] if held else "unknown"

    expected: Counter[tuple[str, str]] = Counter()
    for start, end, _, tid, called in done:
        expected[under(tid, called), "count"] += 1
        expected[under(tid, called), "total"] += end - start
    for now in range(min(one[0] for one in done), max(one[1] for one in done)):
        running = [one for one in done if one[0] <= now < one[1]]
        first_class = [one for one in running if not one[2]] or running
        if running:
            expected[under(*min(first_class)[3:]), "owned"] += 1
        else:
            expected[under(*min(one for one in done if one[0] > now)[3:]), "idle"] += 1
    if not any(name != "unknown" for name, _ in expected):
        assert gpu.operators is None
        return
    found = sums(gpu.operators)
    assert gpu.layers is None and gpu.operators is not None
    adds_up(gpu, gpu.operators)
    for name in {name for name, _ in expected} | set(found):
        kinds = ("count", "total", "owned", "idle")
        assert found.get(name, (0, 0, 0, 0)) == tuple(expected[name, kind] for kind in kinds)


@pytest.mark.exhaustive
@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.name)
def test_each_kernel_of_pytorch_is_under_the_operator_that_plain_loops_over_the_file_find(
    path: Path,
) -> None:
    with gzip.open(path) as file:
        events = [one for one in json.load(file, parse_float=Fraction)["traceEvents"] if one.get("ph") == "X"]
    named = ("cpu_op", "user_annotation")
    ranges: dict[object, list[tuple[Fraction, Fraction, int, str]]] = {}
    for at, one in enumerate(events):
        if one.get("cat") in named and operator_names.of_range(one["name"], ""):
            ranges.setdefault(one["tid"], []).append((one["ts"], -one["dur"], at, one["name"]))
    calls: dict[int, tuple[Fraction, object]] = {}
    for one in events:
        if one.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in one["args"]:
            number, call = one["args"]["correlation"], (one["ts"], one["tid"])
            calls[number] = min(call, calls.get(number, call), key=lambda c: c[0])
    (gpu,) = measure([path], window="capture").gpus
    expected: Counter[str] = Counter()
    for one in events:
        if one.get("cat") == "kernel" and one["args"]["device"] == gpu.device:
            called, tid = calls.get(one["args"]["correlation"], (Fraction(-1), None))
            held = [r for r in ranges.get(tid, ()) if r[0] <= called < r[0] - r[1]]
            expected[max(held)[3] if held else "unknown"] += 1
    if gpu.operators is None:
        assert set(expected) == {"unknown"}
        return
    adds_up(gpu, gpu.operators)
    found = {name: values[0] for name, values in sums(gpu.operators).items() if values[0]}
    assert found == dict(expected)


@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.name)
def test_kineto_names_the_same_operator_by_its_external_id(path: Path) -> None:
    """Kineto gives a kernel the id of the operator that was at work when it was launched; we search by times."""
    with gzip.open(path) as file:
        events = [one for one in json.load(file)["traceEvents"] if one.get("ph") == "X"]
    by_id = {one["args"].get("External id"): one["name"] for one in events if one.get("cat") == "cpu_op"}
    told = {
        one["args"]["correlation"]: by_id[one["args"]["External id"]]
        for one in events
        if one.get("cat") == "kernel"
        and one["args"].get("External id") in by_id
        # Older ones write the correlation there.
        and one["args"]["External id"] != one["args"]["correlation"]
    }
    timeline = read(path)
    (gpu,) = gather([timeline])
    texts = operator_names.Texts()
    names = operators.under([timeline], gpu, [operators._ranges(timeline, pid, texts) for _, pid in gpu.processes])
    if names is None or not told:
        pytest.skip("the recording ties no kernel to an operator")
    kernels = gpu.operations.table == operators.KERNELS
    correlation = timeline.kernels["correlation"].to_numpy()[gpu.operations.row[kernels]].tolist()
    ours = {one: [*texts, ""][name] for one, name in zip(correlation, names[kernels].tolist(), strict=True)}
    compared = [(ours[one], name) for one, name in told.items() if ours.get(one)]
    assert len(compared) > 0.9 * len([one for one in told if one in ours])
    assert sum(mine == theirs for mine, theirs in compared) >= 0.99 * len(compared)


def test_a_layer_owns_what_goes_forward_and_back_through_it_and_the_optimiser_what_is_its_own() -> None:
    made = Build()
    made.operator("Linear_0", 0, 100, module=True)
    made.operator("aten::linear", 10, 60, sequence=7)
    made.operator("aten::addmm", 20, 50, sequence=8)
    made.kernel(200, 210, "gemm", call=(30, 35))
    made.operator("autograd::engine::evaluate_function: AddmmBackward0", 300, 390, tid=2, sequence=8, backward=True)
    made.operator("aten::mm", 310, 380, tid=2)
    made.kernel(400, 430, "gemm", call=(320, 325), tid=2)
    made.operator("NegBackward0", 440, 460, tid=2, sequence=99, backward=True)
    made.kernel(470, 480, "neg", call=(450, 455), tid=2)
    made.mark("Optimizer.step#SGD.step", 500, 600, domain="")
    made.operator("aten::add_", 510, 530)
    made.kernel(540, 545, "add", call=(520, 525))
    (gpu,) = measure([made.timeline()], window="capture").gpus
    assert gpu.operators is not None and gpu.layers is not None
    assert sums(gpu.layers) == {
        "Linear_0": (2, 40, 40, 190),
        "Optimizer.step#SGD.step": (1, 5, 5, 60),
        "unknown": (1, 10, 10, 40),
    }
    assert {name: row[0] for name, row in sums(gpu.operators).items()} == {
        "aten::addmm": 1, "aten::mm": 1, "NegBackward0": 1, "aten::add_": 1, "unknown": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "operator", "layer"),
    [
        (
            "Thunk:#name=net/net/conv_1/convolution,hlo_op=cudnn-conv.3#",
            "net/net/conv_1/convolution",
            "net/conv_1",
        ),
        (
            "Thunk:#name=gradient_tape/net/net/conv_2/convolution/Conv2DBackpropInput,hlo_op=cudnn-conv-bw-input.1#",
            "gradient_tape/net/net/conv_2/convolution/Conv2DBackpropInput",
            "net/conv_2",
        ),
        ("Thunk:#hlo_op=input_reduce_fusion.12#", "input_reduce_fusion", None),
        ("aten::mul, seq = 3, op_id = 9, sizes = [[2, 3], []]", "aten::mul", None),
        ("MatMul.5(NN)", "MatMul.5(NN)", None),
        ("ReduceSum.13(N2_Grad/ReduceSum_5)", "ReduceSum.13(N2_Grad/ReduceSum_5)", None),
        ("Conv.3(/layer1/conv1/Conv)", "Conv.3(/layer1/conv1/Conv)", "layer1/conv1"),
        ("ConvGrad.9(/layer1/conv1/Conv_Grad/ConvGrad_0)", None, "layer1/conv1"),
        ("ncclGroupEnd", "", None),
        ("MPI_Recv", "", None),
        ("jit(step)/jit(main)/transpose(jvp(Net))/Dense_0/dot_general", None, "Net/Dense_0"),
        ("jit(step)/(transpose(jvp())/transpose:jvp()/reduce_sum)", None, None),
        ("#edge_name=ret_3#", "", None),
        ("ProfilerStep#3", "", None),
        ("step 4", "", None),
        ("wait input", "", None),
    ],
)
def test_a_range_names_its_operator_without_what_differs_from_call_to_call(
    name: str, operator: str | None, layer: str | None
) -> None:
    if operator is not None:
        assert operator_names.of_range(name, "") == (operator or None)
    assert paths.layer(operator or name) == layer


def test_a_compiled_keras_training_is_told_by_layer() -> None:
    (gpu,) = measure([DATA / "resnet50-4gpu-compiled.rank0.sqlite.xz"]).gpus
    assert gpu.operators is not None and gpu.layers is not None and gpu.layers.source == "ranges"
    adds_up(gpu, gpu.operators)
    adds_up(gpu, gpu.layers)
    # What belongs to no layer of the model but to itself, such as its residual sums, is most; then comes the stem.
    assert [row.name for row in gpu.layers.rows[:2]] == ["resnet50_1", "resnet50_1/conv1_conv_1"]


def test_kernels_that_tell_their_operator_need_no_ranges() -> None:
    measures = measure([DATA / "xplane" / "jax-2gpu-5-steps.xplane.pb"])
    for gpu in measures.gpus:
        assert gpu.operators is not None and gpu.operators.source == "kernels"
        adds_up(gpu, gpu.operators)
        assert gpu.operators.unknown.kernels == 0
