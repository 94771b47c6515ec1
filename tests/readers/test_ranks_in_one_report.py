"""Recordings of nsys on two H200s: one report that holds the ranks that a script started itself (`mp.spawn`), and one
report for each rank of torchrun, which had a context on GPU 0 each. The numbers are counted once more by sqlite3."""

from __future__ import annotations

import lzma
import sqlite3
from collections.abc import Iterable
from pathlib import Path

import pytest

from profiles.measuring.subject import load

FOLDER = Path(__file__).parents[2] / "docs/results/2026-11-29-2xh200-b"
REPORT = FOLDER / "spawn-fused-nsys.sqlite.xz"
RANK_0, RANK_1 = 13757, 13758  # process ids, as the script printed them


@pytest.mark.parametrize("marked", [False, True])
def test_its_gpus_have_the_ranks_of_their_processes_marks_and_never_that_of_the_file_name(
    tmp_path: Path, *, marked: bool
) -> None:
    """With the marks exchanged, so that no order of devices or processes can give the right answer by itself."""
    path = _unpacked(REPORT, tmp_path / "rank0.sqlite")
    if marked:
        base = sqlite3.connect(path)
        columns = [one[1] for one in base.execute("PRAGMA table_info(NVTX_EVENTS)")]
        for pid, rank in ((RANK_0, 1), (RANK_1, 0)):
            of_it = "eventType = 59 AND (globalTid >> 24) & 0xffffff = ?"
            (row,) = base.execute(f"SELECT min(rowid) FROM NVTX_EVENTS WHERE {of_it}", (pid,)).fetchone()
            taken = ", ".join({"text": f"'rank {rank} of 2'", "textId": "NULL"}.get(one, one) for one in columns)
            base.execute(f"INSERT INTO NVTX_EVENTS SELECT {taken} FROM NVTX_EVENTS WHERE rowid = ?", (row,))
        base.commit()
        base.close()
    measures = load([path]).measures
    assert measures.recordings[0].rank is None
    assert [(gpu.rank, gpu.device) for gpu in measures.gpus] == ([(0, 1), (1, 0)] if marked else [(None, 0), (None, 1)])
    assert measures.titles == (["rank 0, GPU 1", "rank 1, GPU 0"] if marked else ["GPU 0", "GPU 1"])


@pytest.mark.parametrize("files", ["spawn-fused-nsys", "torchrun-nsys"])
def test_compute_and_exposed_all_reduces_are_those_that_sqlite3_counts(tmp_path: Path, files: str) -> None:
    paths = [_unpacked(path, tmp_path / path.stem) for path in sorted(FOLDER.glob(f"{files}*.xz"))]
    gpus = load(paths).measures.gpus
    assert [gpu.device for gpu in gpus] == [0, 1]  # rank 1's context on GPU 0 ran nothing
    for gpu, path in zip(gpus, paths * (2 // len(paths)), strict=True):
        begin, end = gpu.window_ns
        kernels = _kernels(path, gpu.device)
        inside = [(max(start, begin), min(stop, end), name) for start, stop, name in kernels]
        compute = _covered((start, stop) for start, stop, name in inside if "nccl" not in name)
        assert gpu.ledger_ns["compute"] == compute > 28_000_000
        assert gpu.ledger_ns["collective"] == _covered((start, stop) for start, stop, _ in inside) - compute
        assert sum("nccl" in name for *_, name in kernels) == 40  # two buckets in each of 20 steps
        assert len(kernels) == {"spawn-fused-nsys": 860, "torchrun-nsys": 2420}[files]


def _unpacked(packed: Path, path: Path) -> Path:
    path.write_bytes(lzma.decompress(packed.read_bytes()))
    return path


def _kernels(path: Path, device: int) -> list[tuple[int, int, str]]:
    """(start, end, name) of each kernel of a device."""
    base = sqlite3.connect(path)
    names = "JOIN StringIds ON StringIds.id = shortName WHERE deviceId = ?"
    rows = base.execute(f"SELECT start, end, value FROM CUPTI_ACTIVITY_KIND_KERNEL {names}", (device,)).fetchall()
    base.close()
    return rows


def _covered(spans: Iterable[tuple[int, int]]) -> int:
    """The ns that lie in at least one of these spans; empty spans count nothing."""
    covered, last = 0, -(1 << 62)
    for start, end in sorted(spans):
        covered += max(0, end - max(start, last))
        last = max(last, end)
    return covered
