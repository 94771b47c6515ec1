"""When `record` tells what it recorded, and how it ends: as soon as the recordings are whole, once.

nsys is not here and a GPU neither: a script stands for it, which runs the command, leaves a real recording of a GPU in
the middle of it, as nsys does when its range ends, and exports that. TensorFlow's profiler is the real one.
"""

from __future__ import annotations

import json
import lzma
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import psutil
import pytest

from tests.harness.running import PATIENCE_S, ROOT
from tests.recordings import DATA

NSYS = r"""#!/bin/sh
if [ "$1" = export ]; then
  while [ "$1" != --output ]; do shift; done; to=$2
  while [ $# -gt 1 ]; do shift; done
  [ "$(cat "$1")" != half ] && exec cp "$1" "$to"
  echo "the report is not whole" >&2; exit 1
fi
while [ "$1" != -o ]; do shift; done; stem=${2%\%q*}$RINGSCOPE_RANK; shift 2
export REPORT="$stem.nsys-rep"
(sleep 0.5; cp recording.sqlite "$stem.part"; mv "$stem.part" "$REPORT") &
exec "$@"
"""
# A report that stands there is whole: the script that stands for nsys puts it there in one go.
RECORD = "from harness.launch import profilers; profilers.SETTLED_S = {}; from harness.verbs.cli import main; main()"
TOLD, GOES_ON = "who had the GPU", "the training continues to its end"
# It trains until the test has seen the report.
TRAIN = "until [ -e told ]; do sleep 0.05; done; echo trained to its end; exit {code}"
TRAIN_TILL_RECORDED = "until [ -e $REPORT ]; do sleep 0.05; done; echo trained to its end"
KERAS = """
import time
from pathlib import Path
import numpy as np
from ringscope import ring; ring.init()
import keras

class Until(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.02)
        self.model.stop_training = Path("told").exists()

model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
model.compile("sgd", "mse")
ring.distribute(model)
x = np.zeros((80000, 4), "float32")
model.fit(x, x[:, :2], batch_size=8, verbose=0, callbacks=[Until()])
print("trained to its end", flush=True)
"""


@contextmanager
def recording(folder: Path, *words: str, settled_s: float = 1.0) -> Iterator[subprocess.Popen[str]]:
    """`ringscope record` in a folder; nothing that it started outlives this. settled_s: seconds without a change after
    which a report counts as whole."""
    path = f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path, "COLUMNS": "80"}
    argv = [sys.executable, "-c", RECORD.format(settled_s), "record", "--out", "out", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(argv, cwd=folder, env=env, text=True, **pipes, start_new_session=True) as process:
        try:
            yield process
        finally:
            below = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
            for one in [process, *below]:
                one.kill()


def until(output: IO[str] | None, says: str) -> list[str]:
    """The lines up to the one that says so, or to the end."""
    assert output is not None
    lines = []
    for line in output:
        lines.append(line.rstrip("\n"))
        if says in line:
            break
    return lines


@pytest.fixture
def nsys(tmp_path: Path) -> Path:
    """A folder with the script that stands for nsys."""
    recorded = DATA / "dense41m-2gpu-pinned.rank0.sqlite.xz"
    (tmp_path / "recording.sqlite").write_bytes(lzma.decompress(recorded.read_bytes()))
    (tmp_path / "nsys").write_text(NSYS)
    (tmp_path / "nsys").chmod(0o755)
    return tmp_path


BY_NSYS = ("--profiler", "nsys", "--delay", "0", "--duration", "1")
ONE = ("--launcher", "single")
GROWS_KIB, TIMES = 4 << 10, 20


@pytest.mark.parametrize(
    ("launched", "ranks", "code"),
    [
        (ONE, 1, 0),
        pytest.param(ONE, 1, 3, marks=pytest.mark.exhaustive),
        pytest.param(("-np", "2"), 2, 0, marks=pytest.mark.ci),
    ],
)
def test_the_report_is_printed_once_while_the_training_goes_on(
    nsys: Path, launched: tuple[str, ...], ranks: int, code: int
) -> None:
    with recording(nsys, *BY_NSYS, *launched, "--", "sh", "-c", TRAIN.format(code=code)) as process:
        before = until(process.stdout, GOES_ON)
        (nsys / "told").touch()
        after = until(process.stdout, "never said")
        assert process.wait() == (1 if code else 0)
    files = " to ".join([f"{nsys}/out/command/0/rank0.sqlite", "rank1.sqlite"][:ranks])
    assert f"recorded by nsys: {files}" in before, before
    assert sum(TOLD in line for line in before) == 1 and not any(TOLD in line for line in after)
    assert len(before) <= 60
    assert not any("trained to its end" in line for line in before)
    assert sum("trained to its end" in line for line in after) == ranks
    assert any("the command ended with exit code" in line for line in after) == bool(code)


def test_then_stop_ends_the_training_when_it_is_recorded(nsys: Path) -> None:
    with recording(nsys, *BY_NSYS, *ONE, "--then", "stop", "--", "sh", "-c", TRAIN.format(code=0)) as process:
        said = until(process.stdout, "never said")
        assert process.wait() == 0
    assert sum(TOLD in line for line in said) == 1 and not any("trained to its end" in line for line in said)


@pytest.mark.ci
def test_ctrl_c_after_the_report_ends_the_training_and_says_nothing_again(nsys: Path) -> None:
    with recording(nsys, *BY_NSYS, *ONE, "--", "sh", "-c", TRAIN.format(code=0)) as process:
        until(process.stdout, GOES_ON)
        below = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        after = until(process.stdout, "never said")
        assert process.wait() == 130
        assert not psutil.wait_procs(below, timeout=PATIENCE_S)[1]
    assert not any(TOLD in line or "recorded by" in line for line in after)


def test_what_ends_before_its_recording_is_whole_is_told_at_its_end(nsys: Path) -> None:
    with recording(nsys, *BY_NSYS, *ONE, "--", "sh", "-c", TRAIN_TILL_RECORDED, settled_s=600.0) as process:
        said = until(process.stdout, "never said")
        assert process.wait() == 0
    order = [line for line in said if TOLD in line or "trained to its end" in line]
    assert len(order) == 2 and TOLD in order[1] and not any(GOES_ON in line for line in said)


@pytest.mark.ci
def test_an_export_that_fails_beside_the_training_is_tried_again_at_its_end(nsys: Path) -> None:
    (nsys / "recording.sqlite").rename(nsys / "whole.sqlite")
    (nsys / "recording.sqlite").write_text("half")
    with recording(nsys, *BY_NSYS, *ONE, "--", "sh", "-c", TRAIN.format(code=0)) as process:
        before = until(process.stdout, "ringscope tries again at its end")
        (nsys / "whole.sqlite").replace(nsys / "out/command/0/rank0.nsys-rep")
        (nsys / "told").touch()
        after = until(process.stdout, "never said")
        assert process.wait() == 0
    assert not any(TOLD in line for line in before) and sum(TOLD in line for line in after) == 1


@pytest.mark.ci
@pytest.mark.train
@pytest.mark.beside
@pytest.mark.parametrize("then", ["train", "stop"])
def test_two_ranks_under_tensorflows_profiler_are_told_of_while_they_train(tmp_path: Path, then: str) -> None:
    (tmp_path / "my_train.py").write_text(KERAS)
    words = ["--profiler", "tensorflow", "-np", "2", "--steps", "5", "--then", then]
    with recording(tmp_path, *words, "--", sys.executable, "my_train.py") as process:
        before = until(process.stdout, GOES_ON)
        (tmp_path / "told").touch()
        after = until(process.stdout, "never said")
        assert process.wait() == 0, before + after
    files = f"{tmp_path}/out/command/0/rank0.xplane.pb to rank1.xplane.pb"
    assert f"recorded by tensorflow: {files}" in before, before
    assert not any("trained to its end" in line for line in before)
    assert sum("trained to its end" in line for line in after) == (2 if then == "train" else 0)


@pytest.mark.exhaustive
def test_a_process_that_records_again_and_again_keeps_nothing(nsys: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{nsys}:{os.environ['PATH']}"}
    words = [sys.executable, "-m", "tests.harness.jobs.record_again", str(TIMES)]
    done = subprocess.run(words, cwd=nsys, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(TOLD) == TIMES
    resident, *counted = zip(*json.loads((nsys / "held.json").read_text())[TIMES // 10 + 1 :], strict=True)
    half = len(resident) // 2  # pages that threads hold come and go, up to 10 MiB of them
    assert min(resident[half:]) - min(resident[:half]) < GROWS_KIB, resident
    assert all(set(each) == {each[0]} for each in counted), counted
