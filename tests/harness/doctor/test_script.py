"""`ringscope doctor -- COMMAND` on real ranks of each kind of script (scripts/).

They alone catch a script that hangs, fails or trains apart on real ranks and is told otherwise by `doctor -- COMMAND`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from harness.doctor.script import Trial, observe
from profiles.ground.errors import RingscopeError
from tests.harness.running import ROOT, carrying, environment

SCRIPTS = Path(__file__).with_name("scripts")
RING = ROOT / "tests" / "ring" / "scripts"
pytestmark = pytest.mark.train


def doctor(folder: Path, *words: object) -> tuple[int, dict[str, dict[str, Any]]]:
    """(exit code, check by name) of `ringscope doctor WORDS` called in `folder`, from which no process is left."""
    mark = f"doctor-{os.getpid()}-{time.monotonic_ns()}"
    done = subprocess.run(
        [sys.executable, "-m", "harness", "doctor", "--json", "-", *map(str, words)],
        cwd=folder,
        env=environment() | {"RINGSCOPE_TEST": mark},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.stdout.startswith("{"), done.stderr
    assert not carrying(mark)
    return done.returncode, {check["name"]: check for check in json.loads(done.stdout)["checks"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working directory with the scripts in it."""
    for script in SCRIPTS.glob("*.py"):
        shutil.copy(script, tmp_path)
    return tmp_path


@pytest.mark.ci
def test_plain_keras_on_two_ranks_is_said_to_train_alone_and_which_lines_to_add(folder: Path) -> None:
    pytest.importorskip("horovod.tensorflow")
    code, checks = doctor(folder, "--steps", 4, "--", "python", "plain.py")
    assert code == 1
    assert (checks["script"]["status"], checks["script"]["data"]["steps"]) == ("ok", [4, 4])
    weights = checks["weights"]
    assert weights["status"] == "failure" and "each rank trains alone: " in weights["text"]
    assert "kernel differs between rank 0 and rank 1" in weights["text"]
    assert "ring.init()" in weights["remedy"] and "ring.distribute(model)" in weights["remedy"]
    assert weights["data"]["exchanged_values"] == 0 and weights["data"]["difference"] > 1e-3
    # Each rank shuffles all the data for itself.
    assert checks["data"]["status"] == "warning" and checks["data"]["data"]["samples"] == [64, 64]
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in SCRIPTS.glob("*.py"))


@pytest.mark.exhaustive
@pytest.mark.parametrize("words", [[], ["sharded"]])
def test_ranks_with_the_two_lines_train_together_on_samples_of_their_own(folder: Path, words: list[str]) -> None:
    pytest.importorskip("horovod.tensorflow")
    # Long enough for the check of step 3, after which a script of 4 epochs ends by itself.
    code, checks = doctor(folder, "--steps", 50, "--in-place", "--", "python", "two_lines.py", 4, *words)
    assert code == 0, checks
    assert checks["script"]["text"].endswith("40 steps each, then it ended")
    assert checks["weights"]["status"] == "ok" and checks["weights"]["data"]["compared_after"] == list(range(1, 41))
    assert checks["weights"]["data"]["exchanged_values"] >= checks["weights"]["data"]["values"] == 20 * 32 + 32 + 99
    # All of 4 epochs: no sample of one rank was the other's.
    assert checks["data"]["data"] == {"samples": [640, 640], "in_common": 0}
    assert {path.name for path in folder.glob("written*")} == {"written-by-rank0", "written-by-rank1"}


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("command", "launcher", "status", "says", "remedy"),
    [
        (
            ["plain.py", 1],
            "mpirun",
            "failure",
            "equal on all ranks only because each rank trains alone",
            "ring.distribute",
        ),
        (["by_hand.py", "together"], "mpirun", "ok", "bit-equal on all ranks", None),
        (
            ["by_hand.py", "forgotten"],
            "horovodrun",
            "failure",
            "differs between rank 0 and rank 1 after step 1",
            "hvd.",
        ),
        ([RING / "stock_horovod.py", ".", 16], "horovodrun", "failure", "differs", "Horovod's own Keras optimizer"),
        ([RING / "own_loop.py", ".", 16], "horovodrun", "ok", "bit-equal on all ranks", None),
        ([RING / "custom_train_step.py", ".", 16, "compiled"], "horovodrun", "ok", "bit-equal on all ranks", None),
    ],
)
def test_any_way_to_train_is_judged_by_what_became_of_the_weights(
    folder: Path, command: list[object], launcher: str, status: str, says: str, remedy: str | None
) -> None:
    pytest.importorskip("horovod.tensorflow")
    code, checks = doctor(folder, "--launcher", launcher, "--steps", 6, "--", "python", *command)
    assert (code, checks["weights"]["status"]) == (int(status == "failure"), status), checks
    assert says in checks["weights"]["text"]
    assert (remedy or "") in (checks["weights"]["remedy"] or "")


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["ends"], "no optimizer of Keras or PyTorch took a step"),
        (["fails"], "rank 1 failed after 0 steps (exit code 1): FileNotFoundError: no-such-file.npy (at odd.py:9)"),
        (["hangs"], "not enough steps within 90 s: rank 0 took 0 at odd.py:11"),
    ],
)
def test_a_script_that_ends_fails_or_hangs_is_said_to(folder: Path, command: list[str], says: str) -> None:
    limit = 90 if command == ["hangs"] else 600  # a slow machine starts both ranks in half a minute
    code, checks = doctor(folder, "--time-limit", limit, "--", "python", "odd.py", *command)
    assert code == 1 and list(checks) == ["script"]
    assert checks["script"]["status"] == "failure" and says in checks["script"]["text"]
    assert checks["script"]["remedy"]


@pytest.mark.exhaustive
def test_a_rank_that_waits_for_one_that_has_ended_is_named_with_its_line(folder: Path) -> None:
    code, checks = doctor(folder, "--", "python", "odd.py", "one_hangs")
    assert code == 1
    text = checks["script"]["text"]
    assert re.search(r"rank 1 took 0 steps .*odd\.py:11.* rank 0 took 0", text), text


@pytest.mark.ci
def test_a_launcher_that_is_not_installed_is_refused_before_the_script_runs() -> None:
    trial = Trial([sys.executable, "-c", "1"], 2, "no-such-launcher")
    with pytest.raises(RingscopeError, match="no-such-launcher is not installed: .* torchrun"):
        observe(trial, lambda _: None, dict(os.environ))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-np", "2", "--", "mpirun", "-np", "2", "python", "x.py"], "is decided by mpirun"),
        (["--", "no-such-program"], "no-such-program: no such program"),
        (["--steps", "5"], "is for a command"),
        (["--quick", "--", "python", "x.py"], "not at a command"),
    ],
)
def test_what_cannot_be_tried_is_refused_in_one_line(folder: Path, words: list[str], says: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "harness", "doctor", *words],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 2
    assert says in done.stderr and len(done.stderr.strip().splitlines()) <= 2


@pytest.mark.exhaustive
def test_replicas_of_a_strategy_are_compared_and_ranks_that_have_them_train_alone(folder: Path) -> None:
    """This Keras shares their gradients: equal replicas, in ranks that share nothing."""
    equal = ("ok", {"replicas": 2})
    code, checks = doctor(folder, "--steps", 4, "-np", 2, "--", "python", "mirrored.py")
    assert code == 1 and checks["weights"]["status"] == "failure"
    assert (checks["replicas"]["status"], checks["replicas"]["data"]) == equal
    code, checks = doctor(folder, "--steps", 4, "--", "python", "mirrored.py")  # as one process
    assert code == 0 and set(checks) == {"script", "replicas"}
    assert (checks["replicas"]["status"], checks["replicas"]["data"]) == equal


@pytest.mark.exhaustive
@pytest.mark.parametrize(("how", "status"), [("apart", "failure"), ("outside", "warning")])
def test_replicas_that_share_nothing_or_do_nothing_are_told(folder: Path, how: str, status: str) -> None:
    code, checks = doctor(folder, "--steps", 4, "-np", 1, "--", "python", "mirrored.py", how)
    assert code == int(status == "failure"), checks
    assert {name: check["status"] for name, check in checks.items()} == {"script": "ok", "replicas": status}
    assert ("differs between replica 0 and replica 1" in checks["replicas"]["text"]) == (how == "apart")
