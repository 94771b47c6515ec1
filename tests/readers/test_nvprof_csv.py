"""nvprof's printed traces: real ones of others (skipped where absent), and built ones of every layout."""

from __future__ import annotations

import csv
import decimal
from pathlib import Path

import pytest

from profiles import readers
from profiles.ground.errors import UnreadableRecording
from profiles.model.timeline import Timeline
from tests.recordings import SHARED

PUBLIC = SHARED / "public" / "nvprof-csv"
TRACES = ["gpu-trace-2streams.csv", "gpu-trace-9000-rows.csv", "gpu-trace-concurrent.csv", "gpu-trace-cublas.csv"]
NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
BYTES = {"B": 1, "KB": 1024, "MB": 1024**2}
needs_public = pytest.mark.skipif(not PUBLIC.is_dir(), reason="no recordings of others in ../shared/recordings/public")

OLD = (
    '"Start","Duration","Grid X","Grid Y","Grid Z","Block X","Block Y","Block Z","Registers Per Thread",'
    '"Static SMem","Dynamic SMem","Size","Throughput","Device","Context","Stream","Name"'
)
NEW = OLD.replace('"Device"', '"SrcMemType","DstMemType","Device"') + ',"Correlation_ID"'
MANAGED = NEW.replace('"Name"', '"Unified Memory","Virtual Address","Name"')


def read(tmp_path: Path, *lines: str) -> Timeline:
    path = tmp_path / "trace.log"
    path.write_text("\n".join(lines) + "\n")
    return readers.read(path)


def problem(tmp_path: Path, *lines: str) -> str:
    with pytest.raises(UnreadableRecording) as caught:
        read(tmp_path, *lines)
    return str(caught.value)


@needs_public
@pytest.mark.parametrize("name", TRACES)
def test_a_real_trace_has_the_counts_times_and_bytes_of_its_csv(name: str) -> None:
    lines = [line for line in (PUBLIC / name).read_text().splitlines() if not line.startswith("==")]
    header, units, *rows = list(csv.reader(lines))
    start, duration, size = header.index("Start"), header.index("Duration"), header.index("Size")
    title = header.index("Name")

    def ns(row: list[str], column: int) -> int:
        exact = decimal.Decimal(row[column]) * NS[units[column]]
        return int(exact.to_integral_value())

    copies = [row for row in rows if row[title].startswith("[CUDA memcpy")]
    memsets = [row for row in rows if row[title] == "[CUDA memset]"]
    kernels = [row for row in rows if not row[title].startswith("[")]
    found = readers.read(PUBLIC / name)
    for table, expected in ((found.kernels, kernels), (found.copies, copies), (found.memsets, memsets)):
        assert table["start_ns"].tolist() == [ns(row, start) for row in expected]
        assert (table["end_ns"] - table["start_ns"]).tolist() == [ns(row, duration) for row in expected]
    assert found.kernels["correlation"].tolist() == [int(r[title].rpartition("[")[2][:-1]) for r in kernels]
    assert found.kernels["name"].astype(str).tolist() == [r[title].rpartition(" [")[0] for r in kernels]
    printed = [round(decimal.Decimal(row[size]) * BYTES[units[size]]) for row in copies]
    assert found.copies["bytes"].tolist() == printed
    assert found.left_out == {}


@needs_public
def test_a_trace_of_calls_alone_is_refused_with_what_to_record() -> None:
    with pytest.raises(UnreadableRecording, match=r"214 CUDA calls and no GPU operation.*--print-gpu-trace"):
        readers.read(PUBLIC / "api-trace.csv")


@pytest.mark.parametrize(
    ("start", "duration", "units"),
    [("0.001500", "0.000002", "s,s"), ("1.500000", "2.000000", "ms,us"), ("1500.000000", "0.002000", "us,ms"),
     ("1500000", "2000", "ns,ns"), ("1.500000e-03", "2.000000", "s,us")],
)  # fmt: skip
def test_any_mixture_of_units_gives_the_same_nanoseconds(start: str, duration: str, units: str, tmp_path: Path) -> None:
    row = f'{start},{duration},1,1,1,32,1,1,8,0,0,,,"GPU (0)","1","7","k(int) [5]"'
    kernels = read(tmp_path, OLD, f"{units},,,,,,,,B,B,,,,,,", row).kernels
    assert kernels[["start_ns", "end_ns", "stream", "correlation"]].values.tolist() == [[1_500_000, 1_502_000, 7, 5]]


@pytest.mark.parametrize(
    ("unit", "printed", "size"),
    [("B", "4096", 4096), ("KB", "39.062500", 40_000), ("MB", "19.073486", 20_000_000), ("GB", "1.000000", 1 << 30)],
)
def test_sizes_are_in_powers_of_1024(unit: str, printed: str, size: int, tmp_path: Path) -> None:
    row = f'1,2,,,,,,,,,,{printed},1.0,"Pinned","Device","GPU (1)","1","7","[CUDA memcpy HtoD]",9'
    copies = read(tmp_path, NEW, f"ms,us,,,,,,,,,,{unit},GB/s,,,,,,,", row).copies
    columns = ["bytes", "device", "kind", "src_kind", "dst_kind", "correlation"]
    assert copies[columns].values.tolist() == [[size, 1, "h2d", "pinned", "device", 9]]


def test_what_the_program_and_nvprof_say_in_between_is_no_row(tmp_path: Path) -> None:
    row = '{},2,1,1,1,32,1,1,8,0,0,,,,,"GPU (0)","1","7","k",{}'
    found = read(
        tmp_path,
        "Epoch 1/3",
        "==77== NVPROF is profiling process 77, command: ./train",
        '12 of 99 "batches',
        "==77== Warning: Some kernel(s) were not profiled",
        "==77== Profiling result:",
        NEW,
        "ms,us,,,,,,,,B,B,MB,GB/s,,,,,,,",
        row.format(1, 1),
        "done",
        row.format(2, 2),
        '3 "of" 4 lines, and a lone " too',
        row.format(3, 3),
        "==77== Generated result file",
    )
    assert found.kernels["start_ns"].tolist() == [1_000_000, 2_000_000, 3_000_000]
    assert found.kernels["pid"].unique().tolist() == [77]
    assert found.left_out["not a row"] == 3


def test_tables_of_several_processes_in_one_log_keep_their_process(tmp_path: Path) -> None:
    row = '1,2,1,1,1,32,1,1,8,0,0,,,,,"GPU ({})","1","7","k",4'
    table = (NEW, "ms,us,,,,,,,,B,B,MB,GB/s,,,,,,,")
    found = read(tmp_path, "==5== Profiling result:", *table, row.format(0), "==6== Profiling result:", *table,
                 row.format(3))  # fmt: skip
    assert found.kernels[["pid", "device"]].values.tolist() == [[5, 0], [6, 3]]
    assert found.devices[["device", "name"]].values.tolist() == [[0, "GPU"], [3, "GPU"]]


def test_unified_memory_moves_are_copies_and_page_faults_are_counted(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        MANAGED,
        "ms,us,,,,,,,,B,B,MB,GB/s,,,,,,,,,",
        '1,,,,,,,,,,,,,,,,,,"PC 0x58344172","0x7b55","[Unified Memory CPU page faults]",',
        '2,10.048000,,,,,,,,,,,,,,"Tesla T4 (0)",,,"64.000000KB","0x7b56","[Unified Memory Memcpy HtoD]",',
        '3,1.824000,,,,,,,,,,,,,,"Tesla T4 (0)",,,"4.000000KB","0x7b57","[Unified Memory Memcpy DtoH]",',
        '4,519.710000,64,1,1,1024,1,1,16,0,0,,,,,"Tesla T4 (0)","1","7",,,"vectorAdd(int)",128',
    )
    assert found.copies[["kind", "bytes", "stream"]].values.tolist() == [["h2d", 65536, -1], ["d2h", 4096, -1]]
    assert found.left_out == {"unified memory faults": 1}
    assert found.kernels["correlation"].tolist() == [128]


def test_calls_printed_beside_the_operations_are_read_too(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        OLD,
        "ms,us,,,,,,,,B,B,MB,GB/s,,,,",
        '1,2,,,,,,,,,,,,,,,"cudaLaunch (k(int (*) [3]) [12])"',
        '2,2,1,1,1,32,1,1,8,0,0,,,"GPU (0)","1","7","k(int (*) [3]) [12]"',
        '3,2,,,,,,,,,,,,,,,"cudaFree"',
    )
    assert found.api[["name", "correlation"]].values.tolist() == [["cudaLaunch", 12], ["cudaFree", -1]]
    assert found.kernels[["name", "correlation"]].values.tolist() == [["k(int (*) [3])", 12]]
    assert "api" in found.known


TEXT = [
    "==27694== NVPROF is profiling process 27694, command: matrixMul",
    "==27694== Profiling result:",
    "   Start  Duration            Grid Size      Block Size     Regs*    SSMem*    DSMem*      Size  Throughput"
    "           Device   Context    Stream  Name",
    "133.81ms  135.78us                    -               -         -         -         -  409.60KB  3.0167GB/s"
    "  GeForce GT 640M         1         2  [CUDA memcpy HtoD]",
    " 1.1421s  3.7037ms             (20 10 1)       (32 32 1)        29  8.1920KB        0B         -           -"
    "  GeForce GT 640M         1         2  void matrixMulCUDA<int=32>(float*, float*, int) [94]",
    "",
    "Regs: Number of registers used per CUDA thread.",
]


def test_a_trace_as_text_has_its_units_at_every_value(tmp_path: Path) -> None:
    found = read(tmp_path, *TEXT)
    assert found.copies[["start_ns", "end_ns", "bytes"]].values.tolist() == [[133_810_000, 133_945_780, 419_430]]
    assert found.kernels[["start_ns", "end_ns", "device", "context", "stream", "correlation"]].values.tolist() == [
        [1_142_100_000, 1_145_803_700, 0, 1, 2, 94]
    ]
    assert found.kernels["name"].tolist() == ["void matrixMulCUDA<int=32>(float*, float*, int)"]
    assert found.devices["name"].tolist() == ["GeForce GT 640M"]


def test_times_printed_coarsely_say_so(tmp_path: Path) -> None:
    row = '{},2,1,1,1,32,1,1,8,0,0,,,"GPU (0)","1","7","k [1]"'
    exact = read(tmp_path, OLD, "ms,us,,,,,,,,B,B,MB,GB/s,,,,", row.format("1.234567"))
    coarse = read(tmp_path, OLD, "s,us,,,,,,,,B,B,MB,GB/s,,,,", row.format("0.001235"))
    assert [doubt.code for doubt in exact.doubts] == []
    assert [doubt.code for doubt in coarse.doubts] == ["coarse-times"]
    assert "1000 ns" in coarse.doubts[0].text
    assert "100000 ns" in read(tmp_path, *TEXT).doubts[0].text


def test_windows_line_ends_and_utf16_read_the_same(tmp_path: Path) -> None:
    row = '1,2,1,1,1,32,1,1,8,0,0,,,"GPU (0)","1","7","k [1]"'
    text = "\r\n".join([OLD, "ms,us,,,,,,,,B,B,MB,GB/s,,,,", row]) + "\r\n"
    path = tmp_path / "trace.csv"
    for encoded in (text.encode(), text.encode("utf-16"), b"\xef\xbb\xbf" + text.encode()):
        path.write_bytes(encoded)
        assert readers.read(path).kernels["end_ns"].tolist() == [1_002_000]


def test_rows_that_cannot_be_are_left_out_and_doubted(tmp_path: Path) -> None:
    row = '{},{},1,1,1,32,1,1,8,0,0,,,"GPU (0)","1","7","k [1]"'
    found = read(tmp_path, OLD, "ms,us,,,,,,,,B,B,MB,GB/s,,,,", row.format(1, 2), row.format(1, -2),
                 row.format("1e300", 2), row.format("1.x", 2))  # fmt: skip
    assert len(found.kernels) == 1
    assert found.left_out == {"end before they start: kernels": 1, "without times": 2}
    assert [doubt.code for doubt in found.doubts] == ["impossible-times"]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["==9== Profiling result:", '"Type","Time(%)","Time","Calls","Avg","Min","Max","Name"', ",%,ms,,us,us,us,",
          '"GPU activities",99.1,1.2,3,4,5,6,"k"'], "a summary"),
        (["==9== Profiling result:", '"Time(%)","Time","Calls","Avg","Min","Max","Name"', "%,ms,,us,us,us,",
          '99.1,1.2,3,4,5,6,"k"'], "a summary"),
        (["==9== Profiling result:", "Type  Time(%)      Time     Calls       Avg       Min       Max  Name",
          " GPU activities:   99.89%  128.21us         1  128.21us  128.21us  128.21us  k"], "a summary"),
        (['"Device","Kernel","Invocations","Metric Name","Metric Description","Min","Max","Avg"',
          '"GPU (0)","k",1,"ipc","Executed IPC",1.0,1.0,1.0'], "metrics"),
        (['"Device","Context","Stream","Kernel","Correlation_ID","ipc"', '"GPU (0)","1","7","k",5,1.0'], "metrics"),
        (["==9== NVPROF is profiling process 9, command: ./x", "No kernels were profiled."], "no GPU work"),
        (["==9== NVPROF is profiling process 9, command: ./x", "hello"], "without a trace"),
        ([OLD, '1,2,1,1,1,32,1,1,8,0,0,,,"GPU (0)","1","7","k [1]"'], "no row of units"),
        ([OLD, "ms,us,,,,,,,,B,B,MB,GB/s,,,,"], "no GPU operation"),
        ([OLD.replace('"Name"', '"Start"'), "ms,us,,,,,,,,B,B,MB,GB/s,,,,"], "damaged header"),
    ],
)  # fmt: skip
def test_what_is_no_trace_is_refused_with_its_own_reason(lines: list[str], said: str, tmp_path: Path) -> None:
    assert said in problem(tmp_path, *lines)
