"""Strategies in one table: launches that warm up at once, and are timed one after the other."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("horovod", reason="Horovod is not built")

from benchmarks import strategies
from harness.training import turns
from tests.harness.running import ROOT

OF_STEPS = ["--step", "fit", "--feeds", "prefetch", "--steps", "6", "--warmup", "4"]
SMALL = ["--models", "mlp", "--ranks", "2", "--per-rank-batch", "8", *OF_STEPS]


def test_a_warm_launch_waits_for_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(turns.VARIABLE, str(tmp_path))
    met: list[str] = []
    waits = threading.Thread(target=turns.wait, args=(0, lambda: met.append("met")))
    waits.start()
    while not (tmp_path / "warm").exists():
        pass
    assert met == ["met"] and waits.is_alive()
    (tmp_path / "go").touch()
    waits.join(20)
    assert met == ["met", "met"] and not waits.is_alive()


def test_other_ranks_wait_for_rank_0_and_without_the_variable_nobody_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    met: list[str] = []
    turns.wait(0, lambda: met.append("met"))
    assert met == []
    monkeypatch.setenv(turns.VARIABLE, str(tmp_path))
    turns.wait(1, lambda: met.append("met"))
    assert met == ["met", "met"] and not list(tmp_path.iterdir())


def test_an_unknown_strategy_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        strategies.main(["--strategies", "horovod,none-such", "--out", str(tmp_path / "out"), "--", *SMALL])
    assert "no such strategy: none-such" in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_a_directory_that_is_there_stays_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        strategies.main(["--strategies", "horovod", "--out", str(tmp_path), "--", *SMALL])
    assert "is there already" in capsys.readouterr().err and not list(tmp_path.iterdir())


@pytest.mark.train
@pytest.mark.exhaustive
def test_each_is_timed_alone_and_all_are_in_one_table(tmp_path: Path) -> None:
    out = tmp_path / "out"
    argv = [sys.executable, "-m", "benchmarks.strategies", "--strategies", "horovod,independent", "--out", str(out)]
    run = subprocess.run([*argv, "--", *SMALL], cwd=ROOT, capture_output=True, text=True, env=os.environ)
    assert run.returncode == 0, run.stdout + run.stderr
    rows = list(csv.DictReader((out / "all/summary.csv").open()))
    assert [(row["strategy"], row["status"]) for row in rows] == [("horovod", "ok"), ("independent", "ok")]
    windows = []
    for strategy in ("horovod", "independent"):
        heads = [json.loads(path.open().readline()) for path in (out / "each" / strategy).glob("*/0/rank*.jsonl")]
        windows.append((min(one["window_start_ns"] for one in heads), max(one["window_end_ns"] for one in heads)))
    assert len(windows) == 2 and windows[0][1] < windows[1][0]
