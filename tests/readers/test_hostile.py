"""Files and names that were made to do harm, or that only look like recordings: each ends in a sentence, soon."""

from __future__ import annotations

import gzip
import io
import json
import sqlite3
import string
import tarfile
import tempfile
import unicodedata
import zlib
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiles import analyse
from profiles.ground import terminals
from profiles.ground.errors import UnreadableRecording
from profiles.readers import read, read_all, xplane
from profiles.views.files import markdown
from profiles.views.tables.table import document_of
from profiles.views.terminal import info as recordings
from profiles.views.terminal import recording as terminal
from tests.made.build import Build
from tests.made.hostile import NOISE
from tests.made.training import training
from tests.recordings import DATA, SHARED

HOSTILE = st.text(
    st.one_of(
        st.sampled_from("\x1b[]/\\|<>`\x07\x9b\x9d\u202e\u2066\r\b\x00"),
        st.sampled_from(string.ascii_letters),
        st.characters(exclude_categories=["Cs"]),  # half a character comes from no reader: each replaces it
    ),
    min_size=1,
    max_size=40,
)


def named(name: str) -> Build:
    made = Build(path=name.replace("\x00", "") or "a.sqlite")
    made.device(0, uuid="GPU-1", name=name)
    for step in range(4):
        at = 1_000_000 * step
        made.mark(name, at, at + 900_000, domain=name)
        made.kernel(at + 500_000, at + 800_000, name, call=(at + 400_000, at + 410_000))
    return made


def is_harmless(text: str) -> bool:
    return not {unicodedata.category(one) for one in text if one not in "\n\t"} & {"Cc", "Cf", "Cs", "Zl", "Zp"}


@settings(max_examples=25, deadline=None)
@given(HOSTILE)
def test_whatever_a_name_is_it_is_printed_and_commands_nothing(name: str) -> None:
    timeline = named(name).timeline()
    measures = analyse([timeline]).measures
    printed = io.StringIO()
    terminal.show(measures, terminals.console(file=printed, width=200))
    text = markdown.of_recordings(document_of(measures), title=name, command=name)
    assert is_harmless(printed.getvalue())
    assert is_harmless(text)
    assert is_harmless(terminals.plain(recordings.text([timeline], [])))


@pytest.mark.parametrize("name", ["[/nope]", "[param|cuda]", "[bold red]", ":warning:", "\x1b]0;owned\x07", "\x1b[2J"])
def test_a_name_like_markup_is_shown_as_it_is(name: str) -> None:
    printed = io.StringIO()
    terminal.show(analyse([named(name).timeline()]).measures, terminals.console(file=printed, width=200))
    assert terminals.plain(name.replace("\x07", "")) in printed.getvalue()  # rich leaves bells out


@pytest.mark.exhaustive
def test_one_gpu_in_more_recordings_than_a_byte_can_count() -> None:
    made = [training(rank=0, steps=3) for _ in range(129)]
    several = [replace(one, recording=replace(one.recording, path=f"{at}.sqlite")) for at, one in enumerate(made)]
    (gpu,) = analyse(several).measures.gpus
    assert len(gpu.recordings) == 129


def database(folder: Path, sql: str) -> Path:
    path = folder / "made.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(sql)
    return path


RECURSIVE = """
CREATE TABLE META_DATA_EXPORT (name, value);
CREATE VIEW StringIds AS
 WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n) SELECT id, 'x' AS value FROM n;
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, contextId, streamId, correlationId, globalPid,
 demangledName, shortName, graphNodeId);
"""
HUGE_TEXT = """
CREATE TABLE StringIds (id, value);
INSERT INTO StringIds VALUES (1, printf('%.*c', 50000000, 'x'));
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, contextId INT, streamId INT,
 correlationId INT, globalPid INT, demangledName INT, shortName INT, graphNodeId INT);
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 2, 0, 1, 7, 1, 1, 1, 1, 0);
"""


def test_a_view_named_as_a_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableRecording, match="StringIds is a view"):
        read(database(tmp_path, RECURSIVE))


def test_a_text_longer_than_any_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableRecording, match="longer than 16 MiB"):
        read(database(tmp_path, HUGE_TEXT))


@pytest.mark.parametrize("start", [b"", b"{", b'{"traceEvents": ['])
@pytest.mark.parametrize("filler", [b"\0", b" "])
def test_a_bomb_of_nothing_is_refused_before_it_is_unfolded(tmp_path: Path, start: bytes, filler: bytes) -> None:
    path = tmp_path / "bomb.json.gz"
    with gzip.open(path, "wb", 1) as file:
        file.write(start)
        for _ in range(48):
            file.write(filler * (1 << 20))
    with pytest.raises(UnreadableRecording, match="zeros or blanks"):
        read(path)


STRANGERS: dict[str, tuple[Callable[[], bytes], str]] = {
    "chakra.json": (lambda: json.dumps({"schema": "1.0.2-chakra.0.0.4", "pid": 1, "nodes": []}).encode(), "Chakra"),
    "memory.pickle": (lambda: b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00}\x8c\x08segments\x94", "memory snapshot"),
    "stats.txt": (
        lambda: b" ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):\n\n Time (%)  Total Time (ns)\n",
        "nsys stats",
    ),
    "cpu.csv": (
        lambda: b"==1== NVPROF is profiling process 1\n======== CPU profiling result (bottom up):\nTime(%)",
        "CPU",
    ),
    "rocprof.json": (lambda: b'{"rocprofiler-sdk-tool": [{"metadata": {"pid": 1}}]}', "rocprofv3 without a kernel"),
    "results.csv": (
        lambda: b'Index,KernelName,gpu-id,queue-id,pid,tid,BeginNs,EndNs\n0,"k(int) [clone .kd]",0,0,1,1,5,9\n',
        "rocprof's table",
    ),
    "kernel_trace.csv": (
        lambda: b'"Kind","Agent_Id","Queue_Id","Kernel_Name","Start_Timestamp"\n"KERNEL_DISPATCH",4,1,"k",1\n',
        "tables of rocprofv3",
    ),
    "memory_copy_trace.csv": (
        lambda: b'"Kind","Direction","Source_Agent_Id"\n"MEMORY_COPY","HOST_TO_DEVICE",0\n',
        "tables of rocprofv3",
    ),
    "ncu.csv": (
        lambda: b'==PROF== Connected to process 7\n"ID","Process ID","Kernel Name"\n"0","7","k"\n',
        "Nsight Compute",
    ),
    "nccl.log": (
        lambda: b"node7:41:52 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.1<0>\nNCCL version 2.21.5+cuda12.4\n",
        "log of NCCL's",
    ),
    # Layouts of nsys export: NVIDIA's "JSON and Text Format Description"; events as public programs that read them say.
    "events.json": (lambda: b'{"Type":79,"CudaEvent":{"startNs":"100","endNs":"200"}}\n' * 2, "nsys export -t json"),
    "strings.json": (lambda: b'{"data":["[Unknown]","[Unknown kernel module]"]}\n', "nsys export -t json"),
    "lines.json": (lambda: b'{"type":"String","id":"3720","value":"Profiling"}\n' * 2, "nsys export -t json"),
    "trace.pftrace": (
        lambda: b"\n\x10" + b"P\x02\x08\x01" * 20,
        r"Perfetto trace.*export_chrome_trace\(\"trace.json\"\)",
    ),
    # The first packet of a trace of Chromium's, under a name that says nothing.
    "trace.bin": (lambda: bytes.fromhex(CHROMIUM), "Perfetto trace"),
    # As PyTorch's begins: a packet that names the track of a process, which has neither a time nor a sequence.
    "of_pytorch.bin": (lambda: b"\n\x15\xe2\x03\x12\x08\x01\x1a\x0e\x08\x07\x32\x0apython3.11", "Perfetto trace"),
    # As a trace begins that Perfetto compressed, which PyTorch's writer is to do: packets within a packet.
    "compressed.bin": (lambda: _packet(b"\n", _packet(b"\x92\x03", zlib.compress(NOISE[:9000]))), "Perfetto trace"),
    "half.bin": (lambda: bytes.fromhex(CHROMIUM)[:60], "known format"),
    "model.onnx": (lambda: b"\x08\x08\x12\x07pytorch" * 9, "known format"),
    "graph.pb": (lambda: b"\n\x0f\n\x01x\x12\x0bPlaceholder" * 9, "known format"),
    "results.otf2": (lambda: b"\x0aOTF2" + bytes(60), "OTF2"),
    "results.db": (lambda: _database("rocpd_string_00_ab", "rocpd_kernel_dispatch_00_ab"), "rocpd"),
    "rocprofv2.calls.csv": (
        lambda: b'Domain,Function,Start_Timestamp,End_Timestamp,Correlation_ID\n\nHIP_API_DOMAIN,"hipMalloc",1,2,1\n',
        "tables of rocprofv2",
    ),
    "rocprofv2.kernels.csv": (
        lambda: b'Dispatch_ID,GPU_ID,Queue_ID,PID,TID,Grid_Size,Kernel_Name,Start_Timestamp\n1,2,1,5,5,64,"k",1\n',
        "tables of rocprofv2",
    ),
    "rocprof.db": (lambda: _database("A", "HIP", "COPY", "KERN"), "results.json beside it"),
    "rocprof-hsa.db": (lambda: _database("A", "HSA", "COPY"), "results.json beside it"),
    "hip_stats.csv": (
        lambda: b'"Name","Calls","TotalDurationNs","AverageNs","Percentage"\n"hipMemcpy",3,1342822760,447607586,62.3\n',
        "rocprof's totals",
    ),
    # As tensorflow.python.client.timeline begins; the order of keys differs between versions of Python.
    "timeline.ctf.json": (
        lambda: _tf1({"name": "process_name", "ph": "M", "pid": 0, "args": {"name": "Allocators"}}),
        "TensorFlow 1's RunMetadata",
    ),
    "timeline_01.json": (
        lambda: _tf1({"args": {"name": "Allocators"}, "name": "process_name", "pid": 0, "ph": "M"}, indent=4),
        "TensorFlow 1's RunMetadata",
    ),
    "rocprof-kernels.db": (lambda: _database("KERN"), "rocprof's table of kernels"),
    "trace.rpd": (lambda: _database("rocpd_op", "rocpd_api", "rocpd_string"), "rocmProfileData's"),
    "rpd.json": (
        lambda: b'[ {}\n,{"name": "process_name", "ph": "M", "pid":"2","args":{"name":"GPU2"}}\n',
        "rpd2tracing.py",
    ),
    "dlprof_dldb.sqlite": (
        lambda: _database("db_version", "kernel_iteration_stats", "read_only_op_instances"),
        "DLProf",
    ),
    "tpu.xplane.pb": (
        # "\n\xd0\xf1\x06\x08\x02\x12\n/device:TPU:0", whose bytes above 127 a tool took for broken text.
        lambda: "\n\ufffd\ufffd\x06\x08\x02\x12\n/device:TPU:0\x1a\ufffd4".encode(),
        "copied as text",
    ),
    "metrics.nvvp": (lambda: _nvprof("CUPTI_ACTIVITY_KIND_METRIC"), "kernels one by one"),
    "sales.db": (lambda: _database("customers"), "known format"),
}


CHROMIUM = (
    "0a63325a10030a0a080610e7a9f0e3ef9a010a0c080210b1a3af92e6c696f6180a0a080410b397b8e2ef9a010a0c080110bf"
    "b6e793e6c696f6180a0a080310d5aaf0e3ef9a010a0a080510e6e099edee9a010a0a080910fcaaf4f189920318005001d00306"
)


def _packet(tag: bytes, content: bytes) -> bytes:
    """A field of a protobuf that holds bytes, of 128 to 16383 bytes' length."""
    return tag + bytes((len(content) & 127 | 128, len(content) >> 7)) + content


def _database(*tables: str) -> bytes:
    with tempfile.NamedTemporaryFile() as file:
        with closing(sqlite3.connect(file.name)) as connection:
            for table in tables:
                connection.execute(f"CREATE TABLE {table} (id INTEGER, start BIGINT, end BIGINT)")
            connection.commit()
        return Path(file.name).read_bytes()


def _tf1(first: dict[str, object], indent: int | None = None) -> bytes:
    """A timeline of TensorFlow 1's with an operator on a stream of a GPU, and its first event as given."""
    stream = {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "/gpu:0/stream:all Compute"}}
    done = {"name": "MatMul", "ph": "X", "cat": "Op", "pid": 1, "tid": 0, "ts": 1, "dur": 2, "args": {"op": "MatMul"}}
    return json.dumps({"traceEvents": [first, stream, done]}, indent=indent).encode()


def _nvprof(filled: str) -> bytes:
    """An nvprof database with a row in that table."""
    with tempfile.NamedTemporaryFile() as file:
        with closing(sqlite3.connect(file.name)) as connection, connection:
            for table in ("StringTable", "Version", "CUPTI_ACTIVITY_KIND_KERNEL", filled):
                connection.execute(f"CREATE TABLE {table} (_id_ INTEGER, value, version, start INTEGER, end INTEGER)")
            connection.execute(f"INSERT INTO {filled} (_id_) VALUES (1)")
        return Path(file.name).read_bytes()


@pytest.mark.parametrize("name", STRANGERS)
def test_a_stranger_is_told_what_it_is_and_what_to_give(tmp_path: Path, name: str) -> None:
    make, words = STRANGERS[name]
    path = tmp_path / name
    path.write_bytes(make())
    with pytest.raises(UnreadableRecording, match=words) as refused:
        read(path)
    assert refused.value.remedy


OTHERS = SHARED.parent / "strangers"


@pytest.mark.skipif(not OTHERS.is_dir(), reason="no files of others in ../shared/strangers")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("NVIDIA__Fuser__nsys-log.txt", "the output of `nsys stats` .*, which holds sums and no timeline; .*nsys-rep"),
    ],
)
def test_a_real_stranger_is_told_the_same(name: str, words: str) -> None:
    with pytest.raises(UnreadableRecording, match=words) as refused:
        read(OTHERS / name)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nccl_profiler.json.gz", "NCCL's .*profiler plugin.* no timeline of a GPU; give the logs of all ranks"),
        ("nccl_inspector.log", "NCCL's Inspector.* no timeline of a GPU; give the logs of all ranks"),
    ],
)
def test_what_else_is_written_beside_a_recording_is_named_and_points_to_one(name: str, words: str) -> None:
    with pytest.raises(UnreadableRecording, match=words) as refused:
        read(DATA / "made" / name)
    assert "\n" not in str(refused.value)


def test_a_profile_of_a_tpu_says_so(tmp_path: Path) -> None:
    space = xplane.message()()
    space.planes.add(name="/device:TPU:0").lines.add(name="XLA Ops").events.add(metadata_id=1, duration_ps=1000)
    path = tmp_path / "tpu.xplane.pb"
    path.write_bytes(space.SerializeToString())
    with pytest.raises(UnreadableRecording, match="profile of a TPU"):
        read(path)


def test_an_archive_of_recordings_is_opened(tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "kernel", "name": "k", "dur": 2, "args": {"device": 0}}
    archive = tmp_path / "traces.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        for rank in range(2):
            data = json.dumps({"schemaVersion": 1, "traceEvents": [event | {"ts": 1 + rank}]}).encode()
            member = tarfile.TarInfo(f"run/rank{rank}.json")
            member.size = len(data)
            file.addfile(member, io.BytesIO(data))
    found, _ = read_all([archive])
    assert [one.recording.rank for one in found] == [0, 1]
    assert all(str(archive) in one.recording.path for one in found)
