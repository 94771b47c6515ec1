"""The trace `nsys stats` prints: built here in the old and the new layout; real summaries are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiles import measure, readers
from profiles.ground.errors import UnreadableRecording
from tests.recordings import SHARED

H200 = SHARED / "h200"
COLUMNS = (
    "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),"
    "Bytes (MB),Throughput ({rate}),SrcMemKd,DstMemKd,Device,Ctx,{green}Strm,Name"
)
NOTICE = "\nNOTICE: Existing SQLite export found: run.sqlite\nProcessing [run.sqlite] with [cuda_gpu_trace.py]... \n"


@pytest.mark.parametrize(
    ("rate", "green", "copy", "before"),
    [("MB/s", "", "[CUDA memcpy HtoD]", ""), ("MBps", "GreenCtx,", "[CUDA memcpy Host-to-Device]", NOTICE)],
)
def test_old_and_new_headers_read_the_same(rate: str, green: str, copy: str, before: str, tmp_path: Path) -> None:
    gap = "," if green else ""
    rows = [
        f"100,50,1,,,,,,,,,,19.268,300.1,Pageable,Device,NVIDIA H200 (1),1,{gap}14,{copy}",
        f'9007199254,5000,2,160,1,1,256,1,1,32,0.000,0.000,,,,,NVIDIA H200 (1),1,{gap}13,"burn(float *, int)"',
        f"9007200000,10,3,,,,,,,,,,0.004,1.0,Device,,NVIDIA H200 (1),1,{gap}13,[CUDA memset]",
    ]
    path = tmp_path / "trace.csv"
    path.write_text(before + COLUMNS.format(rate=rate, green=green) + "\n" + "\n".join(rows) + "\n\n")
    found = readers.read(path)
    columns = ["start_ns", "end_ns", "device", "context", "stream", "correlation"]
    assert found.copies[[*columns, "kind", "bytes", "src_kind", "dst_kind"]].values.tolist() == [
        [100, 150, 1, 1, 14, 1, "h2d", 19_268_000, "pageable", "device"]
    ]
    assert found.kernels[[*columns, "name"]].values.tolist() == [
        [9007199254, 9007204254, 1, 1, 13, 2, "burn(float *, int)"]
    ]
    assert found.memsets[[*columns, "bytes"]].values.tolist() == [[9007200000, 9007200010, 1, 1, 13, 3, 4000]]
    assert found.known == {"kernels", "copies", "memsets", "devices"}
    assert [doubt.code for doubt in found.doubts] == ["coarse-sizes"]


def in_unit(unit: str, size: str, tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    rows = (
        f"100,50,1,1,1,1,1,1,1,32,0,0,,,,,A100 (0),1,7,k\n200,50,2,,,,,,,,,,{size},,,,A100 (0),1,7,[CUDA memcpy HtoD]\n"
    )
    path.write_text(COLUMNS.format(rate="MB/s", green="").replace("Bytes (MB)", f"Bytes ({unit})") + "\n" + rows)
    return path


@pytest.mark.parametrize("unit", ["B", "byte", "bytes"])
def test_sizes_in_bytes_are_read_and_exact(unit: str, tmp_path: Path) -> None:
    found = readers.read(in_unit(unit, "4096", tmp_path))
    assert found.copies["bytes"].tolist() == [4096]
    assert found.doubts == ()


def test_sizes_of_an_unknown_unit_are_refused_and_not_0(tmp_path: Path) -> None:
    with pytest.raises(UnreadableRecording, match="sizes of a unit furlong"):
        readers.read(in_unit("furlong", "4096", tmp_path))


def test_copies_whose_bytes_are_not_told_have_no_rate(tmp_path: Path) -> None:
    (gpu,) = measure(in_unit("MB", "", tmp_path)).gpus
    assert gpu.copies["h2d"].gb_per_s is None
    assert not any("0 B/s" in finding.text for finding in measure(in_unit("MB", "", tmp_path)).findings)


def test_a_trace_among_the_other_reports_of_one_output_is_found(tmp_path: Path) -> None:
    path = tmp_path / "all.csv"
    path.write_text(
        "Time (%),Total Time (ns),Instances,Avg (ns),Name\n50.0,1,1,1,k\n\n"
        + COLUMNS.format(rate="MB/s", green="") + "\n5,6,1,1,1,1,1,1,1,32,0,0,,,,,GPU,1,7,k\n\n"
        + "Time (%),Total Time (ns),Count,Avg (ns),Operation\n98.2,1,1,1,x\n"
    )  # fmt: skip
    assert readers.read(path).kernels[["start_ns", "end_ns"]].values.tolist() == [[5, 11]]


@pytest.mark.skipif(not H200.is_dir(), reason="no recordings in ../shared/recordings")
@pytest.mark.parametrize("report", ["api-sum", "kern-sum", "mem-time-sum"])
def test_a_real_summary_is_refused_with_the_report_to_print(report: str) -> None:
    with pytest.raises(UnreadableRecording, match="not its trace of GPU operations.*cuda_gpu_trace"):
        readers.read(H200 / f"resnet50-2gpu-device.rank0.nsys-{report}.csv")


@pytest.mark.parametrize(
    "header",
    [
        "Start (ns),Duration (ns),Name,Result,CorrID,Pid,Tid,T-Pri,Thread Name",
        COLUMNS.format(rate="MB/s", green=""),
    ],
)
def test_a_trace_without_gpu_operations_is_refused(header: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(header + "\n")
    with pytest.raises(UnreadableRecording):
        readers.read(path)
