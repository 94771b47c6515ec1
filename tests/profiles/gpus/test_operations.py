"""The operations of a GPU: which GPU, which launch call, in which order."""

from __future__ import annotations

import pytest

from profiles.gpus import gather
from profiles.gpus.operations import COLLECTIVE, COMPUTE, H2D, MEMSET
from tests.made.build import Build


def test_operations_stand_in_order_of_start_then_class_then_row():
    made = Build()
    made.memset(5, 9)
    made.copy("h2d", 5, 8)
    made.kernel(5, 7)
    made.kernel(1, 2, "ncclDevKernel_AllReduce_Sum_f32_RING_LL")
    (gpu,) = gather.gather([made.timeline()])
    assert gpu.operations.kind.tolist() == [COLLECTIVE, COMPUTE, H2D, MEMSET]
    assert gpu.operations.start_ns.tolist() == [1, 5, 5, 5]


def test_a_launch_call_is_found_by_process_and_correlation():
    made = Build()
    made.kernel(100, 110, call=(10, 20), pid=1)
    made.kernel(200, 210, call=(30, 40), pid=2)
    made.rows["kernels"][1]["correlation"] = made.rows["kernels"][0]["correlation"]
    made.rows["api"][1]["correlation"] = made.rows["api"][0]["correlation"]
    made.kernel(300, 310)
    (gpu,) = gather.gather([made.timeline()])
    assert gpu.operations.call_start_ns[:2].tolist() == [10, 30]
    assert gpu.operations.launched.tolist() == [True, True, False]


def test_of_a_runtime_call_and_the_driver_call_inside_it_the_outer_launched():
    for scattered in (2, 10**12):
        made = Build()
        made.kernel(100, 110, call=(12, 18), api="cuLaunchKernel")
        made.api("cudaLaunchKernel_v7000", 10, 20, correlation=1)
        made.api("cudaFree_v3020", 0, 1, correlation=scattered)
        (gpu,) = gather.gather([made.timeline()])
        assert (gpu.operations.call_start_ns[0], gpu.operations.call_end_ns[0]) == (10, 20)


def test_one_gpu_in_two_recordings_is_one_gpu_on_the_clock_of_the_first():
    first, second = Build(pid=1, rank=0), Build(pid=2, device=1, rank=1)
    first.kernel(100, 110, "a", call=(90, 95))
    second.kernel(105, 120, "b", call=(80, 85))
    first.device(0, uuid="same")
    second.device(1, uuid="same")
    (gpu,) = gather.gather([first.timeline(), second.timeline()], [1000, 1010])
    assert gpu.places == ((0, 0), (1, 1)) and gpu.rank is None
    assert gpu.operations.start_ns.tolist() == [100, 115]
    assert gpu.operations.call_start_ns.tolist() == [90, 90]
    assert gpu.names[gpu.operations.name].tolist() == ["a", "b"]


def test_gpus_without_an_identity_are_told_apart_by_rank():
    first, second = Build(rank=0), Build(rank=1)
    first.kernel(0, 1)
    second.kernel(0, 1)
    assert [gpu.rank for gpu in gather.gather([second.timeline(), first.timeline()])] == [0, 1]


@pytest.mark.parametrize(
    ("hosts", "ranks", "count"),
    [
        ((None, None), (0, 1), 2),
        (("one", "two"), (None, None), 2),
        (("one", "one"), (0, 1), 1),
        ((None, None), (0, 0), 1),
    ],
)
def test_a_bus_id_is_one_of_its_host_or_without_a_host_one_of_its_rank(hosts, ranks, count):
    made = [Build(pid=1 + at, host=hosts[at], rank=ranks[at]) for at in range(2)]
    for one in made:
        one.device(0, bus_id="0000:19:00.0")
        one.kernel(0, 10)
    assert len(gather.gather([one.timeline() for one in made])) == count


def test_recordings_of_several_ranks_on_unknown_hosts_do_not_share_gpus_of_equal_bus_ids():
    made = [Build(rank=None, rank_source="marks") for _ in range(2)]
    for rank in range(4):
        one, device = made[rank // 2], rank % 2
        one.device(device, bus_id=f"0000:1{device}:00.0")
        one.mark(f"rank {rank} of 4", 0, 0, pid=10 + rank)
        one.kernel(10, 20, pid=10 + rank, device=device)
    assert [gpu.rank for gpu in gather.gather([one.timeline() for one in made])] == [0, 1, 2, 3]


@pytest.mark.parametrize("column", ["uuid", "bus_id"])
def test_instances_of_a_gpu_that_list_what_identifies_their_parent_are_gpus_of_their_own(column):
    made = Build()
    for device in range(2):
        made.device(device, **{column: "of the parent"})
        made.kernel(0, 10 + device, device=device)
    assert [gpu.operations.end_ns.tolist() for gpu in gather.gather([made.timeline()])] == [[10], [11]]


def test_gpus_of_one_recording_have_the_ranks_of_their_own_processes():
    made = Build(rank=None, rank_source="marks")
    for pid, device, rank in ((20, 0, 1), (10, 1, 0)):
        made.mark(f"rank {rank} of 2", 0, 0, pid=pid)
        made.kernel(10, 20, pid=pid, device=device)
    made.kernel(10, 20, pid=30, device=2)
    for pid in (10, 20):
        made.copy("h2d", 10, 20, pid=pid, device=3)
    found = gather.gather([made.timeline()])
    assert [(gpu.rank, gpu.device) for gpu in found] == [(0, 1), (1, 0), (None, 2), (None, 3)]


def test_a_process_that_calls_itself_several_ranks_is_none():
    made = Build()
    made.kernel(10, 20)
    for rank in (0, 1):
        made.mark(f"rank {rank} of 2", 0, 0)
    (gpu,) = gather.gather([made.timeline()])
    assert gpu.rank is None


@pytest.mark.parametrize(
    "api, graph_node, kernels, told",
    [
        ("cudaLaunchKernel_v7000", 0, 2, False),  # one call launches one kernel
        ("cudaLaunchKernel_v7000", 0, 1, True),
        ("cudaMalloc_v3020", 0, 2, False),
        ("cudaGraphLaunch_v10000", 5, 2, True),
        ("cudaLaunchCooperativeKernelMultiDevice_v9000", 0, 2, True),
    ],
)
def test_a_call_that_several_kernels_name_launched_none_of_them(api, graph_node, kernels, told):
    made = Build()
    for at in range(0, 1_000, 100):
        for number in range(kernels):
            start = at + 20 * number
            made.kernel(start, start + 10, call=(at - 20, at - 10), api=api, graph_node=graph_node)
            made.rows["kernels"][-1]["correlation"] = at + 1
            made.rows["api"][-1]["correlation"] = at + 1
    (gpu,) = gather.gather([made.timeline()])
    assert gpu.operations.launched.tolist() == [told] * 10 * kernels
    assert gpu.launches.lost == 0


def test_where_numbers_of_calls_begin_again_no_kernel_has_an_earlier_call_that_launches_nothing():
    made = Build()
    for session in (0, 10_000):
        for number in range(10):
            at, other = session + 100 * number, number % 2 and not session
            made.kernel(at, at + 10, call=(at - 20, at - 10), api="cudaEventRecord" if other else "cudaLaunchKernel")
            made.rows["kernels"][-1]["correlation"] = made.rows["api"][-1]["correlation"] = number
            if other:
                del made.rows["kernels"][-1]
    (gpu,) = gather.gather([made.timeline()])
    assert gpu.operations.launched.tolist() == [False] * 15


def test_one_shared_call_in_a_hundred_kernels_stays():
    made = Build()
    for at in range(0, 20_000, 100):
        made.kernel(at, at + 10, call=(at - 20, at - 10))
    made.rows["kernels"][1]["correlation"] = made.rows["kernels"][0]["correlation"]
    (gpu,) = gather.gather([made.timeline()])
    assert gpu.operations.launched.all()
