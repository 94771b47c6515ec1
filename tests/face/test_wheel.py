"""What `pip install .` puts on somebody's machine: all that the packages need, and nothing else of the repository."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from profiles.ground.version import VERSION
from tests.recordings import ROOT

PACKAGES = ("harness", "profiles", "ringscope")
NOT_PYTHON = {
    "harness/py.typed",
    "profiles/py.typed",
    "profiles/readers/hlo.desc",
    "profiles/readers/hlo.proto",
    "profiles/readers/xplane.desc",
    "profiles/readers/xplane.proto",
    "profiles/views/page/page.css",
    "profiles/views/page/page.html.j2",
    "profiles/views/page/page.js",
    "ringscope/py.typed",
}
LEFT_BEHIND = (
    ".git",
    ".venv*",
    "build",
    "dist",
    "*.egg-info",
    "__pycache__",
    ".*_cache",
    ".hypothesis",
    "site",
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the whole checkout, since building leaves folders beside the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    others = shutil.ignore_patterns(*LEFT_BEHIND)

    def left_behind(where: str, names: list[str]) -> set[str]:
        return others(where, names) | ({"runs"} if Path(where) == ROOT else set())  # not profiles/runs

    shutil.copytree(ROOT, folder / "copy", ignore=left_behind)
    build = ["wheel", "-q", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *build, str(folder / "copy")], capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    yield folder


@pytest.mark.ci
def test_the_wheel_holds_the_packages_their_templates_and_the_licences_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    about = {name for name in held if name.partition("/")[0].endswith(".dist-info")}
    modules = {str(path.relative_to(ROOT)) for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    assert held - about == modules | NOT_PYTHON
    assert {Path(name).name for name in about} == {
        "LICENSE",
        "METADATA",
        "NOTICE",
        "RECORD",
        "WHEEL",
        "entry_points.txt",
        "top_level.txt",
    }


def test_no_file_of_the_packages_stays_behind() -> None:
    tracked = subprocess.run(["git", "ls-files", *PACKAGES], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {name for name in tracked.stdout.splitlines() if not name.endswith(".py")} == NOT_PYTHON


@pytest.mark.ci
def test_the_licences_are_those_of_the_repository(installed: Path) -> None:
    for name in ("LICENSE", "NOTICE"):
        (found,) = installed.glob(f"*.dist-info/**/{name}")
        assert found.read_bytes() == (ROOT / name).read_bytes()
    assert "Apache License\n" in (ROOT / "LICENSE").read_text()


@pytest.mark.ci
def test_the_metadata_says_whose_it_is_and_where_to_find_it(installed: Path) -> None:
    (distribution,) = metadata.distributions(path=[str(installed)])
    about = distribution.metadata
    assert (about["Name"], about["Version"]) == ("ringscope", VERSION)
    assert "Apache-2.0" in (about["License"], about["License-Expression"])
    assert about["Author"] and about["Summary"] and about["Keywords"]
    assert about["Requires-Python"] == ">=3.10"
    assert about["Description-Content-Type"] == "text/markdown"
    assert {url.partition(",")[0] for url in about.get_all("Project-URL", [])} >= {
        "Documentation",
        "Changelog",
        "Issues",
    }
    classifiers = set(about.get_all("Classifier", []))
    assert {
        "Typing :: Typed",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in (10, 11, 12)),
    } <= classifiers
    needed = "\n".join(word for word in distribution.requires or [] if "extra ==" not in word)
    assert "numpy" in needed and "tensorflow" not in needed and "horovod" not in needed
    (script,) = distribution.entry_points
    assert (script.group, script.name, script.value) == ("console_scripts", "ringscope", "ringscope.__main__:main")


@pytest.mark.ci
def test_what_is_installed_runs_and_knows_its_version(installed: Path) -> None:
    """From the wheel alone: a page is drawn, so the templates are where they are looked for."""
    recording = ROOT / "tests" / "data" / "xplane" / "jax-2gpu-5-steps.xplane.pb"
    page = installed / "page.html"
    code = (
        "import sys; sys.path[0:0] = [sys.argv.pop(1)]; sys.argv[0] = 'ringscope'\n"
        "import profiles; from ringscope.__main__ import main; print(profiles.__file__); main()"
    )
    said = {}
    for verb in (["--version"], ["timeline", str(recording), "--html", str(page)]):
        done = subprocess.run(
            [sys.executable, "-I", "-c", code, str(installed), *verb],
            cwd=installed,
            capture_output=True,
            text=True,
            timeout=900,
        )
        assert done.returncode == 0, done.stderr
        where, _, said[verb[0]] = done.stdout.partition("\n")
        assert Path(where).is_relative_to(installed)
    assert said["--version"].startswith(f"ringscope {VERSION}, Python ")
    assert page.stat().st_size > 10_000
