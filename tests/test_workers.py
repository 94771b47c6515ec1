"""How `make test` divides the tests between its workers (tests/scheduler.py), whatever becomes of one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.recordings import ROOT
from tests.scheduler import kind, pytest_collection_modifyitems

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


# A process that gives out the tests loads this, too, and so does each worker: both as for ours.
CONFTEST = f"""import os, pathlib, pytest, time
import sys
sys.path.insert(0, {str(ROOT)!r})

pytest_plugins = ("tests.scheduler",)

def wait_for(name, count=1):
    while len(list(pathlib.Path().glob(name))) < count:
        time.sleep(0.05)

def crash(nodeid):
    pathlib.Path(nodeid + ".crashed").touch()
    os.abort()
"""


def _run(folder: Path, conftest: str = "", ini: str = "", where: Sequence[str] = (".",)) -> tuple[int, str]:
    """The exit code and what is printed of the tests in the folder, divided as ours."""
    (folder / "conftest.py").write_text(CONFTEST + conftest)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  train\n  root\n  beside\n" + ini)
    makefile = (ROOT / "Makefile").read_text()
    words = next(line for line in makefile.splitlines() if line.startswith("TESTS :=")).partition("pytest ")[2].split()
    argv = [sys.executable, "-m", "pytest", "-v", "-p", "xdist", *words, *where]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}  # of the run around it
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # each of up to six processes would load hypothesis
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    try:
        done = subprocess.run(argv, cwd=folder, env=env, timeout=240, text=True, **both)
    except subprocess.TimeoutExpired as late:
        pytest.fail(f"it has not ended: {(late.output or b'').decode()}")
    return done.returncode, done.stdout


def _tests(folder: Path, **bodies: str) -> None:
    """A file with one test for each of ten letters, which does nothing unless a body says what."""
    for name in "abcdefghij":
        body = bodies.get(name, "pass")
        (folder / f"test_{name}.py").write_text(f"from conftest import *\ndef test_{name}(): {body}\n")


@pytest.mark.exhaustive
def test_a_run_ends_though_a_worker_crashes_that_has_two_files_when_the_others_have_ended(tmp_path: Path) -> None:
    _tests(tmp_path, i="(wait_for('*.ended', 2), crash('i'))\ndef test_i_too(): pass")
    code, out = _run(
        tmp_path,
        "def pytest_sessionfinish(session):\n"
        "    if worker := getattr(session.config, 'workerinput', None):\n"
        "        pathlib.Path(worker['workerid'] + '.ended').touch()\n",
    )
    assert code == 1, out
    assert "1 failed, 10 passed" in out
    assert "crashed while running 'test_i.py::test_i'" in out


@pytest.mark.exhaustive
def test_a_run_ends_though_a_worker_crashes_while_the_one_in_the_place_of_another_collects(tmp_path: Path) -> None:
    _tests(tmp_path, a="crash('a')", i="(wait_for('collecting'), crash('i'))", j="wait_for('*.crashed', 2)")
    code, out = _run(
        tmp_path,
        "def pytest_sessionstart(session):\n"
        "    if getattr(session.config, 'workerinput', {}).get('workerid') == 'gw4':\n"
        "        pathlib.Path('fifth').touch()\n"
        "@pytest.hookimpl(tryfirst=True)\n"
        "def pytest_collection(session):\n"
        "    if getattr(session.config, 'workerinput', {}).get('workerid') == 'gw3':\n"
        "        pathlib.Path('collecting').touch()\n"
        "        wait_for('fifth')\n",
    )
    assert code == 1, out
    assert "2 failed, 8 passed" in out
    for name in "ai":
        assert f"crashed while running 'test_{name}.py::test_{name}'" in out


@pytest.mark.exhaustive
def test_a_run_ends_though_a_worker_is_given_tests_after_it_has_crashed(tmp_path: Path) -> None:
    _tests(tmp_path, j="pass\ndef test_j_2(): crash('j')\ndef test_j_3(): pass")
    code, out = _run(
        tmp_path,
        "import xdist.workermanage as workers\n"
        "of_xdist = workers.WorkerController.process_from_remote\n"
        "def late(self, event):\n"
        "    if event is workers.Marker.END:\n"
        "        time.sleep(4)\n"
        "    of_xdist(self, event)\n"
        "workers.WorkerController.process_from_remote = late\n"
        "def pytest_runtest_logfinish(nodeid):\n"
        "    if 'PYTEST_XDIST_WORKER' not in os.environ and nodeid == 'test_j.py::test_j':\n"
        "        time.sleep(2)\n",
    )
    assert code == 1, out
    assert "1 failed, 11 passed" in out
    assert "crashed while running 'test_j.py::test_j_2'" in out


@pytest.mark.exhaustive
def test_a_run_in_which_no_worker_goes_on_ends_and_names_what_each_is_at(tmp_path: Path) -> None:
    _tests(tmp_path, g="time.sleep(3600)")
    code, out = _run(
        tmp_path,
        "from tests import scheduler\n"
        "def pytest_runtest_logstart(nodeid):\n"
        "    if 'test_g' in nodeid:\n"
        "        scheduler.QUIET_S = 3\n",
    )
    assert code == pytest.ExitCode.INTERRUPTED, out
    assert "no worker has ended a test for 3 s" in out
    assert " has not ended test_g.py::test_g\n" in out


@pytest.mark.ci
def test_the_files_of_a_chain_run_on_one_worker_and_the_others_come_from_the_other_end(tmp_path: Path) -> None:
    kinds = {"a": "", "b": "train", "c": "root", "d": "train", "e": "beside", "f": "train", "g": "", "h": "root"}
    for name, one in kinds.items():
        mark = f"@pytest.mark.{one}\n" * bool(one)
        (tmp_path / f"test_{name}.py").write_text(f"import pytest\n{mark}def test_{name}(): pass\n")
    code, out = _run(tmp_path)
    assert code == 0, out
    ran = [(line.split("::")[-1].strip()[-1], line[:5]) for line in out.splitlines() if line.startswith("[gw")]
    worker = dict(ran)
    assert sorted(worker) == sorted(kinds)
    assert len({worker[name] for name in "bdf"}) == len({worker[name] for name in "ch"}) == 1
    first, last = worker["b"], worker["c"]
    assert first != last
    assert [name for name, one in ran if one == first][:3] == ["b", "d", "f"]
    assert [name for name, one in ran if one == last][:2] == ["c", "h"]


@pytest.mark.exhaustive
def test_each_worker_first_compiles_its_share_of_all_files(tmp_path: Path) -> None:
    """A file that cannot be imported is no worse for it."""
    cases = tmp_path / "cases"
    cases.mkdir()
    (cases / "__init__.py").touch()
    worker = "os.environ['PYTEST_XDIST_WORKER']"
    for name in "abcdef":
        wrong = "raise OSError" if name == "b" else f"def test_{name}(): pass"
        text = f"import os\nprint('{name}', file=open({worker}, 'a'))\n{wrong}\n"
        (cases / f"test_{name}.py").write_text(text)
    code, out = _run(tmp_path, "", "testpaths = cases\n", where=())
    assert code == 1 and "ERROR cases/test_b.py - OSError" in out and "5 passed" in out, out
    order = {one: (tmp_path / one).read_text().split() for one in ("gw0", "gw1", "gw2")}
    # Others are read after its share; what cannot be imported once more.
    assert order == {"gw0": list("adbcef"), "gw1": list("beabcdf"), "gw2": list("cfabde")}


def test_trainings_beside_others_that_take_minutes_begin_before_shorter_ones(tmp_path: Path) -> None:
    kinds = {"a": "root", "b": "", "c": "beside", "d": "exhaustive", "e": "beside exhaustive", "f": "train"}
    kinds["g"] = "beside"
    items: list[Any] = []
    for name, marks in kinds.items():
        path = tmp_path / f"test_{name}.py"
        path.write_text("".join(f"pytest.mark.{mark}\n" for mark in marks.split()))
        items.append(SimpleNamespace(name=name, path=path, get_closest_marker=lambda mark, has=marks: mark in has))
    modified: Any = SimpleNamespace(workerinput={})
    pytest_collection_modifyitems(modified, items)
    assert "".join(item.name for item in items) == "fecgbda"
