"""Replicas and the one synchronous model, as real processes: they begin together, and both answer as the model does."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from harness.jobs.infer_together import Way, row
from tests.harness.running import PATIENCE_S, environment, prepared, wait_until

pytestmark = pytest.mark.train
SECONDS = 2.0  # of answers: a busy machine lets no process wait so long


@pytest.mark.ci
def test_processes_wait_for_the_sign_and_answer_within_the_window(tmp_path: Path) -> None:
    plan = {"model": "dense2", "batch": 4, "devices": 1, "kind": "CPU", "threads": 1, "seconds": SECONDS}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    command = [*prepared(), sys.executable, "-m", "harness.inference.together", str(tmp_path / "plan.json")]
    running = [
        subprocess.Popen([*command, str(number), str(tmp_path)], env=environment(), cwd=Path(__file__).parents[3])
        for number in range(2)
    ]
    try:
        wait_until(lambda: len(list(tmp_path.glob("ready*"))) == 2, PATIENCE_S, lambda: "not ready")
        assert not list(tmp_path.glob("calls*"))
        begin_ns = time.monotonic_ns() + 500_000_000  # after this time, whenever the sign is seen
        (tmp_path / "beside").write_text(str(begin_ns))
        (tmp_path / "beside").rename(tmp_path / "go")
        assert [process.wait(PATIENCE_S) for process in running] == [0, 0]
    finally:
        for process in running:
            process.kill()
    calls = [json.loads((tmp_path / f"calls{number}.json").read_text()) for number in range(2)]
    for mine in calls:
        assert mine and all(begin_ns <= begin < end for begin, end in mine)
        assert all(before[1] <= after[0] for before, after in zip(mine, mine[1:], strict=False))
        assert mine[-1][0] < begin_ns + SECONDS * 1e9


ONE_MODEL = """
from unittest import mock
import numpy as np
import tensorflow as tf
from harness.inference import models, together
from harness.training.strategies import devices
# A host without GPUs cannot give them. No rank is here, and none is asked.
gpus = ["first", "second", "third", "fourth"]
with mock.patch.object(tf.config, "list_physical_devices", lambda kind: gpus):
    with mock.patch.object(tf.config, "set_visible_devices") as seen:
        assert devices.take("GPU", 2) == ["/GPU:0", "/GPU:1"]
        seen.assert_called_once_with(gpus[:2], "GPU")
        devices.take("/GPU:0", 2, local_rank=1)
        seen.assert_called_with(gpus[2:], "GPU")
plan = {"model": "mlp", "batch": 5, "devices": 2, "kind": "CPU", "threads": 1}
joined = together.answering(plan)()
x = models.samples((256,), "float32", 10)
alone = np.asarray(models.load("mlp", "/CPU:0").answer(x))
assert joined.shape == alone.shape == (10, 10)
np.testing.assert_allclose(joined, alone, atol=1e-5)
"""


def test_the_synchronous_model_answers_the_whole_batch_as_one_device_does(tmp_path: Path) -> None:
    (tmp_path / "one_model.py").write_text(ONE_MODEL)
    command = [*prepared(), sys.executable, str(tmp_path / "one_model.py")]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr


def test_the_row_counts_what_ended_in_the_window() -> None:
    """By hand: a window of 1 s from 100 on; of five calls of 2 x 8 samples on two processes, one ends too late."""
    ms = 1_000_000
    calls = [(100, 300), (300, 900), (900, 1200), (100, 600), (600, 1000)]
    found = row("m", Way("replicas", 2, 1, 8), [(a * ms, b * ms) for a, b in calls], 100 * ms, 1.0)
    assert found.samples_per_s == 4 * 8
    assert (found.p50_ns, found.p99_ns) == (400 * ms, 600 * ms)
    cut = row("m", Way("synchronous", 1, 2, 8), [(100 * ms, 600 * ms), (600 * ms, 1100 * ms)], 100 * ms, 1.0)
    assert cut.samples_per_s == 2 * 8 * 2
