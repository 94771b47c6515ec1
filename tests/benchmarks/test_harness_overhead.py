"""The overhead benchmark: both loops do the same work, and the verdict is what its definition says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.harness_overhead import interval, verdict
from tests.harness.running import prepared, run_python


@pytest.mark.train
@pytest.mark.parametrize("words", [["--step", "compiled", "--feed", "resident"], ["--precision", "mixed_bfloat16"]])
def test_both_loops_train_to_the_same_weights(tmp_path: Path, words: list[str]) -> None:
    pytest.importorskip("tensorflow")
    pytest.importorskip("horovod.tensorflow")
    out = tmp_path / "out.json"
    small = ["--ranks", "1", "--model", "mlp", "--per-rank-batch", "8", "--steps", "3", "--pairs", "2"]
    argv = ["-m", "benchmarks.harness_overhead", *small, "--json", str(out), *words]
    done = run_python(*argv, prefix=prepared())
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
