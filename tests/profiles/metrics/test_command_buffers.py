"""Operators within XLA's CUDA graphs: hand-built launches, and a real one against the names of its own kernels."""

from __future__ import annotations

import re
from collections import defaultdict

import numpy as np
import pytest

from profiles import measure, read
from profiles.gpus.gather import gather
from profiles.metrics import operators
from profiles.metrics.operator_names import COMMAND_BUFFER
from profiles.model.xla_names import compiled
from tests.made.build import Build
from tests.profiles.metrics.test_operators import adds_up, sums
from tests.recordings import DATA

GRAPH = 7 << 32
FUSED = [
    ("Thunk:#name=net/a/MatMul,hlo_op=loop_add_fusion.3#", "loop_add_fusion_3"),
    ("Thunk:#hlo_op=input_reduce_fusion.8#", "input_reduce_fusion_1"),
    ("Thunk:#name=net/b/Relu,hlo_op=wrapped_convert#", "wrapped_convert_4"),
]
LIBRARY = "Thunk:#name=net/{}/MatMul,hlo_op=custom-call.{}#"


class Training(Build):
    """Launches of one CUDA graph, one a microsecond."""

    launches = 0

    def launch(self, nodes: list[tuple[int, str]], commands: list[str], *, streams: int = 1) -> None:
        """nodes: number within the graph and name of each kernel, each of 10 ns, in the order in which they run."""
        start, correlation = 1000 * self.launches, 1 + self.launches
        self.launches += 1
        self.mark("Thunk:#hlo_op=command_buffer#", start, start + 400, domain="TSL")
        for at, command in enumerate(commands):
            self.mark(command, start + 1 + 2 * at, start + 2 + 2 * at, domain="TSL")
        self.api("cuGraphLaunch", start + 300, start + 310, correlation=correlation)
        for at, (node, name) in enumerate(nodes):
            begins, numbers = start + 500 + 10 * at, {"graph_node": GRAPH + node, "correlation": correlation}
            self.kernel(begins, begins + 10, name, stream=7 + at % streams, **numbers)

    def operators(self) -> dict[str, int]:
        """How many kernels each operator has."""
        (gpu,) = measure([self.timeline()], window="capture").gpus
        if gpu.operators is None:
            return {}
        adds_up(gpu, gpu.operators)
        self.hidden_ns = gpu.operators.in_graphs_ns
        return {name: row[0] for name, row in sums(gpu.operators).items() if row[0]}


def test_the_nodes_of_a_graph_belong_to_the_commands_that_xla_went_through_before_it_launched_them() -> None:
    made = Training()
    made.launch([(at, kernel) for at, (_, kernel) in enumerate(FUSED)], [command for command, _ in FUSED])
    assert made.operators() == {"net/a/MatMul": 1, "input_reduce_fusion": 1, "net/b/Relu": 1}
    assert made.hidden_ns == 0


def test_a_launch_that_xla_does_not_update_is_told_by_another_of_the_same_graph() -> None:
    made = Training()
    nodes = [(at, kernel) for at, (_, kernel) in enumerate(FUSED)]
    for commands in ([], [command for command, _ in FUSED], []):
        made.launch(nodes, commands)
    assert made.operators() == {"net/a/MatMul": 3, "input_reduce_fusion": 3, "net/b/Relu": 3}


def test_what_a_library_launches_belongs_to_the_one_command_between_the_nodes_around_it() -> None:
    made = Training()
    commands = [FUSED[0][0], LIBRARY.format("c", 1), FUSED[1][0], LIBRARY.format("d", 2), LIBRARY.format("e", 3)]
    first, second = FUSED[0][1], FUSED[1][1]
    made.launch([(0, first), (5, "nvjet"), (6, "splitK"), (2, second), (7, "nvjet"), (8, "flash")], commands)
    told = {"net/a/MatMul": 1, "net/c/MatMul": 2, "input_reduce_fusion": 1}
    # Which of the last two is of d and which of e, or whether e launched nothing, is not told.
    assert made.operators() == {**told, "unknown": 2} and made.hidden_ns == 20


def test_in_what_runs_on_several_streams_a_library_s_kernels_may_be_of_any_command() -> None:
    made = Training()
    commands = [FUSED[0][0], LIBRARY.format("c", 1), FUSED[1][0]]
    made.launch([(0, FUSED[0][1]), (3, "nvjet"), (2, FUSED[1][1])], commands, streams=2)
    assert made.operators() == {"net/a/MatMul": 1, "input_reduce_fusion": 1, "unknown": 1}


@pytest.mark.parametrize(
    "commands",
    [
        [],
        [FUSED[1][0], FUSED[0][0], FUSED[2][0]],  # not the order of the nodes
        [command for command, _ in FUSED[1:]],
    ],
    ids=["none", "another order", "one short"],
)
def test_without_commands_that_fit_kernels_stand_under_what_xla_calls_them_and_a_doubt_says_so(
    commands: list[str],
) -> None:
    made = Training()
    made.launch([*((at, kernel) for at, (_, kernel) in enumerate(FUSED)), (3, "nvjet_sm90")], commands)
    told = {"loop_add_fusion": 1, "input_reduce_fusion": 1, "wrapped_convert": 1}
    assert made.operators() == {**told, "unknown": 1} and made.hidden_ns == 40
    (doubt,) = [one for one in measure([made.timeline()]).doubts if one.code == "operators-in-graphs"]
    assert "100" in doubt.text and "--xla_gpu_enable_command_buffer=" in doubt.next


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        ("loop_add_fusion_12", "loop_add_fusion"),
        ("gemm_fusion_MatMul_1_10", "gemm_fusion_MatMul"),
        ("wrapped_convert.kd", "wrapped_convert"),
        ("fusion_1709", "fusion"),
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT", ""),
        ("void cudnn::fusion::compute_dot_do_o_specialized<true, 128>(int, int)", ""),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", ""),
    ],
)
def test_what_xla_compiled_is_called_after_its_instruction_and_nothing_else_is(kernel: str, said: str) -> None:
    assert compiled(kernel) == said


def test_the_user_s_own_range_around_the_launch_of_a_graph_is_its_operator() -> None:
    made = Training()
    made.mark("forward", 0, 100, domain="")
    made.api("cudaGraphLaunch", 10, 20, correlation=5)
    made.kernel(200, 300, "gemm", graph_node=GRAPH, correlation=5)
    assert made.operators() == {"forward": 1}
    assert not [one for one in measure([made.timeline()]).doubts if one.code == "operators-in-graphs"]


@pytest.mark.parametrize("name", ["resnet50-4gpu-compiled", "dense41m-2gpu-pinned", "cnn-1gpu-node"])
def test_a_kernel_that_a_graph_runs_once_under_the_name_of_one_of_its_commands_is_that_command_s(name: str) -> None:
    """XLA shares a kernel among equal instructions, so the names of kernels tell only some of what the order tells."""
    timeline = read(DATA / f"{name}.rank0.sqlite.xz")
    (gpu,) = gather([timeline])
    (found, names), _ = operators._opened([timeline], gpu, operators._named([timeline], gpu, operators._ranges))
    assert found is not None and COMMAND_BUFFER not in {names[at] for at in set(found.tolist()) if at >= 0}
    launches: dict[int, list[int]] = defaultdict(list)
    for row in np.flatnonzero(gpu.operations.are_nodes(slice(None))).tolist():
        launches[int(gpu.operations.call_row[row])].append(row)
    marks = timeline.marks.assign(name=timeline.marks["name"].astype(str))
    ranges = marks[marks["name"].str.startswith("Thunk:#")]
    compared = 0
    for call, rows in list(launches.items())[:150]:
        began, tid = timeline.api.iloc[call][["start_ns", "tid"]]
        mine = ranges[(ranges["tid"] == tid) & (ranges["start_ns"] <= began)]
        around = mine[(mine["end_ns"] > began) & mine["name"].str.contains("hlo_op=command_buffer")]
        if around.empty:
            continue
        inside = mine[(mine["start_ns"] >= around["start_ns"].max()) & (mine["end_ns"] <= began)]
        said = [re.fullmatch(r"Thunk:#(?:name=(.*),)?hlo_op=(.*)#", text) for text in inside["name"]]
        path_of = {re.sub(r"\W", "_", one[2]): one[1] or re.sub(r"\.\d+$", "", one[2]) for one in said if one}
        called = [str(gpu.names[gpu.operations.name[row]]) for row in rows]
        for row, kernel in zip(rows, called, strict=True):
            if called.count(kernel) == 1 and kernel in path_of:
                compared += 1
                assert names[found[row]] == path_of[kernel]
    assert compared > 100
