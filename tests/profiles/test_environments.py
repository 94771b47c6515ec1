"""`ringscope timeline` where a machine lacks what most have: each ends as on any other, with the same page."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from profiles.ground import files
from profiles.measuring import processes
from profiles.measuring.one_recording import Asked
from profiles.readers import File
from tests.fuzz import verbs
from tests.recordings import DATA, ROOT

RECORDING = DATA / "vgg16-1gpu-device.rank0.sqlite.xz"
# What Slurm, PMI and Open MPI leave behind in a shell that they started.
LEFTOVERS = {
    "SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "8", "SLURM_NTASKS": "8", "SLURM_TASKS_PER_NODE": "4(x2)",
    "PMI_RANK": "3", "PMI_SIZE": "8", "PMIX_RANK": "2", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2",
}  # fmt: skip


def timeline(*words: str, environment: Mapping[str, str | None] | None = None) -> subprocess.CompletedProcess[str]:
    changed = {**os.environ, **(environment or {})}
    env = {name: value for name, value in changed.items() if value is not None}
    command = [sys.executable, "-m", "profiles", "timeline", str(RECORDING), *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=900)


@pytest.mark.ci
@pytest.mark.parametrize(
    "environment",
    [
        {"HOME": None},
        {"HOME": "/proc", "XDG_CACHE_HOME": "/proc", "TMPDIR": "/proc"},
        {"COLUMNS": "20", "LC_ALL": "C", "LANG": None, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
    ids=lambda given: " ".join(given)[:40],
)
def test_a_recording_is_measured_in_any_environment(environment: Mapping[str, str | None]) -> None:
    done = timeline("--json", "-", environment=environment)
    assert done.returncode == 0, done.stderr
    assert '"ledger_ns"' in done.stdout


@pytest.mark.ci
@pytest.mark.parametrize(
    "more",
    [
        pytest.param({}, id="", marks=pytest.mark.exhaustive),
        pytest.param({"PMIX_NAMESPACE": "gone", "PMIX_SERVER_URI41": "gone@0.0;tcp4://127.0.0.1:9"}, id="a server"),
    ],
)
def test_leftovers_of_a_launcher_are_named(more: Mapping[str, str]) -> None:
    """A launcher that lives shares the work out over its processes: what it set cannot be passed over."""
    done = timeline(environment=LEFTOVERS | more)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert "_SIZE" in done.stderr or "_TASKS" in done.stderr
    assert "unset" in done.stderr
    assert timeline("--processes", "1", environment=LEFTOVERS | more).returncode == 0


def test_on_no_columns_the_page_is_as_wide_as_without_that() -> None:
    known = timeline(environment={"COLUMNS": None})
    assert "what to change" in known.stdout
    assert timeline(environment={"COLUMNS": "0"}).stdout == known.stdout


def test_a_working_directory_that_is_gone_is_named(tmp_path: Path) -> None:
    command = 'rmdir $PWD && exec "$0" -m profiles timeline x.sqlite'
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(["sh", "-c", command, sys.executable], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "ringscope: the working directory is gone; change to another, or give absolute paths\n"


def test_without_semaphores_one_process_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise FileNotFoundError(2, "No such file or directory", "/dev/shm")

    monkeypatch.setattr(processes, "Pool", none)
    with processes.pool(2, Asked(), processes.Reading()) as by:
        assert isinstance(by, processes.Here)


def test_few_descriptors_make_few_processes(tmp_path: Path) -> None:
    some = []
    for number in range(64):
        path = tmp_path / f"rank{number}.sqlite.xz"
        shutil.copy(RECORDING, path)
        some.append(path)
    counts = (
        "import sys; from pathlib import Path; from profiles.measuring import processes;"
        "from profiles.readers import File;"
        "print(processes.count([File(path, None, path) for path in map(Path, sys.argv[1:])]))"
    )
    words = ["bash", "-c", f"ulimit -n 48; exec {sys.executable} -c '{counts}' \"$@\"", "bash", *map(str, some)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=900, check=True)
    assert int(done.stdout) == min(processes.count([File(path, None, path) for path in some]), 2)


@pytest.mark.ci
def test_a_process_that_cannot_be_started_ends_in_a_sentence() -> None:
    few = ["bash", "-c", f"ulimit -n 16; exec {sys.executable} -m profiles timeline {RECORDING} --processes 4"]
    done = subprocess.run(few, capture_output=True, text=True, timeout=900)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert "--processes 1" in done.stderr


def test_a_recording_whose_name_is_no_utf_8_goes_through_every_view(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"a\xff\xfe.sqlite.xz")
    shutil.copy(RECORDING, path)
    (out := tmp_path / "out").mkdir()
    assert not any(verbs.put_through(path, out).values())


def test_a_user_without_a_home_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)

    def none() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", none)
    assert files.user_cache() is None
    monkeypatch.setenv("XDG_CACHE_HOME", "/kept")
    assert files.user_cache() == Path("/kept/ringscope")
