"""Profiles of XLA: real ones (TensorFlow on a CPU, JAX on two H200s), and built ones whose answers are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from profiles import readers
from profiles.ground.errors import UnreadableRecording
from profiles.model.timeline import Timeline
from profiles.readers import xplane
from tests import recordings
from tests.made.planes import Plane

DATA = recordings.DATA / "xplane"
CPU = DATA / "cpu-3-steps.xplane.pb"
GPUS = DATA / "jax-2gpu-5-steps.xplane.pb"


def gpu_space() -> Any:
    """One GPU with three streams, its CUDA calls, a step of the host: built, not recorded."""
    space = xplane.message()()
    gpu = Plane(space, "/device:GPU:1", gpu_device_name="NVIDIA H200", core_count=132)
    kernel = {"kernel_details": "regs:32 grid:1,1,1 block:1,1,1", "context_id": "$$2"}
    gpu.line(13, "Stream #13(Compute)", 1000,
             ("conv(float*)", 5_000, 2_000_000, {**kernel, "correlation_id": 11}),
             ("node", 9_000_000, 1_500, {**kernel, "correlation_id": 12, "cuda_graph_node_id": 77}))  # fmt: skip
    gpu.line(14, "Stream #14(MemcpyH2D,Memset)", 1000,
             ("MemcpyH2D", 0, 5_000, {"memcpy_details": "kind_src:pageable kind_dst:device size:64 dest:0 async:1",
                                      "correlation_id": 13, "context_id": "$$2"}),
             ("MemcpyP2P", 10_000, 5_000, {"memcpy_details": "kind_src:device kind_dst:device size:32 dest:3 async:1"}),
             ("Memset", 20_000, 1_000, {"Memset_details": "kind:device num_bytes:16 async:1"}),
             ("MemoryAlloc", 30_000, 1_000, {"memalloc_details": "kind:device num_bytes:16"}))  # fmt: skip
    gpu.line(15, "Stream #15(CudaGraph)", 1000, ("CudaGraph", 40_000, 3_000, {"cuda_graph_exec_id": 5}))
    gpu.line(99, "XLA Ops", 1000, ("fusion", 0, 1_000, {}))
    calls = Plane(space, "/host:CUPTI")
    calls.line(501, "Host Threads/501", 900, ("cuLaunchKernel", 0, 40_000, {"correlation_id": 11}))
    host = Plane(space, "/host:CPU")
    host.line(500, "python", 800, ("train", 0, 9_000_000, {"step_num": 4}), ("", 5_000, 1_000, {"edge_name": "ret_0"}))
    Plane(space, "Task Environment", profile_start_time=1_795_253_750_111_889_864)
    return space


def read(space: Any, tmp_path: Path) -> Timeline:
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(space.SerializeToString())
    return readers.read(path)


def test_a_gpus_plane_becomes_operations_by_what_their_statistics_say(tmp_path: Path) -> None:
    found = read(gpu_space(), tmp_path)
    place = ["start_ns", "end_ns", "device", "context", "stream", "correlation"]
    assert found.kernels[[*place, "name", "graph_node"]].values.tolist() == [
        [1005, 3005, 1, 2, 13, 11, "conv(float*)", 0],
        [10000, 10001, 1, 2, 13, 12, "node", 77],
    ]
    copy = ["kind", "bytes", "src_kind", "dst_kind", "dst_device"]
    assert found.copies[[*place, *copy]].values.tolist() == [
        [1000, 1005, 1, 2, 14, 13, "h2d", 64, "pageable", "device", -1],
        [1010, 1015, 1, -1, 14, -1, "p2p", 32, "device", "device", 3],
    ]
    assert found.memsets[[*place, "bytes"]].values.tolist() == [[1020, 1021, 1, -1, 14, -1, 16]]
    assert found.graphs[[*place, "graph"]].values.tolist() == [[1040, 1043, 1, -1, 15, -1, 5]]
    assert found.left_out == {"memory events": 1, "line XLA Ops": 1}
    assert found.devices[["device", "name"]].values.tolist() == [[1, "NVIDIA H200"]]


def test_calls_and_ranges_of_the_host_are_read_beside_it(tmp_path: Path) -> None:
    found = read(gpu_space(), tmp_path)
    assert found.api[["start_ns", "end_ns", "tid", "correlation", "name"]].values.tolist() == [
        [900, 940, 501, 11, "cuLaunchKernel"]
    ]
    assert found.marks[["start_ns", "end_ns", "tid", "name"]].values.tolist() == [
        [800, 9800, 500, "step 4"],
        [805, 806, 500, "#edge_name=ret_0#"],
    ]
    assert found.known == {"kernels", "graphs", "copies", "memsets", "api", "marks", "devices"}
    assert found.recording.origin_utc_ns == 1_795_253_750_111_889_864
    assert found.doubts == ()
    joined = found.kernels.merge(found.api, on=["pid", "correlation"])
    assert joined["name_x"].tolist() == ["conv(float*)"]


def test_a_real_profile_of_a_cpu_has_its_steps_and_says_that_no_gpu_is_in_it() -> None:
    found = readers.read(CPU)
    steps = found.marks[found.marks["name"].astype(str).str.startswith("step ")]
    assert steps["name"].tolist() == ["step 0", "step 1", "step 2"]
    assert (steps["start_ns"].to_numpy()[1:] >= steps["end_ns"].to_numpy()[:-1]).all()
    space = xplane.message().FromString(CPU.read_bytes())
    events = [event for plane in space.planes for line in plane.lines for event in line.events]
    assert len(found.marks) == len(events)
    assert found.known == {"marks", "devices"}
    assert [doubt.code for doubt in found.doubts] == ["no-gpu"]


def plain_events(device: int) -> list[tuple[str, int, int, int]]:
    """(name, start, end in ns, correlation) of a GPU's streams, event by event."""
    space = xplane.message().FromString(GPUS.read_bytes())
    (plane,) = [plane for plane in space.planes if plane.name == f"/device:GPU:{device}"]
    found = []
    for line in plane.lines:
        for event in line.events:
            start_ps = line.timestamp_ns * 1000 + event.offset_ps
            (correlation,) = [
                stat.uint64_value or stat.int64_value
                for stat in event.stats
                if plane.stat_metadata[stat.metadata_id].name == "correlation_id"
            ]
            name = plane.event_metadata[event.metadata_id].name
            found.append((name, start_ps // 1000, (start_ps + event.duration_ps) // 1000, correlation))
    return sorted(found)


@pytest.mark.parametrize("device", [0, 1])
def test_a_real_profile_of_two_gpus_has_every_event_of_its_streams(device: int) -> None:
    found = readers.read(GPUS)
    mine = found.kernels[found.kernels["device"] == device]
    copies = found.copies[found.copies["device"] == device]
    names = {"h2d": "MemcpyH2D", "d2h": "MemcpyD2H", "d2d": "MemcpyD2D", "p2p": "MemcpyP2P"}
    columns = ["start_ns", "end_ns", "correlation"]
    rows = [(str(name), *row) for name, row in zip(mine["name"], mine[columns].values.tolist(), strict=True)]
    rows += [(names[kind], *row) for kind, row in zip(copies["kind"], copies[columns].values.tolist(), strict=True)]
    assert sorted(rows) == plain_events(device)
    assert mine["name"].astype(str).str.startswith("ncclDevKernel_AllReduce").sum() == 5
    assert set(copies.loc[copies["kind"] == "h2d", "bytes"]) == {256 * 512 * 4 // 2}


def test_each_operation_of_a_real_profile_has_the_call_that_launched_it() -> None:
    found = readers.read(GPUS)
    for operations in (found.kernels, found.copies):
        joined = operations.merge(found.api, on=["pid", "correlation"], suffixes=("", "_call"))
        assert len(joined) == len(operations)
        assert (joined["start_ns_call"] < joined["start_ns"]).all()
    # Two GPUs ran five steps: a graph each, and three kernels outside it.
    calls = found.api[found.api["correlation"] >= 0]["name"].astype(str).value_counts().to_dict()
    assert (calls["cuGraphLaunch"], calls["cuLaunchKernel"], calls["cuMemcpyHtoDAsync"]) == (10, 30, 10)
    steps = found.marks[found.marks["name"].astype(str).str.startswith("step ")]
    assert steps["name"].tolist() == [f"step {number}" for number in range(5)]


def test_what_the_profiler_warns_of_is_passed_on(tmp_path: Path) -> None:
    space = gpu_space()
    space.errors.append("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES")
    (doubt,) = read(space, tmp_path).doubts
    assert doubt.code == "profiler-warnings" and "INSUFFICIENT_PRIVILEGES" in doubt.text


def test_events_that_cannot_be_are_left_out_and_doubted(tmp_path: Path) -> None:
    space = gpu_space()
    events = space.planes[0].lines[0].events
    events.add(metadata_id=1, offset_ps=5, duration_ps=-5000)
    space.planes[0].lines.add(name="Stream #16", timestamp_ns=2**62).events.add(metadata_id=1, duration_ps=5)
    found = read(space, tmp_path)
    assert len(found.kernels) == 2
    assert (found.left_out["end before they start: kernels"], found.left_out["without times"]) == (1, 1)
    assert [doubt.code for doubt in found.doubts] == ["impossible-times"]


def test_a_profile_cut_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(CPU.read_bytes()[:9000])
    with pytest.raises(UnreadableRecording, match="is cut short or damaged"):
        readers.read(path)


def test_a_profile_with_nothing_in_it_is_refused(tmp_path: Path) -> None:
    space = xplane.message()()
    space.planes.add(name="/host:CPU")
    with pytest.raises(UnreadableRecording, match="without GPU work and without ranges"):
        read(space, tmp_path)


@pytest.mark.train
@pytest.mark.beside
def test_the_compiled_message_is_tensorflows_own() -> None:
    theirs = pytest.importorskip("tensorflow.tsl.profiler.protobuf.xplane_pb2")
    ours = xplane.message().DESCRIPTOR.file
    assert set(ours.message_types_by_name) == set(theirs.DESCRIPTOR.message_types_by_name)
    for name, kind in theirs.DESCRIPTOR.message_types_by_name.items():
        fields = [(f.name, f.number, f.type) for f in kind.fields]
        assert [(f.name, f.number, f.type) for f in ours.message_types_by_name[name].fields] == fields


@pytest.mark.parametrize(("calls", "doubted"), [(3, False), (40, True)])
def test_a_profile_of_pythons_calls_says_that_they_slow_the_host_down(
    tmp_path: Path, calls: int, doubted: bool
) -> None:
    space = gpu_space()
    host = Plane(space, "/host:python-tracer")
    host.line(500, "python", 800, *((f"$train.py:{at} step", at * 1_000, 500, {}) for at in range(calls)))
    assert ("python-traced" in {doubt.code for doubt in read(space, tmp_path).doubts}) is doubted
