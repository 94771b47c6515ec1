"""The benchmark of recurrent loops says one line for each way."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("tensorflow")

from benchmarks import recurrent


@pytest.mark.ci
def test_each_way_is_timed(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--units", "4", "--batch", "2", "--length", "9", "--dtype", "float32", "--steps", "2", "--repeats", "2"]
    recurrent.main(["--cell", "GRU", *small])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert [row["way"] for row in rows] == ["ring", "keras"]
    assert all(row["ms"] > 0 and len(row["ms_of_all"]) == 2 and row["cell"] == "GRU" for row in rows)
