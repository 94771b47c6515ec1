"""How `make test` divides the tests between its workers (tests/conftest.py)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import chain
from tests.recordings import ROOT

FILES = sorted((ROOT / "tests").rglob("test_*.py"))
STARTS = {
    "train": ("run_in_turn(", "prepared(", "LAUNCHERS["),
    "root": ("hosts.sh", "one_node_slurm.sh"),
    "browser": ("browser: Any",),
}


@pytest.mark.parametrize("kind", STARTS)
def test_what_takes_the_machine_is_in_the_chain_of_its_kind(kind: str) -> None:
    others = [path for path in FILES if path != Path(__file__)]
    found = [path for path in others if any(start in path.read_text() for start in STARTS[kind])]
    assert len(found) >= 2
    assert {path.name: chain(path) for path in found} == {path.name: kind for path in found}


def test_the_files_of_a_chain_run_on_one_worker(tmp_path: Path) -> None:
    for name in "abcdefgh":
        mark = "@pytest.mark.train\n" if name in "bdfh" else ""
        (tmp_path / f"test_{name}.py").write_text(f"import pytest\n{mark}def test_{name}(): pass\n")
    (tmp_path / "conftest.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom tests.conftest import *\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = train\n")
    makefile = (ROOT / "Makefile").read_text()
    words = next(line for line in makefile.splitlines() if line.startswith("TESTS :=")).partition("pytest ")[2].split()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", *words, "."], cwd=tmp_path, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    worker = {line.split("::")[-1].strip(): line[:5] for line in done.stdout.splitlines() if line.startswith("[gw")}
    assert sorted(worker) == [f"test_{name}" for name in "abcdefgh"]
    assert len({worker[f"test_{name}"] for name in "bdfh"}) == 1 < len(set(worker.values()))
