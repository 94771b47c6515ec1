"""`mpirun -np 4 ringscope timeline DIR`: the same JSON to the byte as in one process. Real MPI.

They alone catch processes under MPI that measure otherwise than one does.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import ringscope
from benchmarks.write import WRITERS
from profiles.measuring import mpi
from profiles.model import measures_json
from tests.profiles.measuring.test_partials import SLOW, unlike_warm_up
from tests.recordings import ROOT

pytest.importorskip("mpi4py", reason="mpi4py is not installed")
MPIRUN = Path(sys.executable).parent / "mpirun"
pytestmark = [
    pytest.mark.train,
    pytest.mark.exhaustive,
    pytest.mark.skipif(not MPIRUN.exists(), reason="no mpirun in this environment"),
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two hosts' disks with six ranks and three."""
    made = tmp_path_factory.mktemp("hosts")
    shape = replace(SLOW, steps=6)
    for rank in range(shape.gpus):
        folder = made / f"host{rank // 6}"
        folder.mkdir(exist_ok=True)
        WRITERS["nsys"](shape, folder / f"rank{rank}.sqlite", range(rank, rank + 1))
    return made / "host0", made / "host1"


def ringscope_words(*words: object) -> list[str]:
    return [sys.executable, "-m", "ringscope", "timeline", *map(str, words)]


def launched(*each: tuple[int, list[str]], expect: int = 0) -> str:
    """Each command in so many processes of one MPI job."""
    words = [str(MPIRUN), "--oversubscribe", "--mca", "mpi_yield_when_idle", "1"]
    for number, (count, command) in enumerate(each):
        words += [":"] * bool(number) + ["-np", str(count), *command]
    environ = os.environ | {"PYTHONPATH": str(ROOT), "OMPI_ALLOW_RUN_AS_ROOT": "1"}
    environ |= {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "COLUMNS": "100"}
    done = subprocess.run(words, capture_output=True, text=True, env=environ, timeout=900, cwd=ROOT)
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_four_processes_give_the_same_json_to_the_byte(folders, tmp_path) -> None:
    said = launched((4, ringscope_words(*folders, "--json", tmp_path / "four.json")))
    assert (tmp_path / "four.json").read_text() == dumped(*folders)
    assert said.count("what to change") == 1, "the first process alone reports"


def test_each_process_measures_what_it_sees(folders, tmp_path) -> None:
    to = ("--json", tmp_path / "each.json", "--partial", tmp_path / "all.partial")
    launched((1, ringscope_words(folders[0], *to)), (1, ringscope_words(folders[1], *to)))
    assert (tmp_path / "each.json").read_text() == dumped(*folders)
    assert measures_json.dumps(ringscope.measure(tmp_path / "all.partial"), per_step=False) == dumped(*folders)


def test_what_one_process_corrects_another_measures_again(tmp_path) -> None:
    first, second = unlike_warm_up(tmp_path)
    to = ("--json", tmp_path / "two.json")
    launched((1, ringscope_words(first, *to)), (1, ringscope_words(second, *to)))
    assert (tmp_path / "two.json").read_text() == dumped(first, second)


def test_no_recording_anywhere_is_one_line_and_ends_all(tmp_path) -> None:
    said = launched((2, ringscope_words(tmp_path / "none")), expect=2)
    assert "none: no such file" in said and "Traceback" not in said


def dumped(*paths: Path) -> str:
    return measures_json.dumps(ringscope.measure(paths), per_step=False)


@pytest.mark.parametrize(
    ("environ", "processes"),
    [
        ({}, 1),
        ({"OMPI_COMM_WORLD_SIZE": "4"}, 4),
        ({"SLURM_NTASKS": "8"}, 1),  # a batch script, of which there is one
        ({"SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": "8"}, 8),
    ],
)
def test_how_many_were_started_is_what_the_launcher_says(environ, processes, monkeypatch) -> None:
    for name in mpi._SIZES:
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert mpi.started() == processes
