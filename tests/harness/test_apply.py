"""A finding's change made to its cell, and predicted held against measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.apply import outcome, report, trial
from profiles.errors import RingscopeError
from profiles.records import Cell, RunRecord
from profiles.scaling import Scaling
from profiles.stats import spread
from profiles.verdicts import Context, find
from profiles.views import json as view
from tests.profiles.hand import gpu, measures

MS = 1_000_000
CELL = Cell(model="resnet50", ranks=1, per_rank_batch=64)


@pytest.fixture
def launch(tmp_path: Path) -> Path:
    """A recorded launch: measures with two findings, and its record."""
    found = measures([gpu(ledger={"idle_launch": MS, "collective": 2 * MS})])
    found.findings = find(found, Context(cell=CELL))
    (tmp_path / "measures.json").write_text(view.dumps(found))
    record = RunRecord(CELL, 0, "ok", "", 0, 1, [], "horovodrun", {})
    (tmp_path / "record.json").write_text(json.dumps(record.to_json()))
    return tmp_path


def test_the_cell_is_run_again_with_the_findings_change(launch: Path) -> None:
    tried = trial("launch-bound", launch)
    assert tried.before == CELL and tried.after.step == "compiled"
    assert trial("all-reduce-exposed", launch).after.compression == "fp16"


def test_predicted_stands_beside_measured(launch: Path, tmp_path: Path) -> None:
    tried = trial("launch-bound", launch)
    spreads = {tried.before.id: spread([90.0, 100.0, 110.0]), tried.after.id: spread([104.0, 105.0, 106.0])}
    scaling = Scaling([], [], [], [], spreads)
    measured = outcome(tried, scaling)
    assert measured is not None and measured.value == pytest.approx(1.05)
    words = report(tried, scaling, tmp_path)
    assert "at most +11.1 %" in words and "measured +5.0 %" in words
    assert json.loads((tmp_path / "applied.json").read_text())["predicted_at_most_gain"] == pytest.approx(1 / 9)


def test_a_finding_that_is_not_there_is_named_with_those_that_are(launch: Path) -> None:
    with pytest.raises(RingscopeError, match="its findings are all-reduce-exposed, launch-bound"):
        trial("copies-pageable", launch)
