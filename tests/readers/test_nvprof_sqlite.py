"""nvprof SQLite: other people's real recordings against plain SQL, where they are; built ones of the same schema."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from benchmarks.tables import EPOCH_NS
from benchmarks.training import Shape
from benchmarks.write import WRITERS
from profiles import readers
from profiles.ground.errors import UnreadableRecording
from profiles.readers.nvprof.sqlite import demangled

from ..recordings import NVPROF, SHARED, needs_shared, rows, tables

CUPTI = "CUPTI_ACTIVITY_KIND_"


# ---- real


@needs_shared
@pytest.mark.parametrize("path", NVPROF, ids=lambda path: path.name)
def test_counts_times_and_bytes_are_those_of_plain_sql(path: Path) -> None:
    read = readers.read(path)
    assert not read.left_out and not read.doubts
    origin = read.recording.origin_ns
    for name, sources in {
        "kernels": ["CONCURRENT_KERNEL", "KERNEL"],
        "copies": ["MEMCPY", "MEMCPY2"],
        "memsets": ["MEMSET"],
        "api": ["RUNTIME", "DRIVER"],
        "syncs": ["SYNCHRONIZATION"],
        "overheads": ["OVERHEAD"],
    }.items():
        both = " UNION ALL ".join(
            f"SELECT start, end FROM {CUPTI}{source}" for source in sources if CUPTI + source in tables(path)
        )
        expected = rows(path, both)
        table = getattr(read, name)
        assert list(zip(table["start_ns"] + origin, table["end_ns"] + origin, strict=True)) == expected
    [(size,)] = rows(path, f"SELECT TOTAL(bytes) FROM {CUPTI}MEMCPY")
    assert read.copies["bytes"].sum() == size
    firsts = [
        rows(path, f"SELECT MIN(start) FROM {CUPTI}{name}")[0][0] for name in ("CONCURRENT_KERNEL", "MEMCPY", "MEMSET")
    ]
    assert origin == read.recording.origin_utc_ns == min(first for first in firsts if first is not None)


@needs_shared
@pytest.mark.parametrize("path", NVPROF, ids=lambda path: path.name)
def test_copies_have_the_direction_and_memory_their_numbers_say(path: Path) -> None:
    read = readers.read(path)
    kinds = {1: "h2d", 2: "d2h", 8: "d2d"}
    memory = {1: "pageable", 2: "pinned", 3: "device"}
    expected = [
        (kinds[kind], memory[src], memory[dst])
        for kind, src, dst in rows(path, f"SELECT copyKind, srcKind, dstKind FROM {CUPTI}MEMCPY")
    ]
    found = read.copies[["kind", "src_kind", "dst_kind"]].astype(str)
    assert list(found.itertuples(index=False, name=None)) == expected


@needs_shared
def test_versions_8_to_16_are_read() -> None:
    versions = {path.name: readers.read(path).recording.schema_version for path in NVPROF}
    assert versions == {
        "nccl-4gpu-one-process.nvvp": "16",
        "ort-training.nvvp": "14",
        "pytorch-lm-nvtx-1.sql": "12",
        "pytorch-lm-nvtx-2.sql": "12",
        "tf1-mnist.nvvp": "8",
    }


@needs_shared
@pytest.mark.parametrize("name", ["ort-training.nvvp", "pytorch-lm-nvtx-1.sql", "pytorch-lm-nvtx-2.sql"])
def test_ranges_are_paired_by_their_id(name: str) -> None:
    path = SHARED / "public" / "nvprof-sqlite" / name
    read = readers.read(path)
    origin = read.recording.origin_ns
    expected = rows(
        path,
        f"SELECT a.timestamp - {origin}, b.timestamp - {origin}, s.value FROM {CUPTI}MARKER a JOIN {CUPTI}MARKER b"
        " ON a.id = b.id AND a.flags = 2 AND b.flags = 4 JOIN StringTable s ON s._id_ = a.name ORDER BY a._id_",
    )
    found = read.marks.astype({"name": str})[["start_ns", "end_ns", "name"]]
    assert list(found.itertuples(index=False, name=None)) == expected
    assert not read.marks["open"].any() and set(read.marks["domain"]) == {""}
    # The process and the thread are those of the API rows.
    assert set(read.marks["pid"]) == set(read.api["pid"]) and set(read.marks["tid"]) & set(read.api["tid"])


@needs_shared
def test_a_launch_is_found_in_the_runtime_or_in_the_driver() -> None:
    read = readers.read(SHARED / "public" / "nvprof-sqlite" / "tf1-mnist.nvvp")
    calls = read.copies.merge(read.api, on=["pid", "correlation"], how="left", suffixes=("", "_call"))
    assert len(calls) == len(read.copies) == 48
    names = calls["name"].astype(str)
    assert names.str.startswith("cuMemcpy").sum() + names.str.startswith("cudaMemcpy").sum() == 48
    assert (calls["start_ns"] >= calls["start_ns_call"]).all()


@needs_shared
def test_all_gpus_of_the_host_are_listed_with_their_uuids() -> None:
    read = readers.read(SHARED / "public" / "nvprof-sqlite" / "nccl-4gpu-one-process.nvvp")
    assert list(read.devices["device"]) == list(range(8)) and read.devices["uuid"].is_unique
    assert set(read.devices["name"]) == {"Tesla V100-SXM2-32GB"}
    assert set(read.kernels["device"]) == {0, 1, 2, 3}
    assert read.devices["uuid"][0] == "0457dcbe-d8c5-e5a2-5b99-1a7d86802bdb"
    assert set(read.kernels["name"].astype(str)) == {"ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)"} or all(
        "nccl" in name for name in read.kernels["name"].astype(str)
    )


@needs_shared
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no-gpu-work.sql", "a recording without GPU work"),
        ("visual-profiler-xml.nvvp", "XML: a session that the Visual Profiler"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_own_message(name: str, said: str) -> None:
    with pytest.raises(UnreadableRecording, match=said):
        readers.read(SHARED / "public" / "nvprof-sqlite" / name)


# ---- built


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """What nvprof would have written of a generated run on three GPUs."""
    path = tmp_path / "run.nvvp"
    WRITERS["nvprof"](Shape(steps=3, kernels=20, gpus=3, processes=1), path, None)
    return path


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def row(path: Path, table: str, **changes: Any) -> None:
    """A copy of the table's first row with other values."""
    with closing(sqlite3.connect(path)) as connection, connection:
        cursor = connection.execute(f"SELECT * FROM {CUPTI}{table} LIMIT 1")
        names = [column[0] for column in cursor.description]
        [(last,)] = connection.execute(f"SELECT MAX(_id_) FROM {CUPTI}{table}").fetchall()
        values = dict(zip(names, cursor.fetchone(), strict=True)) | {"_id_": last + 1} | changes
        connection.execute(f"INSERT INTO {CUPTI}{table} VALUES ({', '.join('?' * len(names))})", list(values.values()))


def test_epoch_times_keep_their_nanoseconds(built: Path) -> None:
    read = readers.read(built)
    [(first,)] = rows(built, f"SELECT MIN(start) FROM {CUPTI}MEMCPY")
    assert first > EPOCH_NS and float(first) != first  # beyond what a float can tell apart
    assert read.recording.origin_ns == first
    [(last,)] = rows(built, f"SELECT MAX(end) FROM {CUPTI}CONCURRENT_KERNEL")
    assert int(read.kernels["end_ns"].max()) == last - first


def test_kernels_of_both_tables_and_copies_of_both_are_one(built: Path) -> None:
    row(built, "CONCURRENT_KERNEL", correlationId=99)
    change(built, f"INSERT INTO {CUPTI}KERNEL SELECT * FROM {CUPTI}CONCURRENT_KERNEL WHERE correlationId = 99")
    change(built, f"UPDATE {CUPTI}KERNEL SET streamId = 98")  # a stream runs no two kernels at once
    read = readers.read(built)
    [(two,)] = rows(built, f"SELECT COUNT(*) FROM {CUPTI}KERNEL")
    [(one,)] = rows(built, f"SELECT COUNT(*) FROM {CUPTI}CONCURRENT_KERNEL")
    assert len(read.kernels) == one + two and two
    [(copies,)] = rows(built, f"SELECT (SELECT COUNT(*) FROM {CUPTI}MEMCPY) + (SELECT COUNT(*) FROM {CUPTI}MEMCPY2)")
    assert len(read.copies) == copies
    peers = read.copies[read.copies["kind"] == "p2p"]
    found = list(zip(peers["src_device"], peers["dst_device"], strict=True))
    assert found == rows(built, f"SELECT srcDeviceId, dstDeviceId FROM {CUPTI}MEMCPY2") and found


def test_a_version_without_the_newer_columns_is_read(built: Path) -> None:
    """Version 8 has no graphs, and marks without domains."""
    before = readers.read(built)
    change(
        built,
        "UPDATE Version SET version = 8",
        *(f"ALTER TABLE {CUPTI}{table} DROP COLUMN graphNodeId" for table in ("CONCURRENT_KERNEL", "MEMCPY", "MEMSET")),
        f"ALTER TABLE {CUPTI}MARKER DROP COLUMN domain",
    )
    read = readers.read(built)
    assert read.recording.schema_version == "8"
    assert read.kernels.equals(before.kernels) and read.copies.equals(before.copies)
    assert list(read.marks["start_ns"]) == list(before.marks["start_ns"]) and set(read.marks["domain"]) == {""}


def test_a_table_without_a_column_it_must_have_is_named(built: Path) -> None:
    change(built, f"ALTER TABLE {CUPTI}MEMCPY DROP COLUMN bytes")
    with pytest.raises(UnreadableRecording, match="CUPTI_ACTIVITY_KIND_MEMCPY has no column bytes"):
        readers.read(built)


def test_memory_kinds_are_numbered_from_one(built: Path) -> None:
    change(built, f"DELETE FROM {CUPTI}MEMCPY2", f"DELETE FROM {CUPTI}MEMCPY WHERE _id_ > 7")
    for number in range(7):
        change(built, f"UPDATE {CUPTI}MEMCPY SET srcKind = {number} WHERE _id_ = {number + 1}")
    kinds = list(readers.read(built).copies["src_kind"].astype(str))
    assert kinds == ["unknown", "pageable", "pinned", "device", "array", "managed", "device"]


def test_instants_and_ranges_without_an_end_are_told_apart(built: Path) -> None:
    change(built, f"DELETE FROM {CUPTI}MARKER WHERE _id_ > 1")
    [(start,)] = rows(built, f"SELECT timestamp FROM {CUPTI}MARKER")
    change(
        built,
        "INSERT INTO StringTable VALUES (900, 'instant'), (901, 'range'), (902, 'rank 2 of 4'), (903, 'ringscope')",
    )
    row(built, "MARKER", id=70, flags=1, timestamp=start + 5, name=900, domain=0)
    row(built, "MARKER", id=71, flags=2, timestamp=start + 6, name=901, domain=903)
    row(built, "MARKER", id=72, flags=2, timestamp=start + 7, name=902, domain=0)
    row(built, "MARKER", id=72, flags=4, timestamp=start + 9, name=0, domain=0)
    change(built, f"DELETE FROM {CUPTI}MARKER WHERE _id_ = 1")
    read = readers.read(built)
    start -= read.recording.origin_ns
    found = read.marks.astype({"name": str, "domain": str})[["start_ns", "end_ns", "open", "domain", "name"]]
    assert list(found.itertuples(index=False, name=None)) == [
        (start + 5, start + 5, False, "", "instant"),
        (start + 6, start + 6, True, "ringscope", "range"),
        (start + 7, start + 9, False, "", "rank 2 of 4"),
    ]
    assert (read.recording.rank, read.recording.rank_source) == (2, "marks")


@pytest.mark.parametrize(
    ("shift", "side"), [(414_271_000_000, "414.3 s after"), (-5_000_000_000, "5.000 s before"), (-90_000, " µs before")]
)
def test_clocks_that_disagree_are_said_and_no_cause_is_told(built: Path, shift: int, side: str) -> None:
    for table in ("CONCURRENT_KERNEL", "MEMCPY", "MEMCPY2", "MEMSET"):
        change(built, f"UPDATE {CUPTI}{table} SET start = start + {shift}, end = end + {shift}")
    read = readers.read(built)
    [doubt] = read.doubts
    assert doubt.code == "clocks-apart" and side in doubt.text
    assert not len(read.api) and not len(read.marks) and {"api", "marks"}.isdisjoint(read.known)
    assert len(read.kernels) and read.left_out["clocks-apart in api"] > 0


@pytest.mark.parametrize(("early_ns", "kept"), [(134_000, True), (5_000_000, False)])
def test_copies_that_seem_to_begin_just_before_their_call_leave_the_calls(
    built: Path, early_ns: int, kept: bool
) -> None:
    change(built, f"DELETE FROM {CUPTI}CONCURRENT_KERNEL")
    change(built, f"DELETE FROM {CUPTI}MEMCPY2")
    called = f"SELECT start FROM {CUPTI}RUNTIME AS call WHERE call.correlationId = copy.correlationId LIMIT 1"
    change(built, f"UPDATE {CUPTI}MEMCPY AS copy SET start = COALESCE(({called}), start) - {early_ns}")
    assert bool(len(readers.read(built).api)) == kept


def test_times_that_cannot_be_do_not_move_the_origin(built: Path) -> None:
    good = readers.read(built)
    row(built, "CONCURRENT_KERNEL", start=0, end=0)
    row(built, "CONCURRENT_KERNEL", start=-(2**63), end=5)
    row(built, "CONCURRENT_KERNEL", start=EPOCH_NS, end=2**63 - 1)
    row(built, "CONCURRENT_KERNEL", start=EPOCH_NS + 10, end=EPOCH_NS + 9)
    read = readers.read(built)
    assert read.recording.origin_ns == good.recording.origin_ns
    assert [doubt.code for doubt in read.doubts] == ["impossible-times"]
    assert read.kernels["start_ns"].isin(good.kernels["start_ns"]).all()


def test_a_name_that_is_not_there_is_unknown_and_said(built: Path) -> None:
    row(built, "CONCURRENT_KERNEL", name=123456)
    read = readers.read(built)
    assert str(read.kernels["name"].iloc[-1]) == "(unknown)"
    assert [doubt.code for doubt in read.doubts] == ["missing-strings"]


def test_names_are_demangled_where_they_are_mangled() -> None:
    assert demangled("_Z6kernelPfi") == "kernel(float*, int)"
    assert demangled("maxwell_scudnn_128x32_relu_small_nn") == "maxwell_scudnn_128x32_relu_small_nn"
    assert demangled("_Znot a name") == "_Znot a name"


@needs_shared
@pytest.mark.parametrize("path", NVPROF, ids=lambda path: path.name)
def test_calls_are_named_as_what_they_launched(path: Path) -> None:
    """The numbers' names against the recordings themselves: a kernel comes of a launch, a copy of a copying call."""
    read = readers.read(path)
    for table, word in (("kernels", "launch"), ("copies", "memcpy"), ("memsets", "memset")):
        calls = getattr(read, table).merge(read.api, on=["pid", "correlation"], suffixes=("_op", ""))
        column = "name_y" if "name_y" in calls else "name"
        assert calls[column].astype(str).str.lower().str.contains(word).all()
    copies = read.copies.merge(read.api, on=["pid", "correlation"], suffixes=("_op", ""))
    for kind, word in (("h2d", "HtoD"), ("d2h", "DtoH"), ("d2d", "DtoD")):
        named = copies[copies["name"].astype(str).str.contains(word)]
        assert set(named["kind"].astype(str)) <= {kind}


def test_a_call_of_an_unknown_number_keeps_its_number(built: Path) -> None:
    change(built, f"UPDATE {CUPTI}RUNTIME SET cbid = 99999 WHERE _id_ = 1")
    assert str(readers.read(built).api["name"].iloc[0]) == "runtime call 99999"
