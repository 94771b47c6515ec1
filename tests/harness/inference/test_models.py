"""A model that is served answers what it answers when it is called, alone and with others' samples."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

from tests.harness.running import prepared

pytestmark = [
    pytest.mark.train,
    pytest.mark.beside,
    # Not imported: that takes half a second of every process that collects the tests.
    pytest.mark.skipif(importlib.util.find_spec("litserve") is None, reason="LitServe is not installed"),
]
SCRIPT = Path(__file__).parent / "scripts" / "answers.py"


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict:
    import subprocess
    import sys

    from tests.harness.running import environment

    folder = tmp_path_factory.mktemp("answers")
    command = [*prepared(), sys.executable, str(SCRIPT), "own.keras", "told.json"]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((folder / "told.json").read_text())


@pytest.mark.parametrize("name", ["own.keras", "mlp"])
def test_answers_are_the_models_own(told: dict, name: str) -> None:
    assert set(told[name]) == {"together", "alone"}
    assert max(told[name].values()) < 1e-5


def test_models_that_cannot_be_served_are_refused_in_one_line(told: dict) -> None:
    two, endless, broken = told["refused"]
    assert two.startswith("two.keras: has several inputs, or one without a fixed size")
    assert endless.startswith("endless.keras: has several inputs, or one without a fixed size")
    assert broken.startswith("broken.keras: Keras cannot load it") and "\n" not in broken


def test_each_batch_is_a_row_and_a_model_that_fails_is_one(told: dict) -> None:
    small, large, failed = told["rows"]
    assert [(row["model"], row["device"], row["batch"]) for row in (small, large)] == [
        ("own", "CPU", 1),
        ("own", "CPU", 64),
    ]
    assert all(row["call_ns"] <= row["p95_ns"] and row["calls"] >= 10 for row in (small, large))
    assert small["parameters"] == (5 * 7 + 7) + (6 * 7 * 3 + 3)
    assert small["copies_ns"] is None and small["why"]
    assert failed["model"] == "none" and failed["failed"].startswith("none.keras: Keras cannot load it")
