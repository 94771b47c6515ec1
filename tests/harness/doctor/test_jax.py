"""`ringscope doctor` on Keras on JAX, in one process with two devices and in two processes.

RINGSCOPE_JAX_PYTHON: the Python of an environment that has Keras and JAX, which no install of ours brings.

They alone catch a doctor that no longer sees the steps, layouts or samples of a newer JAX or Keras.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .test_script import doctor, folder  # noqa: F401
from .test_together import TORCHRUN

PYTHON = os.environ.get("RINGSCOPE_JAX_PYTHON")
pytestmark = [
    *(pytest.mark.train, pytest.mark.exhaustive),
    pytest.mark.skipif(PYTHON is None, reason="JAX is not installed; RINGSCOPE_JAX_PYTHON names a Python with it"),
]
PORT = "7993"


@pytest.mark.parametrize(
    ("words", "how", "expected"),
    [
        ([], "right", {"replicas": "ok", "devices": "ok"}),
        ([], "model", {"replicas": "ok", "devices": "ok"}),
        ([], "no_key", {"replicas": "ok", "devices": "warning"}),
        (["-np", 1], "alone", {"devices": "warning"}),
    ],
)
def test_devices_of_one_process_are_judged_by_what_each_of_them_does(
    folder: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    words: list[object],
    how: str,
    expected: dict[str, str],
) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
    code, checks = doctor(folder, "--steps", 4, *words, "--", PYTHON, "keras_jax.py", how)
    assert code == 0, checks
    assert {name: check["status"] for name, check in checks.items()} == {"script": "ok"} | expected
    assert checks["script"]["data"]["steps"] == [4]  # also where two were started first
    seen = checks["devices"]["data"]
    assert (seen["here"], seen["used"]) == (2, 1 if how == "alone" else 2)
    assert seen["parts"] == (2 if how == "right" else 1)


WELL = {"script": "ok", "weights": "ok", "data": "ok", "metrics": "ok"}


@pytest.mark.parametrize(
    ("how", "unlike", "remedy"),
    [
        ("right", {}, ""),
        ("same_samples", {"data": "warning"}, ""),
        ("model", {}, ""),
        ("not_laid_out", {"weights": "failure", "metrics": "warning"}, "before the model is made"),
        ("alone", {"weights": "failure", "data": "warning"}, "keras.distribution.initialize"),
        ("other_seeds", {"weights": "failure", "metrics": "warning"}, "keras.distribution.initialize"),
    ],
)
def test_processes_are_judged_by_what_became_of_their_weights(
    folder: Path,  # noqa: F811
    how: str,
    unlike: dict[str, str],
    remedy: str,
) -> None:
    (folder / "torchrun").write_text(TORCHRUN)
    (folder / "torchrun").chmod(0o755)
    code, checks = doctor(folder, "--steps", 4, "--", folder / "torchrun", PYTHON, "keras_jax.py", how, PORT)
    expected = WELL | unlike
    assert {name: check["status"] for name, check in checks.items()} == expected
    assert code == int("failure" in expected.values())
    assert remedy in (checks["weights"]["remedy"] or "")
    assert checks["script"]["data"]["steps"] == [4, 4]
    if how == "model":  # both get the whole batch, rightly
        assert "sharded" in checks["weights"]["text"] and checks["data"]["text"].startswith("64 samples in 4 steps")


BY_SCRIPT = """
import os, subprocess, sys
own = [{**os.environ, "RANK": str(rank), "WORLD_SIZE": "2"} for rank in range(2)]
ranks = [subprocess.Popen([sys.executable, "keras_jax.py", *sys.argv[1:]], env=env) for env in own]
sys.exit(max(rank.wait() for rank in ranks))
"""


@pytest.mark.parametrize(
    ("how", "unlike"), [("right", {}), ("not_laid_out", {"weights": "failure", "metrics": "warning"})]
)
def test_processes_that_the_script_starts_itself_are_judged_as_those_of_a_launcher(
    folder: Path,  # noqa: F811
    how: str,
    unlike: dict[str, str],
) -> None:
    (folder / "start.py").write_text(BY_SCRIPT)
    code, checks = doctor(folder, "--steps", 4, "-np", 1, "--", PYTHON, "start.py", how, PORT)
    assert {name: check["status"] for name, check in checks.items()} == WELL | unlike
    assert code == int("failure" in unlike.values())
    assert checks["script"]["data"]["steps"] == [4, 4]


@pytest.mark.parametrize("ranks", [1, 2])
def test_of_a_loop_of_jax_alone_nothing_is_known_and_nothing_is_called_wrong(folder: Path, ranks: int) -> None:  # noqa: F811
    (folder / "loop.py").write_text("""
import jax, jax.numpy as jnp
step = jax.jit(lambda w: w - 0.1 * jax.grad(lambda w: jnp.sum(w**2))(w))
w = jnp.ones(3)
for _ in range(20):
    w = step(w)
""")
    code, checks = doctor(folder, "-np", ranks, "--launcher", "mpirun", "--", PYTHON, "loop.py")
    assert (code, checks["script"]["status"]) == (0, "n/a"), checks
    assert "a loop of the script's own, which JAX compiles" in checks["script"]["text"]
