"""One report of nsys that holds the ranks that a script started itself (two processes of `mp.spawn`, on two H200s)."""

from __future__ import annotations

import lzma
import sqlite3
from pathlib import Path

import pytest

from profiles.measuring.subject import load

ROOT = Path(__file__).parents[2]
REPORT = ROOT / "docs/results/2026-11-29-2xh200-b/spawn-nsys.sqlite.xz"
RANK_0, RANK_1 = 6010, 6011  # process ids, as the script printed them


@pytest.mark.parametrize("marked", [False, True])
def test_its_gpus_have_the_ranks_of_their_processes_marks_and_never_that_of_the_file_name(
    tmp_path: Path, *, marked: bool
) -> None:
    """With the marks exchanged, so that no order of devices or processes can give the right answer by itself."""
    path = tmp_path / "rank0.sqlite"
    path.write_bytes(lzma.decompress(REPORT.read_bytes()))
    if marked:
        base = sqlite3.connect(path)
        for pid, rank in ((RANK_0, 1), (RANK_1, 0)):
            of_it = "eventType = 59 AND (globalTid >> 24) & 0xffffff = ?"
            (row,) = base.execute(f"SELECT min(rowid) FROM NVTX_EVENTS WHERE {of_it}", (pid,)).fetchone()
            columns = [one[1] for one in base.execute("PRAGMA table_info(NVTX_EVENTS)")]
            taken = ", ".join({"text": f"'rank {rank} of 2'", "textId": "NULL"}.get(one, one) for one in columns)
            base.execute(f"INSERT INTO NVTX_EVENTS SELECT {taken} FROM NVTX_EVENTS WHERE rowid = ?", (row,))
        base.commit()
        base.close()
    measures = load([path]).measures
    assert measures.recordings[0].rank is None
    assert [(gpu.rank, gpu.device) for gpu in measures.gpus] == ([(0, 1), (1, 0)] if marked else [(None, 0), (None, 1)])
    assert measures.titles == (["rank 0, GPU 1", "rank 1, GPU 0"] if marked else ["GPU 0", "GPU 1"])
