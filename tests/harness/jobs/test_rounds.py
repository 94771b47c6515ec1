"""A sweep on stand-ins for ranks, under a real mpirun: a curve at a time, stopped, gone on with, and again."""

from __future__ import annotations

import io
import signal
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console

from harness.jobs import explain
from harness.jobs.rounds import Rounds
from harness.jobs.run_directory import RunDirectory
from harness.jobs.sweep import How
from profiles.runs.records import Cell, SweepRecord, read_runs
from tests.harness.jobs.test_explain import bench, found_in, needs_mpirun, start
from tests.harness.running import PATIENCE_S, carrying, wait_until

SMALL = ["--models", "mlp,gru", "--feeds", "prefetch", "--per-rank-batch", "8", "--ranks", "2,1", "--steps", "10"]
MLP, GRU = [("mlp", 1), ("mlp", 2)], [("gru", 1), ("gru", 2)]


def launched(out: Path, status: str = "ok") -> list[tuple[str, int]]:
    """(model, ranks) of every launch that ended so, in the order of time."""
    records = sorted((run.record for run in read_runs(out)), key=lambda record: record.started_utc_ns)
    return [(record.cell.model, record.cell.ranks) for record in records if record.status == status]


@needs_mpirun
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.exhaustive)])
def test_stopped_after_the_first_curve_it_shows_that_and_its_losses_and_resume_goes_on(
    number: signal.Signals, tmp_path: Path, mark: str
) -> None:
    out, hold = tmp_path / "out", tmp_path / "hold"
    hold.write_text("2")
    sweep = start("ok", out, mark, *SMALL, RINGSCOPE_TEST_HOLD=str(hold))
    wait_until(lambda: list(out.glob("gru-n1*/0/rank0.progress")), PATIENCE_S, lambda: launched(out))
    sweep.send_signal(number)
    said = " ".join(sweep.communicate(timeout=PATIENCE_S)[0].split())
    assert sweep.returncode == 130 and carrying(mark) == [], said
    assert (launched(out), launched(out, "interrupted")) == (MLP, [("gru", 1)])
    assert said.startswith("4 cells, 4 launches to do: first mlp on 1, 2 ranks (")
    # As soon as it was whole, and again in the report at the end; so is what explains it.
    curve, losses = "ranks samples/s", "mlp: a step on 2 ranks takes"
    assert [said.count(words) for words in (curve, losses)] == [2, 2], said
    assert said.index(curve) < said.index("to explain the losses, at most") < said.index(losses) < said.rindex(curve)
    (found,) = found_in(out)
    assert (found.model, found.ranks, found.launches["without_exchange"]) == ("mlp", 2, 2)
    hold.unlink()
    code, said = bench("ok", out, mark, "--resume", "--minutes", "0")
    assert code == 0 and launched(out) == [*MLP, *GRU] and "3 cells" not in said, said
    assert "2 launches to do: first gru on 1, 2" in said and "one launch" in said


@pytest.mark.ci
@needs_mpirun
def test_cells_are_launched_again_as_time_allows_and_each_of_them_as_often(tmp_path: Path, mark: str) -> None:
    out = tmp_path / "out"
    words = [*SMALL[2:], "--models", "mlp", "--no-explain"]
    code, said = bench("ok", out, mark, *words, "--minutes", "0")
    assert code == 0 and launched(out) == MLP and "one launch" in said, said
    code, said = bench("ok", out, mark, "--resume", "--minutes", "9")
    assert code == 0 and Counter(launched(out)) == dict.fromkeys(MLP, 3) and "3 launches" in said, said


@needs_mpirun
@pytest.mark.ci
def test_stopped_before_anything_explains_a_curve_its_timed_launches_do_as_far_as_they_tell(
    tmp_path: Path, mark: str
) -> None:
    out = tmp_path / "out"
    sweep = start("explaining", out, mark, *SMALL)  # what explains has no end of its own
    wait_until(lambda: list(out.glob("explain/*/0/rank1.progress")), PATIENCE_S, lambda: launched(out))
    sweep.send_signal(signal.SIGTERM)
    said = " ".join(sweep.communicate(timeout=PATIENCE_S)[0].split())
    (found,) = found_in(out)
    assert found.model == "mlp" and found.method is None and "not launched yet: gru" in said, said
    assert sum(loss.ns or 0 for loss in found.losses) <= found.step_after_ns - found.step_before_ns


def test_launches_that_explain_and_were_left_out_are_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each model is explained as soon as it is measured, and all of them once more at the end."""
    cells = [Cell(model, ranks, 8) for model in ("mlp", "gru") for ranks in (1, 2)]
    directory = RunDirectory.create(tmp_path / "out", SweepRecord(cells, 1, "mpirun", [], 0))
    monkeypatch.setattr(Rounds, "_launch", lambda *_: None)
    asked: list[RunDirectory] = []
    monkeypatch.setattr(explain, "explain", lambda one, *_, **__: asked.append(one) or len(asked))
    said = io.StringIO()
    Rounds(directory, How("mpirun"), Console(file=said, width=200), 1).run()
    assert len(asked) == 3
    assert said.getvalue().count("left out") == 1 and "3 launches were left out to save time" in said.getvalue()


@pytest.mark.parametrize(
    ("limit_s", "explain", "more"),
    [
        (240, None, "; then launches that explain the losses, and more launches, within 4 min"),
        (240, False, "; then more launches, within 4 min"),
        (0, None, "; then launches that explain the losses"),
        (0, False, ""),
    ],
)
def test_the_plan_names_only_launches_that_may_follow(
    limit_s: float, explain: bool | None, more: str, tmp_path: Path
) -> None:
    directory = RunDirectory.create(tmp_path / "out", SweepRecord([Cell("mlp", 1, 8)], 1, "mpirun", [], 0))
    said = Rounds(directory, How("mpirun"), Console(), 3, limit_s=limit_s, explain=explain).plan()
    assert said.startswith("1 cell, 1 launch to do: ") and said.endswith(f"all cells 10 s{more}")
