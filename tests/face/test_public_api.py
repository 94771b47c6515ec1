"""The package `ringscope`: what people install and import, with and without TensorFlow."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ringscope
from profiles.ground.version import VERSION
from tests.recordings import OURS, ROOT

# An environment of readers only: nothing of these is found, whatever is installed.
BLOCKED = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tensorflow", "keras", "horovod"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
"""


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """A Python of its own that finds this checkout first."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "-1"}
    return subprocess.run(
        [sys.executable, *words], cwd="/", env=environment, capture_output=True, text=True, timeout=900
    )


def test_every_public_name_is_there_and_dir_shows_no_other() -> None:
    assert dir(ringscope) == sorted(ringscope.__all__)
    light = [name for name in ringscope.__all__ if name != "ring"]  # TensorFlow takes seconds; examples/ import it
    assert all(getattr(ringscope, name) is not None for name in light)
    assert ringscope.__version__ == VERSION


def test_a_name_that_is_not_there_is_an_attribute_error_like_any_modules() -> None:
    with pytest.raises(AttributeError, match="module 'ringscope' has no attribute 'analyze'"):
        ringscope.analyze  # type: ignore[attr-defined]  # noqa: B018


def test_what_it_returns_is_of_the_types_it_exports() -> None:
    timeline = ringscope.read(OURS[0])
    assert isinstance(timeline, ringscope.Timeline) and isinstance(timeline.recording, ringscope.Recording)
    analysis = ringscope.analyse([timeline])
    assert isinstance(analysis, ringscope.Analysis)
    assert all(isinstance(gpu, ringscope.GpuMeasures) for gpu in analysis.measures.gpus)
    assert analysis.measures.findings and isinstance(analysis.measures.findings[0], ringscope.Finding)
    assert all(isinstance(doubt, ringscope.Doubt) for doubt in analysis.measures.doubts)
    assert ringscope.measure(timeline) == ringscope.measure(OURS[0]) == analysis.measures
    with pytest.raises(ringscope.UnreadableRecording):
        ringscope.read(ROOT / "README.md")


def test_without_tensorflow_recordings_are_measured_and_nothing_heavy_is_imported_before() -> None:
    done = run(
        "-c",
        BLOCKED
        + f"""
import ringscope
heavy = {{"numpy", "pandas", "pyarrow", "click", "rich"}} & set(sys.modules)
assert not heavy, heavy
assert "ring" in dir(ringscope)
print(len(ringscope.measure(ringscope.read({str(OURS[0])!r})).gpus))
""",
    )
    assert (done.stdout, done.returncode) == ("1\n", 0), done.stderr


@pytest.mark.parametrize("spelling", ["from ringscope import ring", "from harness import ring"])
def test_without_tensorflow_ring_ends_in_the_line_that_says_how_to_install_it(spelling: str) -> None:
    done = run("-c", BLOCKED + spelling)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "MissingLibrary: TensorFlow does not load here (No module named 'tensorflow')" in last
    assert "`make setup`" in last and "pip install '.[train]'" in last


def test_without_tensorflow_a_script_may_go_on_as_for_any_import_error() -> None:
    done = run("-c", BLOCKED + "try:\n    from ringscope import ring\nexcept ImportError:\n    print('alone')")
    assert (done.stdout, done.returncode) == ("alone\n", 0), done.stderr


@pytest.mark.parametrize("module", ["ringscope", "harness", "profiles"])
def test_the_command_says_its_version_python_and_platform_in_one_line(module: str) -> None:
    done = run("-m", module, "--version")
    assert done.returncode == 0 and done.stdout.count("\n") == 1
    python = ".".join(map(str, sys.version_info[:3]))
    assert done.stdout.startswith(f"ringscope {VERSION}, Python {python}, Linux")


@pytest.mark.exhaustive
def test_a_type_checker_sees_the_types_of_all_of_it(tmp_path: Path) -> None:
    script = tmp_path / "typed.py"
    script.write_text(
        """
import ringscope
from ringscope import ring

reveal_type(ringscope.read)
reveal_type(ringscope.measure)
reveal_type(ringscope.analyse)
reveal_type(ringscope.ring.init)
reveal_type(ring.rank())
reveal_type(ringscope.__version__)
ringscope.nothing
"""
    )
    mypy = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml")]
    environment = os.environ | {"MYPYPATH": str(ROOT), "PYTHONPATH": ""}
    done = subprocess.run([*mypy, str(script)], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900)
    said = [line.partition(": ")[2] for line in done.stdout.splitlines()]
    read, measure, analyse, init, rank, version, nothing, *_ = said
    assert 'Revealed type is "def (path: str | pathlib.Path' in read and "-> profiles.model.timeline.Timeline" in read
    assert "-> profiles.model.measures.Measures" in measure
    assert "-> profiles.model.analysed.Analysis" in analyse
    assert 'Revealed type is "def (*, pin: bool =' in init
    assert 'Revealed type is "int"' in rank.replace("builtins.", "")
    assert 'Revealed type is "str"' in version.replace("builtins.", "")
    assert "has no attribute" in nothing
