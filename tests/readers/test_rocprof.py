"""rocprof's results.json, made as bin/sqlitedb.py of ROCm/rocprofiler (commit de2e2d1) writes it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from profiles import analyse
from profiles.ground.errors import UnreadableRecording
from profiles.readers import read

SECTIONS = {0: "Markers and Ranges", 2: "CPU HIP API", 3: "CPU HSA API", 1: "COPY", 6: "GPU0", 7: "GPU1"}
LAUNCH = "( kernel({name}) function_address(0x200b20) numBlocks({{z(1) y(1) x(256}}) args(0x7ffc) stream({stream}))"
COPY = "( dst(0x7f01) src(0x7f02) sizeBytes({size}) kind(1) stream({stream}))"


def event(section: int, lane: int, name: str, begin: int, end: int, **args: Any) -> str:
    """As SQLiteDB.dump_json: all values quoted, whole microseconds outside of the arguments."""
    told = {"BeginNs": begin, "EndNs": end, **args, "DurationNs": end - begin}
    inner = ",\n    ".join(f'"{key.replace("_", "-")}":"{value}"' for key, value in told.items())
    times = f'"ts":"{begin // 1000}","dur":"{max((end - begin) // 1000, 1)}"'
    return (
        f',{{"ph":"X","name":"{name}","pid":"{section}","tid":"{lane}",{times},\n  "args":{{\n    {inner}\n  }}\n}}\n'
    )


def called(name: str, begin: int, end: int, args: str = "()", tid: int = 2385) -> str:
    return event(2, tid, name, begin, end, pid=2385, tid=tid, Name=name, args=args, Data="")


def did(pid: int, name: str, begin: int, end: int, *, device: int = 0, stream: int = 1, tid: int = 2385) -> str:
    told = {"dev_id": device, "queue_id": 0, "Name": name, "pid": 2385, "tid": tid, "stream_id": stream, "Data": ""}
    return event(pid, stream, name, begin, end, **told)


def results(path: Path, *events: str) -> Path:
    labels = "".join(
        f',{{"args":{{"name":"{name}"}},"ph":"M","pid":{pid},"name":"process_name","sort_index":{at}}}\n'
        for at, (pid, name) in enumerate(SECTIONS.items())
    )
    flow = ',{"ts":5,"ph":"s","cat":"DataFlow","id":0,"pid":2,"tid":2385,"name":"dep"}\n'
    end = '],\n"otherData": {\n    "HSA Agents": "2"\n  }\n}'
    path.write_text('{ "traceEvents":[{}\n' + labels + "".join(events) + flow + end)
    return path


T = 1_201_478_076_289  # ns since the machine began, as a public results.json has them


def steps(count: int = 6) -> list[str]:
    """Steps of a copy and two kernels on stream 1: launched ahead, the second kernel 40 us late."""
    found = []
    for at in (T + 1_000_000 * step for step in range(count)):
        found += [
            event(0, 2385, f"step {at - T}", at, at + 900_000, pid=2385, tid=2385, Name="step"),
            called("hipMemcpyAsync", at, at + 5_000, COPY.format(size=4096, stream=1)),
            called("hipLaunchKernel", at + 6_000, at + 9_000, LAUNCH.format(name="conv(float*)", stream=1)),
            called("hipLaunchKernel", at + 400_000, at + 440_000, LAUNCH.format(name="relu(float*)", stream=1)),
            did(1, "CopyHostToDevice", at + 20_000, at + 120_001),
            did(6, "conv(float*)", at + 125_003, at + 400_005),
            did(6, "relu(float*)", at + 445_007, at + 600_000),
            did(6, "<barrier packet>", at + 600_000, at + 610_000),
        ]
    return found


def test_operations_calls_and_ranges_are_read_to_the_nanosecond(tmp_path: Path) -> None:
    timeline = read(results(tmp_path / "results.json", *steps()))
    assert (timeline.recording.format, timeline.recording.tool) == ("rocprof", "rocprof")
    assert [len(getattr(timeline, table)) for table in ("kernels", "copies", "api", "marks")] == [12, 6, 18, 6]
    assert timeline.recording.origin_ns == T + 20_000
    first = timeline.kernels.iloc[0]
    assert (first.start_ns, first.end_ns, first.device, first.stream) == (105_003, 380_005, 0, 1)
    assert str(first["name"]) == "conv(float*)"
    copy = timeline.copies.iloc[0]
    assert (copy.kind, copy.bytes, copy.end_ns) == ("h2d", 4096, 100_001)
    assert timeline.left_out == {"barriers": 6}


def test_each_operation_has_the_call_that_launched_it(tmp_path: Path) -> None:
    timeline = read(results(tmp_path / "results.json", *steps()))
    calls = timeline.api.set_index("correlation")
    for frame, ahead in ((timeline.copies, 20_000), (timeline.kernels[::2], 119_003), (timeline.kernels[1::2], 45_007)):
        assert (frame["start_ns"].to_numpy() - calls.loc[frame["correlation"], "start_ns"].to_numpy() == ahead).all()


def older(*events: str) -> list[str]:
    """As rocprof wrote them before: section and lane for process and thread, streams of no operation."""
    found = []
    for text in events:
        head, _, inner = text.partition('"args":')
        section, lane = re.search(r'"pid":"(\d+)","tid":"(\d+)"', head).groups()
        if '"dev-id"' in inner:
            inner = re.sub(r'"stream-id":"\d+"', '"proc-id":"2385"', inner)
            inner = re.sub(r'"tid":"\d+"', f'"tid":"{lane}"', inner)
        found.append(head + '"args":' + re.sub(r'"pid":"\d+"', f'"pid":"{section}"', inner))
    return found


def test_older_files_tell_processes_and_launches_by_other_names(tmp_path: Path) -> None:
    newer, old = (
        analyse([read(results(tmp_path / name, *events))], window="capture").measures
        for name, events in (("new.json", steps()), ("old.json", older(*steps())))
    )
    assert not {"no-api-rows", "several-processes-on-gpu"} & {doubt.code for doubt in old.doubts}
    assert old.gpus[0].ledger_ns == newer.gpus[0].ledger_ns
    timeline = read(tmp_path / "old.json")
    for table in (timeline.kernels, timeline.copies, timeline.api, timeline.marks):
        assert set(table["pid"]) == {2385}


def test_the_late_launch_is_the_cause_of_the_idle_time(tmp_path: Path) -> None:
    (gpu,) = analyse([read(results(tmp_path / "results.json", *steps()))], window="capture").measures.gpus
    assert gpu.ledger_ns["compute"] == 6 * (275_002 + 154_993)
    assert gpu.ledger_ns["h2d"] == 6 * 100_001
    # Within steps the second kernel's call had not returned when the first one ended; between them the batch is late,
    # copied on the kernels' own stream for the step that begins.
    assert gpu.ledger_ns["idle_launch"] == 6 * 45_002
    assert gpu.ledger_ns["idle_feed"] == 5 * 420_000
    assert gpu.ledger_ns["idle_turnaround"] == 6 * 5_002


@pytest.mark.parametrize(
    "more",
    [
        [did(6, "conv(float*)", T + 90_000_000, T + 90_000_009)],  # one more than calls
        [called("hipLaunchKernel", T + 1, T + 2, LAUNCH.format(name="conv(float*)", stream=1))],  # one fewer
        [
            called("hipLaunchKernel", T + 1, T + 2, LAUNCH.format(name="conv(float*)", stream=1)),
            did(7, "conv(float*)", T + 90_000_000, T + 90_000_009, device=1),  # the stream of another GPU
        ],
    ],
)
def test_a_call_that_may_be_anothers_is_nobodys(more: list[str], tmp_path: Path) -> None:
    timeline = read(results(tmp_path / "results.json", *steps(), *more))
    is_conv = (timeline.kernels["name"] == "conv(float*)").to_numpy()
    assert (timeline.kernels["correlation"][is_conv] == -1).all()
    assert (timeline.kernels["correlation"][~is_conv] >= 0).all()


def test_copies_whose_call_is_unknown_stand_beside_those_whose_bytes_are_told(tmp_path: Path) -> None:
    alone = did(1, "CopyHostToDevice", T + 90_000_000, T + 90_000_009, stream=2)
    timeline = read(results(tmp_path / "results.json", *steps(), alone))
    assert timeline.copies["bytes"].tolist() == [4096] * 6 + [0]


def test_who_has_no_calls_is_told_which_profiler_tells_them(tmp_path: Path) -> None:
    alone = did(6, "conv(float*)", T + 90_000_000, T + 90_000_009)
    doubts = analyse([results(tmp_path / "results.json", *steps(), alone)], window="capture").measures.doubts
    (missing,) = (doubt for doubt in doubts if doubt.code == "calls-missing")
    assert "rocprofv3 --runtime-trace" in missing.next and "slice" not in missing.next


def test_two_gpus_are_two(tmp_path: Path) -> None:
    events = [did(6, "a", T, T + 10), did(7, "b", T + 5, T + 20, device=1, stream=2)]
    gpus = analyse([read(results(tmp_path / "results.json", *events))]).measures.gpus
    assert [(gpu.device, gpu.ledger_ns["compute"]) for gpu in gpus] == [(0, 10), (1, 15)]


def test_a_trace_of_calls_alone_is_refused(tmp_path: Path) -> None:
    path = results(tmp_path / "results.json", called("hipMalloc", T, T + 5))
    with pytest.raises(UnreadableRecording, match="rocprof's without a GPU event.*--hip-trace"):
        read(path)


def test_impossible_times_are_left_out_and_doubted(tmp_path: Path) -> None:
    events = [did(6, "a", T, T + 10), did(6, "a", T, T - 10), did(6, "a", -5, 10)]
    timeline = read(results(tmp_path / "results.json", *events))
    assert len(timeline.kernels) == 1
    assert [doubt.code for doubt in timeline.doubts] == ["impossible-times"]
