"""The same models on other backends: they train as one device does on the joined batch, where a backend is here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from harness import launch
from harness.jobs import sweep
from harness.training import combinations
from profiles.ground.errors import RingscopeError
from profiles.runs.rank_records import RankRecord, read_rank
from profiles.runs.records import Cell
from tests.harness.running import ROOT, environment, run_python

MLP = Cell("mlp", ranks=2, per_rank_batch=8, steps=4, warmup=2, feed="numpy", input_dtype="uint8")
JAX = replace(MLP, strategy="keras-jax", step="compiled")
TORCH = replace(MLP, strategy="keras-torch")


def python_with(backend: str) -> str:
    """The Python that cells of a backend would take; skips where it has none."""
    python = os.environ.get(f"RINGSCOPE_{backend.upper()}_PYTHON") or sys.executable
    known = f"from importlib.util import find_spec as f; exit(not (f('keras') and f({backend!r})))"
    if subprocess.run([python, "-c", known], check=False).returncode:
        pytest.skip(f"{python} has no Keras on {backend}: RINGSCOPE_{backend.upper()}_PYTHON may name one that has")
    return python


def trained(cell: Cell, folder: Path) -> list[RankRecord]:
    """The records of a cell whose processes are started as torchrun starts them."""
    folder.mkdir()
    (folder / "cell.json").write_text(json.dumps(cell.to_json()))
    python = python_with(cell.spread.backend)
    argv = [python, *launch.worker(folder / "cell.json", folder)[1:]]
    env = environment() | {"WORLD_SIZE": str(cell.processes)}
    ranks = [
        subprocess.Popen(argv, cwd=ROOT, env=env | {"RANK": str(k), "LOCAL_RANK": str(k)}, stderr=subprocess.PIPE)
        for k in range(cell.processes)
    ]
    said = [rank.communicate(timeout=240)[1].decode() for rank in ranks]
    assert not any(rank.returncode for rank in ranks), said
    return [read_rank(folder / f"rank{k}.jsonl") for k in range(cell.processes)]


@pytest.mark.train
@pytest.mark.parametrize("cell", [JAX, TORCH], ids=lambda cell: cell.strategy)
def test_two_devices_train_as_one_does_on_the_joined_batch(cell: Cell, tmp_path: Path) -> None:
    two = trained(cell, tmp_path / "two")
    (one,) = trained(replace(cell, ranks=1, per_rank_batch=16), tmp_path / "one")
    assert len({rank.extra["weights_sha256"] for rank in two}) == 1
    losses = [rank.extra["logs"]["loss"] for rank in two]
    assert sum(losses) / len(losses) == pytest.approx(one.extra["logs"]["loss"], rel=1e-5)
    assert sum(rank.samples for rank in two) == one.samples == 4 * 16
    for rank in (*two, one):
        assert (rank.size, len(rank.step_ns)) == (len(two) if rank is not one else 1, 4)
        assert sum(rank.step_ns) == rank.window_end_ns - rank.window_start_ns
        assert 0 <= sum(rank.input_wait_ns) < sum(rank.step_ns)
        assert rank.device is None and rank.extra["versions"][cell.spread.backend]


@pytest.mark.parametrize("cell", [JAX, TORCH], ids=lambda cell: cell.strategy)
def test_a_backend_that_is_not_installed_is_a_row_that_says_what_to_install(cell: Cell, tmp_path: Path) -> None:
    backend = cell.spread.backend
    (tmp_path / "cell.json").write_text(json.dumps(replace(cell, ranks=1).to_json()))
    words = launch.worker(tmp_path / "cell.json", tmp_path)[3:]
    absent = f"import sys; sys.modules[{backend!r}] = None; from harness.training import worker as w; w.main({words})"
    assert run_python("-c", absent).returncode == 3
    error = json.loads((tmp_path / "rank0.error.json").read_text())
    assert error["status"] == "unsupported" and f"pip install keras {backend}" in error["reason"]


def test_a_backend_runs_by_the_python_that_is_named_for_it_without_the_libraries_of_tensorflow() -> None:
    argv = launch.worker("cell.json", "out")
    for environ, python in (({}, sys.executable), ({"RINGSCOPE_JAX_PYTHON": "/jax/python"}, "/jax/python")):
        started = launch.on_backend(argv, "jax", environ)
        assert [word for word in started if word not in argv] == ["env", "-u", "LD_LIBRARY_PATH", *{python} - {*argv}]
        assert started[started.index(python) + 1 :] == argv[1:]
    shown: Sequence[str] = [*launch.on_backend(["sh"], "torch", {}), "-c", "echo [$LD_LIBRARY_PATH]"]
    done = subprocess.run(shown, env=os.environ | {"LD_LIBRARY_PATH": "/x"}, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("cell", [JAX, TORCH], ids=lambda cell: cell.strategy)
def test_a_python_that_is_not_there_is_refused_before_anything_is_trained(cell: Cell, tmp_path: Path) -> None:
    name = f"RINGSCOPE_{cell.spread.backend.upper()}_PYTHON"
    for python in (tmp_path, tmp_path / "python"):
        with pytest.raises(RingscopeError, match=f"{name}={python}: no such program"):
            sweep.check_backends([cell], {name: str(python)})
    sweep.check_backends([cell], {name: sys.executable})
    sweep.check_backends([cell], {})


@pytest.mark.parametrize("cell", [JAX, TORCH], ids=lambda cell: cell.strategy)
@pytest.mark.parametrize("asked", [{"data": "generated"}, {"memory_limit_mb": 100}, {"until": "accuracy=0.9"}])
def test_what_only_tensorflow_is_given_is_refused(cell: Cell, asked: dict[str, object]) -> None:
    combinations.check(cell, gpus=None)
    with pytest.raises(combinations.Unsupported):
        combinations.check(replace(cell, **asked), gpus=None)  # type: ignore[arg-type]
