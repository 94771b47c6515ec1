"""Logs of NCCL's example of a profiler plugin: every number against the calls from which the log was written."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import CliRunner

from profiles.ground.errors import NcclLog, UnreadableRecording
from profiles.measuring import logged
from profiles.readers import formats
from profiles.verbs.gate import command as gate
from profiles.verbs.timeline import command as timeline

CLOCK = 1_756_135_989_724_672_000


@dataclass
class Call:
    kind: str
    number: int
    count: int
    datatype: str
    channels: list[tuple[int, int]] = field(default_factory=list)  # ns at which each begins and ends; 0: unknown
    category: str = "COLL"


def text(rank: int, calls: list[Call], *, communicator: int = 0xFEDC_BA98_7654_3210, pid: int = 100) -> str:
    """The log of one rank, in the words of print_event.cc and plugin.cc of NCCL 2.30."""
    lines = []

    def event(name: str, category: str, phase: str, args: str = "") -> None:
        lines.append(
            f'{{"name": "{name}", "cat": "{category}", "ph": "{phase}", "id": 0, "pid": {pid}, "tid": 1, '
            f'"ts": {len(lines):f}{args}}},\n'
        )

    for call in calls:
        about = f'"Rank": {rank}, "Count": {call.count}, "Datatype": "{call.datatype}"'
        if call.category == "P2P":
            about = f'"CommHash": {communicator}, {about}, "Peer": 1, "nChannels": 1'
        else:
            about = f'"SeqNum": {call.number}, "CommHash": {communicator}, {about}, "Algorithm": "RING", "nChannels": 2'
        event("Group API", "GROUP_API", "b", ', "args": {"groupApiId": 0, "groupDepth": 1}')
        event(call.kind, f"{call.category}_API", "b", f', "args": {{"count": {call.count}, "Stream": "(nil)"}}')
        event(call.kind, call.category, "b", f', "args": {{{about}}}')
        for channel, (begin, end) in enumerate(call.channels):
            clock = f'"Channel": {channel}, "StartGpuClk": {begin}, "StopGpuClk": {end}'
            event("KernelCh", "GPU", "b", f', "args": {{{clock}}}')
            event("ScheduleSend", "PROXY", "b", ', "args": {"Channel": 0, "Peer": 1, "transSize": 524288}')
            event("ScheduleSend", "PROXY", "e")
            event("KernelCh", "GPU", "e")
        event(call.kind, call.category, "e")
        event(call.kind, f"{call.category}_API", "e")
        event("Group API", "GROUP_API", "e")
    return "[\n" + "".join(lines) + "{}]\n"


def write(folder: Path, *ranks: list[Call]) -> list[Path]:
    found = []
    for rank, calls in enumerate(ranks):
        found.append(folder / f"nccl_18364758544493064720_{rank}.json")
        found[-1].write_text(text(rank, calls, pid=100 + rank))
    return found


def ran(
    ns: int, *, kind: str = "AllReduce", number: int = 0, count: int = 1 << 20, datatype: str = "ncclFloat32"
) -> Call:
    return Call(kind, number, count, datatype, [(CLOCK + 5, CLOCK + 5 + ns)])


def test_bytes_times_and_waiting_are_those_of_the_calls(tmp_path: Path) -> None:
    ranks = [
        [ran(900), ran(400, number=1, datatype="ncclBfloat16"), ran(777, kind="AllGather", count=1000)],
        [ran(300), ran(650, number=1, datatype="ncclBfloat16"), ran(500, kind="AllGather", count=1000)],
        [ran(950), ran(650, number=1, datatype="ncclBfloat16"), ran(600, kind="AllGather", count=1000)],
    ]
    found = logged.measure(write(tmp_path, *ranks))
    reduced, gathered = sorted(found.kinds, key=lambda one: one.kind, reverse=True)
    assert (reduced.communicator, reduced.ranks, reduced.nodes, reduced.count) == ("0xfedcba9876543210", 3, None, 2)
    assert reduced.bytes == (1 << 20) * 4 + (1 << 20) * 2
    assert reduced.transfer_ns == 300 + 400
    assert reduced.bus_gb_per_s == pytest.approx(reduced.bytes / 700 * 2 * 2 / 3)
    assert [one.waiting_ns for one in reduced.each] == [600 + 0, 0 + 250, 650 + 250]
    assert (gathered.bytes, gathered.transfer_ns) == (4000, 500)
    assert gathered.bus_gb_per_s == pytest.approx(4000 * 2 / 500)
    assert [one.pid for one in found.processes] == [100, 101, 102]
    assert [doubt.code for doubt in found.doubts] == ["ranks-not-told", "calls-not-kept"]


def test_a_call_takes_as_long_as_its_longest_channel_of_those_that_are_its_own(tmp_path: Path) -> None:
    own = [(CLOCK, CLOCK + 500), (CLOCK + 20, CLOCK + 800), (CLOCK + 10, 0)]
    earlier = [(CLOCK - 9_000_000, CLOCK - 5_000_000), (CLOCK + 30, CLOCK - 7_000)]  # left over from other calls
    call = Call("AllReduce", 0, 100, "ncclInt8", [*own, *earlier])
    assert [one.lasted_ns for one in logged.measure(write(tmp_path, [call])).kinds] == [780]


def test_calls_without_a_time_or_a_size_are_left_out_and_counted(tmp_path: Path) -> None:
    dead = Call("AllReduce", 1, 100, "ncclFloat32", [(CLOCK, 0)])
    made_later = ran(10, number=2, datatype="ncclFloat4")
    found = logged.measure(write(tmp_path, [ran(30), dead, made_later], [ran(20), ran(40, number=1)]))
    assert [(one.count, one.matched, one.transfer_ns) for one in found.kinds] == [(2, 1, 20)]
    assert [doubt.code for doubt in found.doubts] == [
        "untimed-calls",
        "ranks-not-told",
        "calls-not-kept",
        "calls-not-logged",
    ]
    assert "2 of 5 calls" in found.doubts[0].text


def test_calls_that_the_plugin_dropped_are_counted_by_the_gaps_in_their_numbers(tmp_path: Path) -> None:
    """Each rank lacks the AllReduce 0, 2, 3 and 4 and the Broadcast 0; whether calls follow, nobody can tell."""
    numbers = [*(("AllReduce", one) for one in (1, 5, 6)), ("Broadcast", 1)]
    ranks = [[ran(ns, kind=kind, number=number) for kind, number in numbers] for ns in (20, 30)]
    (said,) = (one.text for one in logged.measure(write(tmp_path, *ranks)).doubts if one.code == "calls-not-kept")
    assert said.endswith("by their numbers at least 10 calls are missing, and later ones may be")
    dead = Call("AllReduce", 0, 100, "ncclFloat32", [(CLOCK, 0)])  # logged without a time: not dropped
    (said,) = (
        one.text
        for one in logged.measure(write(tmp_path, [dead, ran(9, number=1)])).doubts
        if one.code == "calls-not-kept"
    )
    assert said.endswith("later calls may be missing")


def test_a_communicator_whose_kernels_have_no_end_is_counted_beside_others(tmp_path: Path) -> None:
    logs = write(tmp_path, [ran(30)], [ran(20)])
    sends = [Call("Send", 0, 1000, "ncclInt8", [(CLOCK, 0), (CLOCK + 1, 0)], "P2P")] * 3
    logs.append(tmp_path / "nccl_7_0.json")
    logs[-1].write_text(text(0, sends, communicator=7))
    found = logged.measure(logs)
    assert [(one.kind, one.transfer_ns) for one in found.kinds] == [("AllReduce", 20)]
    assert found.doubts[0].code == "untimed-calls" and "3 of 5 calls" in found.doubts[0].text
    with pytest.raises(UnreadableRecording, match="whose kernels have no end"):
        logged.measure(logs[-1:])


def test_messages_have_a_length_and_no_waiting(tmp_path: Path) -> None:
    one, other = (Call("Send", 0, 1000, "ncclFloat64", [(CLOCK, CLOCK + ns)], "P2P") for ns in (50, 150))
    (kind,) = logged.measure(write(tmp_path, [one, other])).kinds
    assert (kind.kind, kind.count, kind.bytes, kind.lasted_ns, kind.transfer_ns) == ("Send", 2, 16_000, 200, None)


def test_the_inspectors_logs_of_the_same_communicator_tell_how_many_ranks_it_has(tmp_path: Path) -> None:
    logs = write(tmp_path, [ran(30_000)], [ran(20_000)])
    header = {"id": "0xfedcba9876543210", "rank": 3, "n_ranks": 4, "nnodes": 1}
    call = {"coll": "AllReduce", "coll_sn": 0, "coll_msg_size_bytes": 1 << 22, "coll_exec_time_us": 25}
    line = {"header": header, "metadata": {"hostname": "a", "pid": 7}, "coll_perf": call}
    logs.append(tmp_path / "a-pid7.log")
    logs[-1].write_text(json.dumps(line) + "\n")
    (kind,) = logged.measure(logs).kinds
    assert (kind.ranks, kind.matched, kind.transfer_ns, kind.bytes) == (4, 1, 20_000, 1 << 22)


@pytest.mark.parametrize("change", ["cut", "no-kernels"])
def test_a_log_that_cannot_be_read_says_why_in_a_line(tmp_path: Path, change: str) -> None:
    (log,) = write(tmp_path, [ran(30)])
    if change == "cut":
        log.write_text(log.read_text()[:-40])
        words = "damaged, or that does not have its last line; copy it again"
    else:
        log.write_text(text(0, [Call("AllReduce", 0, 100, "ncclInt8")]))
        words = "without a time of the GPU.* NCCL_PROFILE_EVENT_MASK=66"
    with pytest.raises(UnreadableRecording, match=words):
        logged.measure([log])
    with pytest.raises(NcclLog, match="give the logs of all ranks"):
        formats.read(log)


def test_timeline_and_gate_take_a_folder_of_them(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    write(folder, [ran(30_000)], [ran(20_000)])
    shown = CliRunner().invoke(timeline, [str(folder)], catch_exceptions=False)
    assert shown.exit_code == 0 and "2 logs of NCCL, 2 processes" in shown.output and "ranks-not-told" in shown.output
    rate = (1 << 22) / 20_000
    for limit, code in ((rate * 0.99, 0), (rate * 1.01, 1)):
        told = CliRunner().invoke(gate, [str(folder), "--min", f"bus_gb_per_s[AllReduce]={limit}"])
        assert told.exit_code == code, told.output
