"""`ringscope doctor -- torchrun ...` on ranks of PyTorch and of Keras on it; neither install brings PyTorch.

RINGSCOPE_TORCH_PYTHON: the Python of an environment that has it.

They alone catch a doctor that no longer sees the steps, wrappers or samples of a newer PyTorch or Keras.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .test_script import doctor, folder  # noqa: F401

PYTHON = os.environ.get("RINGSCOPE_TORCH_PYTHON") or (sys.executable if importlib.util.find_spec("torch") else None)
pytestmark = [
    *(pytest.mark.train, pytest.mark.exhaustive),
    pytest.mark.skipif(
        PYTHON is None, reason="PyTorch is not installed; RINGSCOPE_TORCH_PYTHON names a Python with it"
    ),
]
WELL = {"script": "ok", "weights": "ok", "data": "ok"}
SAME = {"data": "warning"}
OWN = {"metrics": "n/a"}  # the loop exchanges no loss


@pytest.mark.parametrize(
    ("words", "unlike", "remedy"),
    [
        (["ddp.py", "right"], {**OWN, "buffers": "ok"}, ""),
        (["ddp.py", "reduces"], {"buffers": "ok"}, ""),
        (["ddp.py", "alone"], {**OWN, "buffers": "ok", "weights": "failure"}, "wrap the model"),
        (["ddp.py", "inside"], {**OWN, "buffers": "ok", "weights": "failure"}, "call the wrapper"),
        (["ddp.py", "same_seed"], {**OWN, "weights": "failure", **SAME}, "wrap the model"),
        (["ddp.py", "no_sampler"], OWN | SAME, ""),
        (["ddp.py", "zero"], {**OWN, "buffers": "ok"}, ""),
        (["ddp.py", "fsdp"], {**OWN, "weights": "n/a"}, ""),
        (["ddp.py", "flat_fsdp"], {**OWN, "weights": "n/a"}, ""),
        (["ddp.py", "views_fsdp"], {**OWN, "weights": "n/a"}, ""),
        (["ddp.py", "no_sync"], {**OWN, "buffers": "ok", "weights": "failure"}, "leave no_sync"),
        (["keras_torch.py", "right"], {"metrics": "warning"}, ""),
        (["keras_torch.py", "inside"], {"metrics": "warning", "weights": "failure"}, "self(x)"),
    ],
)
def test_ranks_of_torchrun_are_judged_by_what_became_of_their_weights(
    folder: Path,  # noqa: F811
    words: list[str],
    unlike: dict[str, str],
    remedy: str,
) -> None:
    assert PYTHON is not None
    imported = "import os; os.environ['KERAS_BACKEND'] = 'torch'; import keras"  # by default it imports TensorFlow
    if words[0] == "keras_torch.py" and subprocess.run([PYTHON, "-c", imported], capture_output=True).returncode:
        pytest.skip("Keras is not installed beside PyTorch")
    launcher = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", 2]
    code, checks = doctor(folder, "--steps", 4, "--", *launcher, *words)
    expected = WELL | unlike
    assert {name: check["status"] for name, check in checks.items()} == expected
    assert code == int("failure" in expected.values())
    assert remedy in (checks["weights"]["remedy"] or "")
    assert checks["script"]["data"]["steps"] == [4, 4]


def test_an_update_of_deepspeeds_engine_is_one_step_however_many_groups_of_weights_it_has(
    folder: Path,  # noqa: F811
) -> None:
    assert PYTHON is not None
    if subprocess.run([PYTHON, "-c", "import deepspeed"], capture_output=True).returncode:
        pytest.skip("DeepSpeed is not installed beside PyTorch")
    launcher = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", 2]
    code, checks = doctor(folder, "--steps", 4, "--", *launcher, "deepspeed_zero.py")
    assert code == 0 and checks["script"]["data"]["steps"] == [4, 4], checks
    assert (checks["weights"]["status"], checks["data"]["status"]) == ("ok", "ok"), checks


@pytest.mark.parametrize(
    ("ranks", "how", "what", "unlike", "remedy"),
    [
        (1, "spawn", "right", {"buffers": "ok"}, ""),
        (1, "fork", "right", {"buffers": "ok"}, ""),
        (1, "spawn", "inside", {"buffers": "ok", "weights": "failure"}, "call the wrapper"),
        (2, "spawn", "right", {"buffers": "ok"}, ""),  # ringscope starts the script twice, and then once
    ],
)
def test_ranks_that_the_script_starts_itself_are_judged_as_others(
    folder: Path,  # noqa: F811
    ranks: int,
    how: str,
    what: str,
    unlike: dict[str, str],
    remedy: str,
) -> None:
    code, checks = doctor(folder, "-np", ranks, "--steps", 4, "--", PYTHON, "spawned.py", how, what)
    assert {name: check["status"] for name, check in checks.items()} == WELL | OWN | unlike
    assert remedy in (checks["weights"]["remedy"] or "") and code == int("failure" in unlike.values())
    assert checks["script"]["data"]["steps"] == [4, 4] and "started by the script" in checks["script"]["text"]


def test_a_rank_that_the_script_starts_itself_fails_by_its_own_error(folder: Path) -> None:  # noqa: F811
    code, checks = doctor(folder, "-np", 1, "--", PYTHON, "spawned.py", "spawn", "fails")
    assert (code, checks.keys()) == (1, {"script"})
    assert "ValueError: this rank fails" in checks["script"]["text"], checks["script"]
