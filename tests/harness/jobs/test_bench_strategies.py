"""One sweep over every strategy: each a row, with numbers that can be held against each other.

They alone catch a strategy that `bench` cannot start, or whose row lacks numbers.
"""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

import pytest

from profiles.runs.records import read_runs
from profiles.runs.strategies import STRATEGIES as EVERY
from profiles.runs.strategies import TENSORFLOW
from tests.harness.running import run_python

pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")
pytestmark = [pytest.mark.train, pytest.mark.exhaustive]
STRATEGIES = {name: one for name, one in EVERY.items() if one.backend == TENSORFLOW}  # test_peers has the others


def test_every_strategy_is_a_row_beside_horovod(tmp_path: Path) -> None:
    words = [
        "--models",
        "mlp",
        "--ranks",
        "2",
        "--per-rank-batch",
        "16",
        "--feeds",
        "prefetch",
        "--steps",
        "6",
        "--no-explain",
    ]
    words += ["--strategy", ",".join(STRATEGIES), "--micro-batches", "1,4", "--launches", "1", "--warmup", "2"]
    done = run_python("-m", "harness", "bench", *words, "--out", str(tmp_path / "out"), timeout_s=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    with (tmp_path / "out" / "summary.csv").open() as file:
        rows = {(row["strategy"], row["micro_batches"]): row for row in csv.DictReader(file)}
    pipelined = [name for name, one in STRATEGIES.items() if one.splits]
    assert set(rows) == {(name, "1") for name in STRATEGIES} | {(name, "4") for name in pipelined}
    for (name, _), row in rows.items():
        assert row["status"] == "ok" and float(row["of_horovod"]) > 0, name
        # 12 steps of random labels teach little: all are near ln 10, those of one joined batch nearest.
        assert float(row["loss"]) == pytest.approx(float(rows["horovod", "1"]["loss"]), abs=0.2)
        assert (row["staleness_p50"] != "") is (name == "parameter_server")
        if STRATEGIES[name].synchronous:
            assert float(row["loss"]) == pytest.approx(float(rows["horovod", "1"]["loss"]), abs=1e-4), name
    assert rows["parameter_server", "1"]["input_wait_share"] == ""
    runs = read_runs(tmp_path / "out")
    kept = {run.record.cell.strategy: {rank.extra["optimizer_bytes"] for rank in run.ranks} for run in runs}
    # Momentum of 99 978 weights, or of this rank's half of them, beside the learning rate and the count of steps.
    assert kept["horovod"] == {99_978 * 4 + 12} and kept["sharded"] == {99_978 // 2 * 4 + 12}
    assert "limited by" in done.stdout and re.search(r"^horovod .* 1\.00 x ", done.stdout, re.M)


def test_another_backend_that_crashes_or_is_absent_loses_its_own_row_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = "import sys; sys.modules['jax'] = None; from harness.training.worker import main; main(sys.argv[3:])"
    for backend, does in (("jax", f'exec {sys.executable} -c "{absent}" "$@"'), ("torch", "kill -SEGV $$")):
        python = tmp_path / backend
        python.write_text(f"#!/bin/sh\n{does}\n")
        python.chmod(0o755)
        monkeypatch.setenv(f"RINGSCOPE_{backend.upper()}_PYTHON", str(python))
    words = ["--models", "mlp", "--ranks", "1", "--steps", "4", "--warmup", "1", "--launches", "1", "--no-explain"]
    words += ["--strategy", "keras-torch,keras-jax,horovod", "--out", str(tmp_path / "out")]
    done = run_python("-m", "harness", "bench", *words, timeout_s=600)
    with (tmp_path / "out" / "summary.csv").open() as file:
        rows = {row["strategy"]: row for row in csv.DictReader(file)}
    assert {name: row["status"] for name, row in rows.items()} == {
        "horovod": "ok",
        "keras-jax": "unsupported",
        "keras-torch": "failed",
    }, done.stdout + done.stderr
    assert "pip install keras jax" in rows["keras-jax"]["reason"] and "SIGSEGV" in rows["keras-torch"]["reason"]
