"""The benchmark of ring's checks: with and without them the same is trained, and without them none of them runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.checks_overhead import verdict
from tests.recordings import ROOT


@pytest.mark.train
@pytest.mark.exhaustive
def test_both_sides_train_to_the_same_weights(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    pytest.importorskip("horovod.tensorflow")
    out = tmp_path / "out.json"
    command = [sys.executable, "-m", "benchmarks.checks_overhead", "--model", "mlp", "--json", str(out)]
    command += ["--per-rank-batch", "8", "--steps", "5", "--pairs", "2"]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"CUDA_VISIBLE_DEVICES": "-1"}, capture_output=True, text=True, timeout=900
    )
    assert out.exists(), done.stdout + done.stderr
    found = json.loads(out.read_text())
    assert done.returncode == ["holds", "fails", "not resolved"].index(found["verdict"])
    assert len(found["pairs"]) == 2 and all(seconds > 0 for pair in found["pairs"] for seconds in pair)
    assert found["weights_apart"] == 0
    calls = {name: calls for name, (calls, _) in found["inside"].items()}
    # In each of the two fits with checks: after step 3 and after the epoch; each step of five; at its beginning.
    assert calls["check_weights"] == calls["weights_now"] == 2 * 2
    assert calls["begin_step"] == 5 * 2
    assert calls["agree"] == calls["set_apart"] == calls["sum_states"] == 2
    # That all are there, with which weights; their data, plans and seeds; with which weights they end.
    assert calls["everybodys"] == calls["meet"] == 5 * 2


def test_the_verdict_wants_the_median_and_the_upper_end() -> None:
    assert verdict(1.009, 1.0, 1.019) == "holds"
    assert verdict(1.009, 1.0, 1.021) == "not resolved"
    assert verdict(1.02, 1.011, 1.03) == "fails"
