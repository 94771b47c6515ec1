"""How `make test` divides the tests between its workers (tests/conftest.py)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import kind
from tests.recordings import ROOT

FILES = sorted((ROOT / "tests").rglob("test_*.py"))
STARTS = {
    "train": ("run_in_turn(", "prepared(", "LAUNCHERS["),
    "root": ("hosts.sh", "one_node_slurm.sh"),
    "browser": ("browser: Any",),
}
ALONE = ('("mpirun")', "MPIRUN", "LAUNCHERS", "perf_counter", "cpu_times")


@pytest.mark.parametrize("chain", STARTS)
def test_what_takes_the_machine_is_in_the_chain_of_its_kind(chain: str) -> None:
    others = [path for path in FILES if path != Path(__file__)]
    found = [path for path in others if any(start in path.read_text() for start in STARTS[chain])]
    assert len(found) >= 2
    of = {"beside": "train"}  # no chain, but trainings all the same
    kinds = {path.name: kind(path) for path in found}
    assert {name: of.get(str(one), one) for name, one in kinds.items()} == {path.name: chain for path in found}


def test_what_measures_or_is_there_once_is_not_beside_another_training() -> None:
    beside = [path for path in FILES if kind(path) == "beside"]
    assert len(beside) > 10
    for path in beside:
        text = path.read_text()
        assert "mark.train" in text, path
        assert not [word for word in ALONE if word in text], path


def _run(folder: Path) -> subprocess.CompletedProcess[str]:
    """The tests in the folder, divided as ours."""
    (folder / "conftest.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom tests.conftest import *\n"
    )
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  train\n  root\n  beside\n")
    makefile = (ROOT / "Makefile").read_text()
    words = next(line for line in makefile.splitlines() if line.startswith("TESTS :=")).partition("pytest ")[2].split()
    argv = [sys.executable, "-m", "pytest", "-v", *words, "."]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=900)


@pytest.mark.ci
def test_a_run_ends_though_a_worker_has_crashed(tmp_path: Path) -> None:
    crash = "import os, pathlib\ndef test_g():\n    if not pathlib.Path('crashed').exists():\n"
    crash += "        pathlib.Path('crashed').touch()\n        os.abort()\n"
    for name in "abcdefghij":
        (tmp_path / f"test_{name}.py").write_text(crash if name == "g" else f"def test_{name}(): pass\n")
    done = _run(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 10 passed" in done.stdout
    assert "crashed while running 'test_g.py::test_g'" in done.stdout


@pytest.mark.ci
def test_the_files_of_a_chain_run_on_one_worker_and_the_others_come_from_the_other_end(tmp_path: Path) -> None:
    kinds = {"a": "", "b": "train", "c": "root", "d": "train", "e": "beside", "f": "train", "g": "", "h": "root"}
    for name, one in kinds.items():
        mark = f"@pytest.mark.{one}\n" * bool(one)
        (tmp_path / f"test_{name}.py").write_text(f"import pytest\n{mark}def test_{name}(): pass\n")
    done = _run(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    ran = [(line.split("::")[-1].strip()[-1], line[:5]) for line in done.stdout.splitlines() if line.startswith("[gw")]
    worker = dict(ran)
    assert sorted(worker) == sorted(kinds)
    assert len({worker[name] for name in "bdf"}) == len({worker[name] for name in "ch"}) == 1
    first, last = worker["b"], worker["c"]
    assert first != last
    assert [name for name, one in ran if one == first][:3] == ["b", "d", "f"]
    assert [name for name, one in ran if one == last][:2] == ["c", "h"]
