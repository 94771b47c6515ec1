"""The overhead benchmark: both loops do the same work, and the verdict is what its definition says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.by_turns import interval
from benchmarks.harness_overhead import verdict
from tests.recordings import ROOT


@pytest.mark.ci
@pytest.mark.train
@pytest.mark.beside
@pytest.mark.parametrize(
    "words",
    [
        ["--step", "compiled", "--feed", "resident"],
        pytest.param(["--precision", "mixed_bfloat16"], marks=pytest.mark.exhaustive),
    ],
)
def test_both_loops_train_to_the_same_weights(tmp_path: Path, words: list[str]) -> None:
    pytest.importorskip("tensorflow")
    pytest.importorskip("horovod.tensorflow")
    out = tmp_path / "out.json"
    command = [sys.executable, "-m", "benchmarks.harness_overhead", "--ranks", "1", "--model", "mlp"]
    command += ["--per-rank-batch", "8", "--steps", "3", "--pairs", "2", "--json", str(out), *words]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"CUDA_VISIBLE_DEVICES": "-1"}, capture_output=True, text=True, timeout=900
    )
    assert out.exists(), done.stdout + done.stderr
    found = json.loads(out.read_text())
    assert done.returncode == ["holds", "fails", "not resolved"].index(found["verdict"])
    assert len(found["pairs"]) == 2 and all(seconds > 0 for pair in found["pairs"] for seconds in pair)
    assert found["weights_apart"] < 1e-5


def test_the_verdict_wants_the_median_and_the_lower_end() -> None:
    assert verdict(0.99, 0.98, 1.01) == "holds"
    assert verdict(0.99, 0.979, 1.01) == "not resolved"
    assert verdict(0.98, 0.97, 0.989) == "fails"
    assert interval([1.0] * 9 + [3.0]) == (1.0, 1.0, 1.0)
