"""Horovod's variables for a cell, and reading what its autotune writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from harness.launch.environment import allowed
from harness.machine import tuning
from harness.machine.tuning import Choice, environment, read
from profiles.runs.cell import Cell
from profiles.runs.rank_records import RankRecord, write_rank
from tests.harness.jobs.test_explain import needs_horovod
from tests.harness.running import ROOT, rows

CELL = Cell("mlp", 2, 8)
LOG = Path("/out/autotune.csv")
HEAD = "hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,"
HEAD += "cycle_time_ms,tensor_fusion_threshold,score\n"


def test_horovods_own_settings_set_no_variable_and_others_the_one_they_are() -> None:
    assert environment(CELL, LOG, None) == {}
    assert environment(replace(CELL, fusion_mb=0), LOG, None) == {"HOROVOD_FUSION_THRESHOLD": "0"}
    both = environment(replace(CELL, fusion_mb=64, cycle_us=3500), LOG, None)
    assert both == {"HOROVOD_FUSION_THRESHOLD": "67108864", "HOROVOD_CYCLE_TIME": "3.5"}
    assert environment(replace(CELL, strategy="mirrored", cycle_us=5), LOG, None) == {}
    assert set(both) <= set(allowed(both))  # they reach the ranks


def test_autotune_is_asked_for_unless_its_choice_is_kept() -> None:
    cell = replace(CELL, autotune="on")
    sought = environment(cell, LOG, None)
    assert sought["HOROVOD_AUTOTUNE"] == "1" and sought["HOROVOD_AUTOTUNE_LOG"] == str(LOG)
    assert environment(cell, LOG, Choice(12.5, 2.25)) == {
        "HOROVOD_FUSION_THRESHOLD": "13107200",
        "HOROVOD_CYCLE_TIME": "2.25",
    }


def test_the_best_point_is_the_choice_and_final_once_it_is_written_again(tmp_path: Path) -> None:
    log = tmp_path / "autotune.csv"
    assert read(log) == (None, False)
    log.write_text(HEAD)
    assert read(log) == (None, False)
    log.write_text(HEAD + "0,0,0,1,5,4,100.5\n0,0,0,1,50,32,300.25\n0,0,0,1,25,16,200\n")
    assert read(log) == (Choice(32, 50), False)
    log.write_text(log.read_text() + "0,0,0,1,50,32,300.25\n")
    assert read(log) == (Choice(32, 50), True)
    log.write_text(log.read_text() + "0,0,0")
    assert read(log)[1] is False


def test_a_choice_is_kept_for_its_machine_launcher_and_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    machine = {"host": "a", "cpu": {"model": "EPYC"}}
    told = {"fusion_mib": 12.5, "cycle_ms": 2.25, "finished": True, "kept": False}
    record = RankRecord(0, 2, 0, "a", None, 0, 3, 8, [3], [0], extra={"autotune": told})
    write_rank(tmp_path / "rank0.jsonl", record)
    tuning.keep(CELL, "mpirun", machine, tmp_path)
    assert tuning.find(replace(CELL, steps=7), "mpirun", machine) == Choice(12.5, 2.25)
    for cell, launcher, of in (
        (replace(CELL, model="gru"), "mpirun", machine),
        (CELL, "horovodrun", machine),
        (CELL, "mpirun", machine | {"host": "b"}),
    ):
        assert tuning.find(cell, launcher, of) is None
    told["finished"] = False
    write_rank(tmp_path / "rank0.jsonl", record)
    tuning.keep(replace(CELL, model="gru"), "mpirun", machine, tmp_path)
    assert len(json.loads(tuning.kept_in().read_text())) == 1
    tuning.kept_in().write_text("not json")
    assert tuning.find(CELL, "mpirun", machine) is None


@needs_horovod
@pytest.mark.train
@pytest.mark.exhaustive
def test_two_ranks_find_a_choice_show_it_and_the_next_launch_takes_it(tmp_path: Path, mark: str) -> None:
    out = tmp_path / "out"
    environ = {
        "RINGSCOPE_TEST": mark,
        "PYTHONPATH": str(ROOT),
        "CUDA_VISIBLE_DEVICES": "-1",
        "XDG_CACHE_HOME": str(tmp_path),
    }
    words = ["--models", "mlp", "--feeds", "prefetch", "--per-rank-batch", "8", "--ranks", "2", "--autotune", "on"]
    done = subprocess.run(
        [sys.executable, "-m", "harness", "bench", "--out", str(out), *words, "--launches", "2"],
        cwd=ROOT,
        env=os.environ | environ,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    first, second = rows(out)
    assert 0 <= float(first["tuned_fusion_mib"]) <= 64 and 1 <= float(first["tuned_cycle_ms"]) <= 100
    assert first["tuned_cycle_ms"][:4] == second["tuned_cycle_ms"][:4]
    assert f"cycle {float(first['tuned_cycle_ms']):.2f} ms" in " ".join(done.stdout.split())
    (sought,) = out.glob("*/*/autotune.csv")  # of the first launch alone
    assert read(sought)[1]
