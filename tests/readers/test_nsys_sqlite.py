"""nsys SQLite: real recordings against plain SQL and nsys's own tables; built ones for what none of them holds."""

from __future__ import annotations

import csv
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from profiles import readers
from profiles.ground.errors import UnreadableRecording
from profiles.measuring.analysis import measure
from profiles.model.tables import COLUMNS, IDS
from profiles.views.terminal import info as recordings
from tests.tiers import few

from ..recordings import NSYS, OURS, SHARED, needs_shared, rows, tables, timeline

CUPTI = "CUPTI_ACTIVITY_KIND_"
SOURCES = {
    "kernels": "KERNEL",
    "graphs": "GRAPH_TRACE",
    "copies": "MEMCPY",
    "memsets": "MEMSET",
    "syncs": "SYNCHRONIZATION",
}


@pytest.mark.parametrize("path", few(OURS + NSYS), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_counts_times_and_bytes_are_those_of_plain_sql(path: Path) -> None:
    read, there = timeline(path), tables(path)
    for name, source in {**SOURCES, "api": "RUNTIME"}.items():
        table = getattr(read, name)
        if CUPTI + source not in there:
            assert len(table) == 0
            continue
        [(count, start, end)] = rows(path, f"SELECT COUNT(*), TOTAL(start), TOTAL(end) FROM {CUPTI}{source}")
        assert len(table) == count
        [(length,)] = rows(path, f"SELECT COALESCE(SUM(end - start), 0) FROM {CUPTI}{source}")
        assert int((table["end_ns"] - table["start_ns"]).sum()) == length
        [(low, high)] = rows(path, f"SELECT MIN(start), MAX(end) FROM {CUPTI}{source}")
        assert not count or (table["start_ns"].min(), table["end_ns"].max()) == (low, high)
    for name, source in (("copies", "MEMCPY"), ("memsets", "MEMSET")):
        if CUPTI + source in there:
            assert [(int(getattr(read, name)["bytes"].sum()),)] == rows(
                path, f"SELECT TOTAL(bytes) FROM {CUPTI}{source}"
            )
    assert not read.left_out and not read.doubts


@pytest.mark.parametrize("path", few(OURS + NSYS), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_column_of_a_kernel_is_that_of_plain_sql(path: Path) -> None:
    read = timeline(path)
    blocks = "min(gridX * gridY * gridZ, 32767)"
    expected = rows(
        path,
        "SELECT k.start, k.end, deviceId, contextId, streamId, (globalPid >> 24) & 16777215, correlationId, s.value,"
        f" COALESCE(graphNodeId, 0), '', '', {blocks} FROM {CUPTI}KERNEL k JOIN StringIds s ON s.id = k.demangledName"
        " ORDER BY k.rowid",
    )
    found = read.kernels.astype({"name": str})
    assert list(found.itertuples(index=False, name=None)) == expected


@pytest.mark.parametrize("path", few(OURS + NSYS), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_calls_have_their_threads_and_names_without_the_cuda_version(path: Path) -> None:
    read = timeline(path)
    expected = rows(
        path,
        "SELECT r.start, r.end, (globalTid >> 24) & 16777215, globalTid & 16777215, correlationId, s.value"
        f" FROM {CUPTI}RUNTIME r JOIN StringIds s ON s.id = r.nameId ORDER BY r.rowid",
    )
    expected = [(*row[:5], re.sub(r"_v\d{4,}$", "", row[5])) for row in expected]
    assert list(read.api.astype({"name": str}).itertuples(index=False, name=None)) == expected


@pytest.mark.parametrize("path", few(OURS + NSYS), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_marks_are_named_by_text_or_by_number(path: Path) -> None:
    read = timeline(path)
    if "NVTX_EVENTS" not in tables(path):
        assert "marks" not in read.known and not len(read.marks)
        return
    expected = rows(
        path,
        "SELECT n.start, COALESCE(n.end, n.start), COALESCE(n.text, s.value), (globalTid >> 24) & 16777215,"
        " globalTid & 16777215 FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId"
        " WHERE eventType IN (34, 59, 60) ORDER BY n.rowid",
    )
    found = read.marks.astype({"name": str})[["start_ns", "end_ns", "name", "pid", "tid"]]
    assert list(found.itertuples(index=False, name=None)) == expected


@needs_shared
@pytest.mark.parametrize(
    ("table", "report"), [("kernels", "kern"), ("api", "api"), ("copies", "mem-time"), ("memsets", "mem-time")]
)
def test_sums_agree_with_nsys_stats_to_the_nanosecond(table: str, report: str) -> None:
    """Real: nsys's own summaries of the same recording, as a second opinion."""
    stem = SHARED / "h200" / "resnet50-2gpu-device.rank0"
    read = readers.read(f"{stem}.sqlite.xz")
    frame = getattr(read, table)
    frame = frame.assign(length=frame["end_ns"] - frame["start_ns"])
    if table == "copies":
        frame["name"] = frame["kind"].map(
            {"h2d": "[CUDA memcpy Host-to-Device]", "d2h": "[CUDA memcpy Device-to-Host]"}
        )
    elif table == "memsets":
        frame["name"] = "[CUDA memset]"
    lengths = frame.groupby("name", observed=True)["length"]
    found = {
        str(name): (int(part.sum()), len(part), int(part.min()), int(part.max()), float(part.median()))
        for name, part in lengths
    }
    with open(f"{stem}.nsys-{report}-sum.csv", newline="") as file:
        said = {
            row["Name" if "Name" in row else "Operation"]: (
                int(row["Total Time (ns)"]),
                int(row.get("Instances") or row.get("Num Calls") or row["Count"]),
                int(row["Min (ns)"]),
                int(row["Max (ns)"]),
                float(row["Med (ns)"]),
            )
            for row in csv.DictReader(file)
        }
    if report == "api":  # nsys leaves versions of five digits on: cudaLaunchKernelExC_v11060
        said = {re.sub(r"_v\d{5}$", "", name): row for name, row in said.items()}
    if report == "mem-time":
        said = {name: row for name, row in said.items() if name in found}
    assert found == said


@needs_shared
def test_a_file_of_two_processes_keeps_their_equal_correlations_apart() -> None:
    read = readers.read(SHARED / "public" / "nsys-sqlite" / "mfu-2gpu-2process.sqlite")
    launched = read.kernels.merge(read.api, on=["pid", "correlation"], suffixes=("", "_call"))
    assert not launched.duplicated(["pid", "correlation"]).any()
    assert read.kernels.groupby("device")["pid"].nunique().eq(1).all()
    assert set(read.kernels["pid"]) == {144, 145}
    assert read.kernels.merge(read.api, on="correlation").shape[0] > len(launched)  # the process is needed


@needs_shared
def test_schemas_from_none_to_the_newest_are_read() -> None:
    folder = SHARED / "public" / "nsys-sqlite"
    versions = {path.name: readers.read(path).recording.schema_version for path in sorted(folder.iterdir())}
    assert versions == {
        "cloverleaf-cuda.sqlite": "3.13.2",
        "h100-2gpu-slice.sqlite": "3.25.0",
        "mfu-2gpu-2process.sqlite": "3.25.0",
        "no-version-table.sqlite": None,
        "saxpy-mpi.sqlite": "2.9.1",
    }


def test_a_real_recording_says_where_and_when() -> None:
    read = readers.read(OURS[1])
    assert OURS[1].name == "resnet50-2gpu-device.rank1.sqlite.xz"
    told = read.recording
    assert (told.format, told.tool_version, told.rank, told.rank_source) == (
        "nsys-sqlite",
        "2025.3.2.0",
        1,
        "file-name",
    )
    assert told.path == str(OURS[1]) and told.origin_ns == 0
    assert told.origin_utc_ns == rows(OURS[1], "SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME")[0][0]
    assert set(read.kernels["device"]) == {1}
    gpu = read.devices.set_index("device").loc[1]
    assert (gpu["bus_id"], gpu["name"]) == ("0000:00:07.0", "NVIDIA H200")
    assert gpu["uuid"] == "d35bde8a-bc3a-ebc3-ee25-ec3508d40003"
    step = read.marks[read.marks["domain"] == "harness"]
    assert list(step["name"].astype(str)) == [f"step {n}" for n in range(3, 9)]
    batches = read.copies[(read.copies["kind"] == "h2d") & (read.copies["bytes"] > 1 << 20)]
    assert set(batches["src_kind"].astype(str)) == {"pageable"} and set(batches["dst_kind"].astype(str)) == {"device"}


# ---- built: what no recording at hand holds

PID = (1 << 56) | (1 << 48)


def build(path: Path, tables: dict[str, list[dict[str, Any]]]) -> Path:
    """An nsys export with just these rows; columns are those of each table's first row."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("BEGIN")
        for name, values in tables.items():
            columns = ", ".join(f'"{column}"' for column in values[0])
            connection.execute(f"CREATE TABLE {name} ({columns})")
            marks = ", ".join("?" * len(values[0]))
            connection.executemany(f"INSERT INTO {name} VALUES ({marks})", [tuple(row.values()) for row in values])
    return path


def strings(*texts: str) -> list[dict[str, Any]]:
    return [{"id": number, "value": text} for number, text in enumerate(texts)]


def kernel(start: Any, end: Any, **more: Any) -> dict[str, Any]:
    where = {"deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": 1, "globalPid": PID | 50 << 24}
    return {"start": start, "end": end, **where, "demangledName": 0, "shortName": 0, "graphNodeId": None, **more}


def copy(kind: int, **more: Any) -> dict[str, Any]:
    base = {key: value for key, value in kernel(10, 20).items() if key not in ("demangledName", "shortName")}
    kinds = {"bytes": 8, "copyKind": kind, "srcKind": 0, "dstKind": 2, "srcDeviceId": None, "dstDeviceId": None}
    return {**base, **kinds, **more}


def test_the_fewest_columns_an_old_schema_has_are_enough(tmp_path: Path) -> None:
    bare = {"start": 5, "end": 9, "deviceId": 0, "streamId": 7, "shortName": 1}
    read = readers.read(build(tmp_path / "a", {"StringIds": strings("", "old"), CUPTI + "KERNEL": [bare]}))
    row = read.kernels.astype({"name": str}).iloc[0]
    assert tuple(row) == (5, 9, 0, -1, 7, 0, -1, "old", 0, "", "", 0)
    assert read.known == {"kernels", "graphs", "copies", "memsets", "devices"}
    assert read.recording.schema_version is None and read.recording.origin_utc_ns is None


def test_a_table_without_a_column_it_must_have_is_named(tmp_path: Path) -> None:
    broken = {"start": 5, "deviceId": 0, "streamId": 7}
    path = build(tmp_path / "a", {"StringIds": strings("x"), CUPTI + "KERNEL": [broken]})
    with pytest.raises(UnreadableRecording, match="CUPTI_ACTIVITY_KIND_KERNEL has no column end"):
        readers.read(path)


def test_graph_launches_are_a_table_of_their_own(tmp_path: Path) -> None:
    launch = {key: value for key, value in kernel(10, 90).items() if "Name" not in key}
    launch |= {"graphId": 3, "graphExecId": 4}
    nodes = [kernel(10, 20, graphNodeId=(3 << 32) | 7), kernel(30, 40)]
    read = readers.read(
        build(tmp_path / "a", {"StringIds": strings("k"), CUPTI + "GRAPH_TRACE": [launch], CUPTI + "KERNEL": nodes})
    )
    assert tuple(read.graphs.iloc[0]) == (10, 90, 0, 1, 7, 50, 1, 3)
    assert list(read.kernels["graph_node"]) == [(3 << 32) | 7, 0]


def test_no_copy_and_no_memset_has_fewer_than_no_bytes(tmp_path: Path) -> None:
    copies = [copy(1, streamId=number, bytes=number - 1) for number in range(3)]
    memset = {key: value for key, value in kernel(10, 20).items() if "Name" not in key} | {"bytes": -(1 << 62)}
    tables = {"StringIds": strings("k"), CUPTI + "MEMCPY": copies, CUPTI + "MEMSET": [memset]}
    read = readers.read(build(tmp_path / "a", tables))
    assert read.copies["bytes"].tolist() == [0, 0, 1] and read.memsets["bytes"].tolist() == [0]


def test_copies_of_every_kind_have_a_direction(tmp_path: Path) -> None:
    copies = [copy(kind, streamId=kind) for kind in range(15)]  # a stream runs no two at once
    copies.append(copy(8, srcDeviceId=0, dstDeviceId=1))  # between two GPUs, whatever its number says
    read = readers.read(build(tmp_path / "a", {"StringIds": strings("k"), CUPTI + "MEMCPY": copies}))
    assert list(read.copies["kind"].astype(str)) == [
        *("h2d", "h2d", "d2h", "h2d", "d2h", "d2d", "d2d", "d2d", "d2d", "h2h", "p2p", "h2d", "d2h", "p2p", "h2d"),
        "p2p",
    ]
    assert tuple(read.copies.iloc[15][["src_device", "dst_device"]]) == (0, 1)
    assert tuple(read.copies.iloc[0][["src_device", "dst_device"]]) == (-1, -1)


def test_the_kinds_of_memory_tell_what_a_copy_of_an_unknown_kind_is(tmp_path: Path) -> None:
    pageable, pinned, device, array, managed = range(5)
    ends = [(pageable, device), (pinned, array), (device, pageable), (array, pinned), (device, array)]
    ends += [(pinned, pageable), (managed, device), (device, None), (7, 7)]
    copies = [copy(0, srcKind=one, dstKind=other, streamId=number) for number, (one, other) in enumerate(ends)]
    copies += [{**one, "copyKind": 99, "contextId": 2} for one in copies]
    read = readers.read(build(tmp_path / "a", {"StringIds": strings("k"), CUPTI + "MEMCPY": copies}))
    expected = ["h2d", "h2d", "d2h", "d2h", "d2d", "h2h", "other", "other", "other"]
    assert list(read.copies["kind"].astype(str)) == expected * 2


def test_memory_kinds_are_numbered_from_zero(tmp_path: Path) -> None:
    copies = [copy(1, srcKind=kind, streamId=number) for number, kind in enumerate([*range(9), None])]
    read = readers.read(build(tmp_path / "a", {"StringIds": strings("k"), CUPTI + "MEMCPY": copies}))
    assert list(read.copies["src_kind"].astype(str)) == [
        *("pageable", "pinned", "device", "array", "managed", "device", "managed", "unknown", "unknown", "unknown")
    ]


def test_pages_of_unified_memory_are_managed_where_nsys_knows_no_kind_of_their_memory(tmp_path: Path) -> None:
    copies = [copy(kind, srcKind=7, dstKind=7) for kind in (1, 11, 12, 13, 14)] + [copy(11, srcKind=0, dstKind=2)]
    read = readers.read(build(tmp_path / "a", {"StringIds": strings("k"), CUPTI + "MEMCPY": copies}))
    kinds = list(zip(read.copies["src_kind"].astype(str), read.copies["dst_kind"].astype(str), strict=True))
    unknown, managed = ("unknown", "unknown"), ("managed", "managed")
    assert kinds == [unknown, managed, managed, managed, unknown, ("pageable", "device")]


def test_pages_that_a_call_asked_for_belong_to_the_latest_call_before_them(tmp_path: Path) -> None:
    """nsys gives pages of unified memory no call (correlation 0); cause 1 means that the program asked for them."""
    pages = [
        copy(12, start=at, end=at + 5, migrationCause=cause, correlationId=0, globalPid=PID | process << 24)
        for at, cause, process in ((5, 1, 50), (25, 1, 50), (45, 1, 50), (55, 2, 50), (65, 1, 50), (65, 1, 51))
    ]
    calls = [
        {"start": start, "end": start + 3, "nameId": name, "correlationId": number, "globalTid": PID | process << 24}
        for start, name, number, process in ((40, 1, 8, 50), (20, 1, 7, 50), (60, 0, 9, 50), (41, 1, 10, 52))
    ]
    texts = strings("cudaLaunchKernel_v7000", "cudaMemPrefetchAsync_v8000")
    tables = {"StringIds": texts, CUPTI + "MEMCPY": pages, CUPTI + "RUNTIME": calls}
    copies = readers.read(build(tmp_path / "a", tables)).copies
    assert copies["correlation"].tolist() == [0, 7, 8, 0, 8, 0]
    assert list(copies["kind"].astype(str)) == ["d2h"] * 6
    alone = readers.read(build(tmp_path / "b", {"StringIds": texts, CUPTI + "MEMCPY": pages})).copies
    assert alone["correlation"].tolist() == [0] * 6


def test_equal_device_numbers_of_two_processes_are_two_gpus(tmp_path: Path) -> None:
    gpus = [
        {"id": 0, "name": "A", "busLocation": "0000:01:00.0", "uuid": "u0"},
        {"id": 1, "name": "A", "busLocation": "0000:02:00.0", "uuid": "u1"},
    ]
    cuda = [{"gpuId": 0, "cudaId": 0, "pid": 50}, {"gpuId": 1, "cudaId": 0, "pid": 51}]
    kernels = [kernel(1, 2), kernel(1, 2, globalPid=PID | 51 << 24)]
    read = readers.read(
        build(
            tmp_path / "a",
            {
                "StringIds": strings("k"),
                "TARGET_INFO_GPU": gpus,
                "TARGET_INFO_CUDA_DEVICE": cuda,
                CUPTI + "KERNEL": kernels,
            },
        )
    )
    assert list(read.kernels["device"]) == [0, 1]
    assert list(read.devices["uuid"]) == ["u0", "u1"]


def test_two_device_numbers_of_one_gpu_are_one_gpu(tmp_path: Path) -> None:
    """CUDA_VISIBLE_DEVICES=1 for one process, 0,1 for another, which used only its second."""
    gpus = [{"id": n, "name": "A", "busLocation": f"0000:0{n}:00.0", "uuid": f"u{n}"} for n in (0, 1)]
    cuda = [{"gpuId": 1, "cudaId": 0, "pid": 50}, {"gpuId": 1, "cudaId": 1, "pid": 51}]
    kernels = [kernel(1, 2), kernel(1, 2, deviceId=1, globalPid=PID | 51 << 24)]
    tables = {"StringIds": strings("k"), "TARGET_INFO_GPU": gpus, "TARGET_INFO_CUDA_DEVICE": cuda}
    read = readers.read(build(tmp_path / "a", {**tables, CUPTI + "KERNEL": kernels}))
    assert list(read.kernels["device"]) == [1, 1] and list(read.devices["uuid"]) == ["u0", "u1"]


def test_gpus_listed_in_any_order_are_found_by_their_cuda_number(tmp_path: Path) -> None:
    gpus = [{"id": number, "name": f"gpu {number}", "busLocation": "", "uuid": ""} for number in (3, 2, 1, 0)]
    cuda = [{"gpuId": 3, "cudaId": 0, "pid": 50}, {"gpuId": 2, "cudaId": 1, "pid": 50}]
    tables = {"StringIds": strings("k"), "TARGET_INFO_GPU": gpus, CUPTI + "KERNEL": [kernel(1, 2)]}
    told = readers.read(build(tmp_path / "a", {**tables, "TARGET_INFO_CUDA_DEVICE": cuda}))
    assert list(told.devices["name"]) == ["gpu 3", "gpu 2"]
    # Without that table deviceId is the id, as nsys's own statistics take it.
    assert list(readers.read(build(tmp_path / "b", tables)).devices["name"]) == [f"gpu {n}" for n in range(4)]


def test_marks_without_an_end_are_open_and_instants_are_not(tmp_path: Path) -> None:
    thread = PID | 50 << 24 | 60
    base = {"textId": None, "globalTid": thread, "domainId": 2}
    events = [
        {"start": 0, "end": None, "eventType": 75, "text": "ringscope", **base},
        {"start": 10, "end": None, "eventType": 59, "text": "open", **base},
        {"start": 20, "end": None, "eventType": 34, "text": "rank 3 of 8", **base},
        {"start": -30, "end": 40, "eventType": 60, "text": None, **{**base, "textId": 1, "domainId": 9}},
    ]
    tables = {"StringIds": strings("k", "by number"), CUPTI + "KERNEL": [kernel(1, 2)], "NVTX_EVENTS": events}
    read = readers.read(build(tmp_path / "rank5.sqlite", tables))
    found = read.marks.astype({"domain": str, "name": str})
    assert list(found.itertuples(index=False, name=None)) == [
        (10, 10, True, 50, 60, "ringscope", "open"),
        (20, 20, False, 50, 60, "ringscope", "rank 3 of 8"),
        (-30, 40, False, 50, 60, "", "by number"),
    ]
    assert (read.recording.rank, read.recording.rank_source) == (3, "marks")  # over the file's name


def test_one_file_of_two_ranks_has_none_of_its_own_and_its_gpus_have_theirs(tmp_path: Path) -> None:
    """As `nsys profile horovodrun ...` writes it: the rank of a GPU is not the order of the processes."""
    kernels = [kernel(1, 2), kernel(1, 3, globalPid=PID | 51 << 24, deviceId=1)]
    event = {"end": None, "eventType": 34, "textId": None, "domainId": 2}
    marks = [
        {"start": 0, "text": "rank 1 of 2", "globalTid": PID | 50 << 24 | 50, **event},
        {"start": 0, "text": "rank 0 of 2", "globalTid": PID | 51 << 24 | 51, **event},
    ]
    tables = {"StringIds": strings("k"), CUPTI + "KERNEL": kernels, "NVTX_EVENTS": marks}
    read = readers.read(build(tmp_path / "rank7.sqlite", tables))
    assert (read.recording.rank, read.recording.rank_source) == (None, "marks")
    found = measure([read])
    assert [(gpu.rank, gpu.device) for gpu in found.gpus] == [(0, 1), (1, 0)]
    assert "0, 1 (from its own marks)" in recordings.text([read], [])
    assert not [doubt for doubt in found.doubts if doubt.code == "ranks-missing"]


def test_times_that_cannot_be_are_left_out_and_said(tmp_path: Path) -> None:
    kernels = [kernel(1, 2), kernel(9, 8), kernel(5, 2**63 - 1), kernel(-(2**63), 4), kernel(None, 4), kernel(-50, -40)]
    read = readers.read(build(tmp_path / "a", {"StringIds": strings("k"), CUPTI + "KERNEL": kernels}))
    assert list(read.kernels["start_ns"]) == [1, -50]
    assert [doubt.code for doubt in read.doubts] == ["impossible-times"] and "4 events" in read.doubts[0].text
    assert sum(read.left_out.values()) == 4


def test_a_name_that_is_not_there_is_unknown_and_said(tmp_path: Path) -> None:
    kernels = [
        kernel(1, 2),
        kernel(3, 4, demangledName=77),
        kernel(5, 6, demangledName=-5),
        kernel(7, 8, demangledName=None),
    ]
    read = readers.read(build(tmp_path / "a", {"StringIds": strings("k"), CUPTI + "KERNEL": kernels}))
    assert list(read.kernels["name"].astype(str)) == ["k", "(unknown)", "(unknown)", "(unknown)"]
    assert [doubt.code for doubt in read.doubts] == ["missing-strings"]


def test_ranges_whose_names_are_not_there_are_said(tmp_path: Path) -> None:
    base = {"start": 1, "eventType": 59, "text": None, "globalTid": PID | 50 << 24 | 60}
    events = [{**base, "end": end, "textId": text} for end, text in ((2, 1), (3, 77), (4, None), (5, 78))]
    tables = {"StringIds": strings("k", "step 0"), CUPTI + "KERNEL": [kernel(1, 2)], "NVTX_EVENTS": events}
    (doubt,) = readers.read(build(tmp_path / "a", tables)).doubts
    assert doubt.code == "missing-strings" and doubt.text.startswith("2 events") and "NVTX_EVENTS" in doubt.text


@pytest.mark.parametrize("odd", ["text", 2.5, b"\x00", 2.0**63])
@pytest.mark.parametrize("place", [0, 70_000], ids=["first", "after the first batch"])
def test_values_that_are_no_integers_cost_their_rows_only(odd: Any, place: int, tmp_path: Path) -> None:
    kernels = [kernel(start, start + 1) for start in range(place + 5)]
    kernels[place]["deviceId"] = odd
    path = build(tmp_path / "a", {"StringIds": strings("k"), CUPTI + "KERNEL": kernels})
    read = readers.read(path)
    assert len(read.kernels) == place + 4 and place not in set(read.kernels["start_ns"])
    assert read.left_out == {f"mixed-types in {CUPTI}KERNEL": 1}
    assert [doubt.code for doubt in read.doubts] == ["mixed-types"]


def test_columns_that_are_null_at_first_are_read_all_the_same(tmp_path: Path) -> None:
    kernels = [kernel(start, start + 1, graphNodeId=None if start < 70_000 else start) for start in range(70_010)]
    read = readers.read(build(tmp_path / "a", {"StringIds": strings("k"), CUPTI + "KERNEL": kernels}))
    assert list(read.kernels["graph_node"][-11:]) == [0, *range(70_000, 70_010)]


def test_two_numbers_of_one_text_are_one_name(tmp_path: Path) -> None:
    kernels = [kernel(1, 2, demangledName=0), kernel(3, 4, demangledName=1)]
    read = readers.read(build(tmp_path / "a", {"StringIds": strings("same", "same"), CUPTI + "KERNEL": kernels}))
    assert list(read.kernels["name"].cat.categories) == ["same"]


@pytest.mark.exhaustive
def test_a_million_distinct_names_are_read(tmp_path: Path) -> None:
    count = 1_000_000
    path = build(tmp_path / "a", {"StringIds": strings("x"), CUPTI + "KERNEL": [kernel(0, 1)]})
    with closing(sqlite3.connect(path)) as connection, connection:
        number = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count - 1}) "
        connection.execute(f"INSERT INTO StringIds {number} SELECT i * 1000003, 'kernel ' || i FROM n")
        columns = "start, end, deviceId, contextId, streamId, correlationId, globalPid, demangledName"
        connection.execute(
            f"INSERT INTO {CUPTI}KERNEL ({columns}) {number} SELECT i, i + 1, 0, 1, 7, i, 0, i * 1000003 FROM n"
        )
    read = readers.read(path)
    assert read.kernels["name"].nunique() == count
    assert list(read.kernels["name"].iloc[[0, 1, -1]].astype(str)) == ["x", "kernel 1", f"kernel {count - 1}"]


def test_text_that_is_no_utf8_is_read(tmp_path: Path) -> None:
    path = build(tmp_path / "a", {"StringIds": strings("x"), CUPTI + "KERNEL": [kernel(0, 1)]})
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE StringIds SET value = CAST(x'66ff6f' AS TEXT)")
    assert list(readers.read(path).kernels["name"].astype(str)) == ["f\ufffdo"]


def test_what_nsys_dropped_is_a_doubt(tmp_path: Path) -> None:
    said = [{"text": "Some events were dropped"}, {"text": "all is well"}]
    tables = {"StringIds": strings("k"), CUPTI + "KERNEL": [kernel(1, 2)], "DIAGNOSTIC_EVENT": said}
    [doubt] = readers.read(build(tmp_path / "a", tables)).doubts
    assert doubt.code == "dropped-events" and "Some events were dropped" in doubt.text


def test_gaps_between_rowids_lose_no_row(tmp_path: Path) -> None:
    path = build(tmp_path / "a", {"StringIds": strings("k"), CUPTI + "KERNEL": [kernel(n, n + 1) for n in range(3000)]})
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE {CUPTI}KERNEL SET rowid = rowid * 300 + 1000000 WHERE rowid % 2")
        connection.execute(f"DELETE FROM {CUPTI}KERNEL WHERE start % 7 = 0")
    read = readers.read(path)
    assert sorted(read.kernels["start_ns"]) == [n for n in range(3000) if n % 7]


def test_rowids_at_both_ends_of_the_integers_are_read(tmp_path: Path) -> None:
    path = build(tmp_path / "a", {"StringIds": strings("k"), CUPTI + "KERNEL": [kernel(1, 2), kernel(3, 4)]})
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE {CUPTI}KERNEL SET rowid = ? WHERE start = 1", (-(2**63),))
        connection.execute(f"UPDATE {CUPTI}KERNEL SET rowid = ? WHERE start = 3", (2**63 - 1,))
    assert sorted(readers.read(path).kernels["start_ns"]) == [1, 3]


def test_tables_are_plain_pandas_frames_of_the_documented_dtypes() -> None:
    read = readers.read(OURS[0])
    assert isinstance(read.kernels, pd.DataFrame)
    assert read.kernels["start_ns"].dtype == np.int64
    ids = {name: kind for name, kind in COLUMNS["kernels"].items() if name in IDS}
    assert all(np.can_cast(read.kernels[name].dtype, kind) for name, kind in ids.items()), "or a smaller one"
    assert isinstance(read.kernels["name"].dtype, pd.CategoricalDtype)
