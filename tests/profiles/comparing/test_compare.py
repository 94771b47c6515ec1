"""Comparisons of measures and sweeps with known differences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from profiles.comparing.compare import compare, to_json
from profiles.ground.errors import RingscopeError
from profiles.measuring.subject import Subject
from profiles.model import measures_json
from profiles.runs.cell import Cell
from profiles.scaling.measure import Scaling
from profiles.scaling.rows import LaunchRow
from profiles.verbs.compare import command
from tests.made.hand import gpu, measures

MS = 1_000_000


def _recorded(label: str, *gpus: Any, **facts: Any) -> Subject:
    return Subject(label, measures(gpus), None, **facts)


def _swept(label: str, **cells: list[float]) -> Subject:
    """Launches of cells at so many samples/s, which are named by their model."""
    unknown: Any = {"step_ms_p50": None, "input_wait_share": None, "step_ms_p95": None, "window_ms": None}
    facts = unknown | {"clock_offset_ms_max": None, "launcher": "x", "started_utc_ns": 0, "seconds": 0.0, "host": "a"}
    rows = [
        LaunchRow(Cell(model, 1, 8), 0, "ok", "", samples_per_s_global=rate, profiled=None, **facts)
        for model, rates in cells.items()
        for rate in rates
    ]
    return Subject(label, None, Scaling(rows, [], [], []))


def test_the_change_of_each_owner_sums_to_the_change_of_the_step() -> None:
    before = _recorded("a", gpu(step_ns=10 * MS, ledger={"h2d": 2 * MS, "idle_feed": MS}))
    after = _recorded("b", gpu(step_ns=8 * MS, ledger={"idle_launch": MS}))
    found = compare(before, after)
    changes = {c.owner: c.change_ns for c in found.changes if c.change_ns}
    assert changes == {"h2d": -2 * MS, "idle_feed": -MS, "idle_launch": MS}
    assert sum(changes.values()) == -2 * MS and found.step_verdict == "faster"
    assert found.changes[0].owner == "h2d"


@pytest.mark.parametrize(("after_ns", "verdict"), [(10.1, "no difference"), (10.5, "slower"), (9.5, "faster")])
def test_one_recording_a_side_is_held_against_the_noise_floor(after_ns: float, verdict: str) -> None:
    after = _recorded("b", gpu(step_ns=int(after_ns * MS)))
    assert compare(_recorded("a", gpu()), after).step_verdict == verdict


def test_other_gpus_are_not_comparable_and_named() -> None:
    other = gpu()
    other.name = "Tesla V100"
    found = compare(_recorded("a", gpu()), _recorded("b", other)).likeness
    assert not found.comparable and found.unlike["gpus"] == (["NVIDIA H200"], ["Tesla V100"])
    assert compare(_recorded("a", gpu()), _recorded("b", gpu())).likeness.comparable


def test_launches_decide_by_a_test_where_there_are_enough_of_them() -> None:
    steady, faster = [100.0, 101.0, 99.0, 100.5, 99.5], [110.0, 111.0, 109.0, 110.5, 109.5]
    scattered = [80.0, 130.0, 95.0, 125.0, 90.0]
    before = _swept("a", x=steady, y=scattered, z=[100.0], w=[100.0, 100.0], one=[100.0])
    after = _swept("b", x=faster, y=[v * 1.05 for v in scattered], z=[101.0], w=[120.0, 121.0], one=[97.0])
    found = compare(before, after)
    verdicts = {cell.cell.partition("-")[0]: cell.verdict for cell in found.cells}
    assert verdicts["x"] == "faster" and verdicts["y"] == "no difference"
    assert verdicts["z"] == "no difference" and verdicts["w"] == "faster, too few launches to tell"
    assert verdicts["one"] == "slower, too few launches to tell"
    assert list(verdicts) == ["x", "y", "z", "w", "one"]  # as the first sweep has them


def test_a_sweep_and_recordings_have_nothing_in_common() -> None:
    with pytest.raises(RingscopeError, match="nothing to compare"):
        compare(_recorded("a", gpu()), _swept("b", x=[1.0]))


def test_the_command_prints_the_changes_and_writes_json(tmp_path: Path) -> None:
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path, h2d in zip(paths, (2 * MS, MS), strict=True):
        path.write_text(measures_json.dumps(measures([gpu(step_ns=10 * MS + h2d, ledger={"h2d": h2d})])))
    printed = CliRunner().invoke(command, [str(path) for path in paths])
    assert printed.exit_code == 0 and "copy to GPU" in printed.output and "faster" in printed.output
    written = CliRunner().invoke(command, [*map(str, paths), "--json", "-"])
    found = json.loads(written.output)
    assert found["step_after_ns"] - found["step_before_ns"] == sum(c["change_ns"] or 0 for c in found["changes"])
    assert found == to_json(compare(*(_load(path) for path in paths)))


def _load(path: Path) -> Subject:
    from profiles.measuring.subject import load

    return load([path])
