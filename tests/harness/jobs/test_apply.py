"""`ringscope record --apply` on a script of one rank: every turn a real start of it, of real Keras or of a stand-in.

Those of real Keras are exhaustive.

They alone catch a change of `fit` that pays nothing, or is made where it may not be.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.harness.running import ROOT, environment

# A Keras that trains nothing. It moves the process's clock by 4 ms a step, with one thread by 2 ms, so that no load
# changes what a step takes. By executions of 8 steps it learns something else.
STAND_IN = """
import os, time
PACE_NS, CLOCK_NS = 2_000_000 if os.environ.get("OMP_NUM_THREADS") == "1" else 4_000_000, [0]
time.perf_counter = lambda: CLOCK_NS[0] / 1e9
class utils:
    PyDataset = type("PyDataset", (), {})
    set_random_seed = print
class Callback:
    def on_batch_begin(self, batch, logs=None): pass
    on_batch_end = on_train_batch_begin = on_train_batch_end = on_epoch_begin = on_epoch_end = on_batch_begin
    def on_train_begin(self, logs=None): pass
    on_train_end = on_test_begin = on_train_begin
class callbacks:
    Callback = Callback
    class CallbackList(Callback):
        def __init__(self, model, steps): self.model, self.params = model, {"steps": steps}
class Loss:
    value = 1.0
    def result(self): return self.value
class Model:
    steps_per_execution, run_eagerly = 1, False
    def __init__(self): self.metrics = [Loss()]
    def fit(self, x=None, callbacks=None, epochs=1):
        told, each = globals()["callbacks"].CallbackList(self, len(x)), self.steps_per_execution
        told.on_train_begin()
        for epoch in range(epochs):
            told.on_epoch_begin(epoch)
            for step in range(0, len(x), each):
                told.on_train_batch_begin(step)
                CLOCK_NS[0] += PACE_NS * each
                self.metrics[0].value *= 0.9**each if each == 1 else 0.5
                told.on_train_batch_end(step + each - 1)
            told.on_epoch_end(epoch)
        told.on_train_end()
"""


ARGV = [sys.executable, "-m", "harness", "record", "--apply", "--launcher", "single", "--out", "out"]


def applied(folder: Path, **environ: str) -> tuple[dict[str, Any], str]:
    """What is tried and kept of my_train.py there, and what is printed."""
    done = subprocess.run(
        [*ARGV, "--", "python", "my_train.py"],
        cwd=folder,
        env=environment() | {"PYTHONPATH": str(ROOT)} | environ,
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((folder / "out" / "apply" / "knobs.json").read_text()), done.stdout


@pytest.mark.ci
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="on one core there are no fewer threads")
def test_what_is_faster_again_is_kept_and_what_learns_something_else_is_not(tmp_path: Path) -> None:
    (tmp_path / "keras.py").write_text(STAND_IN)
    (tmp_path / "my_train.py").write_text("import keras\nkeras.Model().fit([0] * 64, epochs=1000)\n")
    told, said = applied(tmp_path)
    tried = {knob["name"]: knob for knob in told["knobs"]}
    threads, joined = tried["1 thread each"], tried["steps_per_execution"]
    assert threads["kept"] and threads["gain"] == threads["low"] == threads["high"] == 1, said
    assert not joined["kept"] and joined["why"].startswith("the loss after 8 steps is 0.5, without the setting 0.43"), (
        said
    )
    assert told["step_ns"] == 4_000_000 and told["turns_ns"] == [4_000_000] * 4
    assert threads["turns_ns"] == told["again_ns"] == [2_000_000] * 2
    assert "export OMP_NUM_THREADS=1" in told["paste"]
    assert "    export OMP_NUM_THREADS=1\n" in said
    assert told["refused"] == {
        "prefetch": "the data is not a tf.data.Dataset",
        "workers": "the data is not a PyDataset",
    }


@pytest.mark.ci
def test_who_stops_it_is_not_told_that_no_setting_makes_the_script_faster(tmp_path: Path) -> None:
    (tmp_path / "keras.py").write_text(STAND_IN)
    (tmp_path / "my_train.py").write_text("import keras\nkeras.Model().fit([0] * 64, epochs=1000)\n")
    with subprocess.Popen(
        [*ARGV, "--", "python", "my_train.py"],
        cwd=tmp_path,
        env=environment() | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert any(line.startswith("2. ") for line in process.stdout)
        process.send_signal(signal.SIGINT)
        said = process.stdout.read()
    assert process.returncode == 130, said
    assert "interrupted before all turns: a setting may still be faster" in said and "nothing to change" not in said


# Its steps are timed in CPU seconds, of which a busy machine takes none.
SCRIPT = """
import time; time.perf_counter = time.process_time
import keras, numpy as np, pathlib, tensorflow as tf
pathlib.Path("written").touch()
x = np.random.default_rng(0).normal(size=(512, 4)).astype("float32")
data = tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True))).batch(4)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(data, epochs=1000, verbose=0{more})
"""


@pytest.mark.train
@pytest.mark.exhaustive
@pytest.mark.parametrize("joined", [True, False])
def test_a_small_model_gains_by_steps_per_execution_unless_a_callback_sees_batches(
    joined: bool, tmp_path: Path
) -> None:
    pytest.importorskip("tensorflow")
    more = "" if joined else ", callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: None)]"
    (tmp_path / "my_train.py").write_text(SCRIPT.format(more=more))
    told, said = applied(tmp_path, TF_NUM_INTRAOP_THREADS="1")  # what the user has set is not tried
    tried = {knob["name"]: knob for knob in told["knobs"]}
    assert not (tmp_path / "written").exists()  # each turn has a copy of the folder
    assert told["turns_ns"] and all(told["turns_ns"]), said
    if not joined:
        assert set(tried) == {"prefetch"}
        assert told["refused"]["steps_per_execution"].startswith("LambdaCallback.on_train_batch_end ")
        return
    assert set(tried) == {"prefetch", "steps_per_execution"} and tried["steps_per_execution"]["kept"], said
    assert tried["steps_per_execution"]["gain"] > 0.2
    assert "model.compile(..., steps_per_execution=8)" in told["paste"]
    assert "    model.compile(..., steps_per_execution=8)\n" in said
