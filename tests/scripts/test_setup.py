"""Set-up ends well or in a line that says what to do."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.recordings import ROOT


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "scripts"))  # as Python does for the script that it runs
        spec.loader.exec_module(module)
    return module


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, timeout=900
    )


def test_an_unsupported_python_is_refused_by_its_version(tmp_path: Path) -> None:
    old = tmp_path / "python3.8"
    old.write_text("#!/bin/sh\necho 3.8\n")
    old.chmod(0o755)
    done = run("scripts/environment.py", "--venv", str(tmp_path / "venv"), "--python", str(old))
    assert done.returncode != 0 and not (tmp_path / "venv").exists()
    assert f"wanted Python 3.10 to 3.13, but {old} is 3.8; name one: make PYTHON=" in done.stderr


def test_a_python_that_make_is_given_is_asked_for_by_name() -> None:
    above = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PYTHON")  # a make that runs the tests hands these on
    environment = {name: value for name, value in os.environ.items() if name not in above}
    named, unnamed = (
        subprocess.run(
            ["make", "-n", *words, "setup"], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        ).stdout
        for words in (["PYTHON=python3.9"], ["PYTHON="])
    )
    assert named.split() == ["python3.9", "scripts/environment.py", "--python", "python3.9"]
    assert unnamed.split() == ["python3", "scripts/environment.py"]


def test_a_ready_environment_of_another_python_is_not_what_was_asked_for(tmp_path: Path) -> None:
    environment = script("environment")
    other = tmp_path / "python3.9"
    other.write_text("#!/bin/sh\necho 3.9\n")
    other.chmod(0o755)
    ready = tmp_path / "ringscope.ready"
    ready.write_text("made")
    python = Path(sys.executable)
    assert environment.is_ready(python, ready, "made", None) and environment.is_ready(python, ready, "made", python)
    assert not environment.is_ready(python, ready, "made", other)
    done = run("scripts/environment.py", "--venv", str(tmp_path), "--python", str(other))
    assert f"{other} is 3.9" in done.stderr and ready.exists()  # what is refused leaves a ready environment ready


def test_a_ready_environment_is_left_alone_and_a_changed_one_is_not(tmp_path: Path) -> None:
    environment = script("environment")
    gpu = Path("/dev/nvidia0").exists() or Path("/dev/dxg").exists()
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / "venv" / "ringscope.ready").write_text(environment.fingerprint(gpu))
    done = run("scripts/environment.py", "--venv", str(tmp_path / "venv"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert environment.fingerprint(True) != environment.fingerprint(False)


@pytest.mark.parametrize(
    ("settings", "failing", "installed"),
    [
        ("", "nothing", ["pip uv", "uv x"]),
        ("global.find-links='/wheels'", "nothing", ["pip uv", "uv x"]),
        ("", "uv", ["pip uv", "uv x", "pip x"]),
        ("", "pip", ["pip uv", "pip x"]),
        ("global.index-url='https://mirror'", "nothing", ["pip x"]),
        (":env:.no-index='1'", "nothing", ["pip x"]),
    ],
)
def test_uv_installs_what_pip_does_where_pip_is_not_set_up_otherwise(
    tmp_path: Path, settings: str, failing: str, installed: list[str]
) -> None:
    python, told = tmp_path / "python", tmp_path / "told"
    python.write_text(
        f"""#!/bin/sh
[ "$3" = config ] && {{ echo "{settings}"; echo "global.cert='/its/cert'"; exit; }}
for last; do :; done
echo "$2 $last" >> {told}
[ "$2" = uv ] && echo "$SSL_CERT_FILE" > {tmp_path}/cert
[ "$2" != {failing} ] || [ "$last" = x -a "$2" = pip ]
"""
    )
    python.chmod(0o755)
    script("environment").install(python, ["x"], tmp_path / "log")
    assert told.read_text().splitlines() == installed
    assert "uv x" not in installed or (tmp_path / "cert").read_text() == "/its/cert\n"


@pytest.mark.parametrize(
    "name", ["setup.cfg", "scripts/environment.py", "scripts/horovod_edits.py", "scripts/horovod_in_xla.cc"]
)
def test_an_environment_is_made_anew_when_what_it_is_made_from_changes(tmp_path: Path, name: str) -> None:
    environment = script("environment")
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    for beside in ("setup.cfg", "pyproject.toml"):
        shutil.copy(ROOT / beside, tmp_path)
    environment.ROOT = tmp_path
    before = environment.fingerprint(False)
    with (tmp_path / name).open("a") as changed:
        changed.write("\n# changed\n")
    assert environment.fingerprint(False) != before


def test_a_missing_compiler_is_named_with_the_package_that_brings_it(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    done = run("scripts/build_horovod.py", "--nccl", "no", PATH=str(tmp_path), XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert done.returncode != 0
    assert done.stderr.strip() == (
        "build_horovod: no g++ on the PATH; install a C++ compiler and make (Debian: apt install g++ make)"
    )


def test_a_failed_build_ends_in_the_first_error_and_the_path_of_the_log(tmp_path: Path) -> None:
    build = script("build_horovod")
    log = tmp_path / "build.log"
    printed = tmp_path / "printed"
    printed.write_text("Building error.cc.o\nx.cc:1: fatal error: no such header\n")
    failing = ["sh", "-c", 'cat "$0"; exit 2', str(printed)]
    with pytest.raises(SystemExit) as ended:
        build.run(failing, log)
    assert "failed: x.cc:1: fatal error: no such header" in str(ended.value) and str(log) in str(ended.value)
    assert "Building error.cc.o" in log.read_text()


def test_a_tensorflow_too_old_for_the_edits_is_refused_before_anything_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("tensorflow")
    build = script("build_horovod")
    monkeypatch.setattr(build, "NEWEST_HEADER", "xla/of/later.h")
    with pytest.raises(SystemExit, match=r"TensorFlow [\d.]+ is too old .* has no xla/of/later\.h"):
        build.wheel_key(nccl=False)


def test_the_wheel_is_keyed_by_all_that_it_depends_on() -> None:
    pytest.importorskip("tensorflow")
    key = script("build_horovod").wheel_key(nccl=False)
    assert set(key) == {"horovod", "edits", "python", "tensorflow", "openmpi", "compiler", "nccl"}
    assert all(value for name, value in key.items() if name != "nccl")


def test_the_built_horovod_looks_for_the_name_that_exchanges_bear() -> None:
    exchange = pytest.importorskip("ringscope.ring.exchange", reason="no TensorFlow or Horovod")
    added = "".join(new for _, _, new in script("horovod_edits").EDITS)
    assert f'.find("{exchange.IN_STREAM}")' in added


def test_every_make_target_is_explained_by_make_help() -> None:
    said = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    targets = {line.split()[1] for line in said.splitlines()}
    assert {"help", "setup", "bench", "test", "test-all", "lint", "fuzz", "clean"} <= targets


def test_a_second_set_up_waits_for_the_first_and_finds_all_done(tmp_path: Path) -> None:
    environment = script("environment")
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(sys.executable)
    gpu = Path("/dev/nvidia0").exists() or Path("/dev/dxg").exists()
    with environment.alone(tmp_path / "venv.lock") as waited:
        assert not waited
        words = [sys.executable, "scripts/environment.py", "--venv", str(venv)]
        second = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert second.stdout is not None
        assert second.stdout.readline() == "another process makes venv; waiting for it\n"
        (venv / "ringscope.ready").write_text(environment.fingerprint(gpu))
    assert second.communicate(timeout=900) == ("", None) and second.returncode == 0
