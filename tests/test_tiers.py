"""Which tests run when (tests/tiers.py), and what is said of a run that takes long (tests/late.py)."""

from __future__ import annotations

import ast
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import late, tiers
from tests.recordings import ROOT

MARKS = {"plain": "", "all": "exhaustive", "more": "exhaustive", "old": "exhaustive", "fit": "ci train", "loop": "ci"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with tests of every tier, five each."""
    for name, mark in MARKS.items():
        body = "".join(f"@pytest.mark.{each}\n" for each in mark.split())
        body += "@pytest.mark.parametrize('i', range(5))\ndef test_it(i): pass\n"
        (tmp_path / f"test_{name}.py").write_text(f"import pytest\n{body}")
    (tmp_path / "conftest.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom tests import late, tiers\nfrom pathlib import Path\n"
        "tiers.SECONDS, tiers.GREEN = Path('seconds.csv'), Path('shards.csv')\ntiers.HERE = Path('.')\n"
        "late.REPORT_S = 0\npytest_plugins = ('tests.tiers', 'tests.late')\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = .\nmarkers =\n  ci\n  train\n  exhaustive\n")
    (tmp_path / "seconds.csv").write_text("tests,seconds\ntest_more.py,9\ntest_all.py::test_it[0],1\n")
    (tmp_path / "shards.csv").write_text("shard,commit,date\n")
    return tmp_path


def run(project: Path, *words: str, **more: str) -> tuple[int, set[str], str]:
    """How pytest ends, names of the tests that passed, and what it says."""
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *words]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} | more  # others' take a second to load
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=900)
    names = {line.split()[0] for line in done.stdout.splitlines() if " PASSED" in line}
    return done.returncode, names, done.stdout


def ran(project: Path, *words: str, **more: str) -> tuple[set[str], str]:
    code, names, said = run(project, *words, **more)
    assert code in (0, 5), said  # 5: there are no tests in that part
    return names, said


def words(target: str) -> list[str]:
    """What a target of the Makefile asks pytest for."""
    text = (ROOT / "Makefile").read_text()
    recipe = text.partition(f"\n{target}: setup")[2].splitlines()[1]
    found = recipe.strip().removeprefix("$(TESTS)").removesuffix("$(ARGS)").strip()
    return ["-m", found.split('"')[1]] if '"' in found else found.split()


def test_a_test_without_a_mark_runs_in_make_test_and_others_do_not(project: Path) -> None:
    names, _ = ran(project, *words("test"))
    assert names == {f"test_plain.py::test_it[{i}]" for i in range(5)}


def test_parts_are_disjoint_and_make_all_tests(project: Path) -> None:
    parts = [ran(project, "--shard", f"{which}/3")[0] for which in (1, 2, 3)]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 5 * len(MARKS)
    # Tests of a file share what is costly, but for those of a file whose tests are listed one by one.
    for name in MARKS:
        having = [found for found in parts if any(test.startswith(f"test_{name}.py") for test in found)]
        assert len(having) == 1 or name == "all"


def test_ci_takes_what_has_no_mark_half_of_what_is_marked_ci_and_the_part_that_the_commit_names(project: Path) -> None:
    def git(*rest: str) -> str:
        who = ["-c", "user.name=A", "-c", "user.email=a@b.c"]
        return subprocess.run(
            ["git", *who, *rest], cwd=project, check=True, capture_output=True, text=True
        ).stdout.strip()

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "First")
    commit = git("rev-parse", "HEAD")
    names, said = ran(project, *words("test-ci"))
    which, count = tiers.rotating(commit)
    assert f"part {which} of {count}" in said
    assert tiers.turn("test_fit.py") != tiers.turn("test_loop.py")
    turn = which % tiers.TURNS + 1
    assert f"turn {turn} of {tiers.TURNS}" in said
    due = [name for name in ("fit", "loop") if tiers.turn(f"test_{name}.py") == turn]
    whole = {f"test_{name}.py::test_it[{i}]" for name in ("plain", *due) for i in range(5)}
    assert whole <= names
    assert names - whole == ran(project, "-m", "exhaustive", "--shard", f"{which}/{count}")[0]
    # It is green, which the file keeps; the others have never been.
    assert (project / "shards.csv").read_text().splitlines()[1].startswith(f"{which}/{count},{commit},2")
    others = ", ".join(str(other) for other in range(1, count + 1) if other != which)
    assert f"no green run is known of parts {others} of {count}: make test-all SHARD=K/{count}" in said
    for _ in range(tiers.STALE_COMMITS):
        git("commit", "-q", "--allow-empty", "-m", "Another")
    _, said = ran(project, "--rotate", "-k", "plain")  # no whole part, and so none that is green
    assert (project / "shards.csv").read_text().splitlines()[1].startswith(f"{which}/{count},{commit},2")
    assert f"part {which} of {count} was last green at {commit[:12]}" in said


@pytest.mark.parametrize("words", [["--rotate"], ["--rotate", "--collect-only"], ["--shard", "1/24", "-m", "ci"]])
def test_what_is_no_green_run_of_a_whole_part_is_not_kept(project: Path, words: list[str]) -> None:
    failing = words == ["--rotate"]
    (project / "test_plain.py").write_text(f"def test_it(): assert {not failing}\n")
    for git in ("init -q", "-c user.name=A -c user.email=a@b.c commit -q --allow-empty -m First"):
        subprocess.run(["git", *git.split()], cwd=project, check=True)
    code, _, _ = run(project, *words)
    assert code == failing or code == 5
    assert (project / "shards.csv").read_text() == "shard,commit,date\n"


def test_parts_take_about_as_long_as_each_other_and_a_new_test_moves_none() -> None:
    generator = random.Random(3)
    seconds = {f"test_{i}.py": generator.uniform(1, 60) for i in range(90)}
    places = tiers.balanced(seconds, 12)
    loads = [sum(seconds[unit] for unit in seconds if places[unit] == which) for which in range(1, 13)]
    assert max(loads) < 1.1 * sum(loads) / 12
    assert {tiers.place(f"tests/test_new_{i}.py::test_it", 12) for i in range(200)} == set(range(1, 13))


def test_what_seconds_are_kept_of_is_there_and_parts_of_it_fit_in_25_minutes() -> None:
    seconds = tiers.seconds()
    for unit in seconds:
        assert (ROOT / unit.partition("::")[0]).is_file(), f"{unit} of tests/seconds.csv is not there"
    places = tiers.balanced(seconds, tiers.SHARDS)
    for which in range(1, tiers.SHARDS + 1):
        assert sum(seconds[unit] for unit in seconds if places[unit] == which) < 25 * 60


def test_seconds_are_kept_of_every_file_with_exhaustive_tests_and_of_each_script_of_people() -> None:
    listed = {unit.partition("::")[0] for unit in tiers.seconds()}
    files = {path.relative_to(ROOT).as_posix(): path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    missing = {name for name, text in files.items() if re.search(r"pytest\.mark\.exhaustive", text)} - listed
    assert not missing, (
        f"tests/seconds.csv has no row of {', '.join(sorted(missing))}; tests/tiers.py says how to measure them"
    )
    few = set(ast.literal_eval(re.findall(r"^FEW = (.*)$", files["tests/ring/test_people.py"], re.M)[0]))  # marked ci
    scripts = {path.stem for path in (ROOT / "tests" / "ring" / "people").glob("*.py")}
    assert scripts - few <= {unit.rpartition("[")[2].removesuffix("]") for unit in tiers.seconds()}


def test_a_file_of_exhaustive_tests_says_what_they_alone_catch() -> None:
    files = {path: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    whole = [
        path
        for path, text in files.items()
        if re.search(r"^pytestmark = (\[[^\]]*)?pytest\.mark\.exhaustive", text, re.M)
    ]
    assert len(whole) > 10
    for path in whole:
        assert re.search(r"^They alone catch .*\.$", files[path].split('"""')[1], re.M), path


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "a/b", "1/0", "-1/3"])
def test_a_part_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        tiers.part(text)


@pytest.mark.ci
def test_a_run_that_takes_long_says_what_is_left_and_how_fast_the_machine_is(project: Path) -> None:
    (project / "test_slow.py").write_text("import time\ndef test_it(): time.sleep(4)\n")
    _, said = ran(project, RINGSCOPE_CI_BEGAN=str(time.time() - 1000))
    lines = [line for line in said.splitlines() if line.startswith("late: ")]
    assert re.search(r"tests began after 10\d\d s", lines[-1])
    assert f" of {5 * len(MARKS) + 1} tests are left: " in lines[0]


def test_of_a_late_run_files_are_named_by_how_many_of_their_tests_are_left() -> None:
    left = {f"test_{i % 15 if i > 40 else 'a'}.py::test_{i}" for i in range(100)}
    first, running, _ = late.report(left, 300, {"test_a.py::test_1": 71.2}, 400)
    assert first.startswith("late: 100 of 300 tests are left: test_a.py 41, ") and first.endswith(" and 4 files more")
    assert running == "late: test_a.py::test_1 has been running for 71 s"
