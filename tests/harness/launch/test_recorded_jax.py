"""A training on JAX is recorded by JAX's own profiler if it does not load TensorFlow.

RINGSCOPE_JAX_PYTHON: the Python of an environment that has JAX and Keras.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from profiles.model import marks
from profiles.readers import read
from tests.harness.running import environment

PYTHON = os.environ.get("RINGSCOPE_JAX_PYTHON")
SCRIPT = """
import os
os.environ["KERAS_BACKEND"] = "jax"
import keras, numpy as np
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
model.compile("sgd", "mse")
model.fit(np.zeros((800, 8)), np.zeros((800, 4)), batch_size=8, verbose=0)
"""


@pytest.mark.skipif(PYTHON is None, reason="RINGSCOPE_JAX_PYTHON names no Python with JAX")
def test_each_step_on_jax_is_marked_and_pythons_calls_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    words = ["record", "--profiler", "framework", "--out", "out", "--steps", "5", "--", str(PYTHON), "train.py"]
    argv = [sys.executable, "-m", "harness", *words]
    done = subprocess.run(argv, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    names = read(tmp_path / "out" / "command" / "0" / "rank0.xplane.pb").marks["name"].astype(str)
    steps = [int(name.split()[1]) for name in names if re.fullmatch(marks.STEP, name)]
    assert len(steps) == 5 and steps == list(range(steps[0], steps[0] + 5))
    assert not names.str.startswith("$").any()  # as JAX names Python's calls


LATE = """
import time
import jax
from jax._src.xla_bridge import backends_are_initialized
time.sleep(4)  # as a rank waits for the others
print("devices were opened", backends_are_initialized(), flush=True)
step = jax.jit(lambda x: x + 1)
x, ends = jax.numpy.zeros(8), time.monotonic() + 20
while time.monotonic() < ends:
    x = step(x)
    time.sleep(0.01)
"""


@pytest.mark.skipif(PYTHON is None, reason="RINGSCOPE_JAX_PYTHON names no Python with JAX")
def test_the_recording_opens_no_device_before_the_script_does(tmp_path: Path) -> None:
    """jax.distributed.initialize must come before, or each rank would train alone."""
    (tmp_path / "train.py").write_text(LATE)
    words = ["record", "--profiler", "framework", "--out", "out", "--delay", "1", "--duration", "1"]
    argv = [sys.executable, "-m", "harness", *words, "--", str(PYTHON), "train.py"]
    done = subprocess.run(argv, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "devices were opened False" in done.stdout
    assert (tmp_path / "out" / "command" / "0" / "rank0.xplane.pb").is_file()


RANKS = """
import multiprocessing, time

def train(rank):
    import jax
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize("127.0.0.1:29541", num_processes=2, process_id=rank)
    step = jax.jit(lambda x: x + 1)
    x, ends = jax.numpy.zeros(8), time.monotonic() + 15
    while time.monotonic() < ends:
        x = step(x)
        time.sleep(0.01)
    print("rank", jax.process_index(), "of", jax.process_count(), flush=True)

if __name__ == "__main__":
    start = multiprocessing.get_context("spawn")
    ranks = [start.Process(target=train, args=(rank,)) for rank in range(2)]
    [rank.start() for rank in ranks]
    [rank.join() for rank in ranks]
"""


@pytest.mark.skipif(PYTHON is None, reason="RINGSCOPE_JAX_PYTHON names no Python with JAX")
def test_each_process_that_joins_jax_distributed_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(RANKS)
    words = ["record", "--profiler", "framework", "--out", "out", "--delay", "2", "--duration", "1"]
    argv = [sys.executable, "-m", "harness", *words, "--", str(PYTHON), "train.py"]
    env = environment() | {"JAX_PLATFORMS": "cpu"}
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(f"rank {rank} of 2" in done.stdout for rank in range(2))
    for rank in range(2):
        assert read(tmp_path / "out" / "command" / "0" / f"rank{rank}.xplane.pb").recording.rank == rank
