"""What reads recordings works without what only Linux has: on macOS the names below are not there.

Not a Mac: names that Python's documentation calls Linux's alone, prctl(2) and /proc are taken away, in every process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.recordings import DATA, ROOT

WITHOUT = """
import builtins, ctypes, io, os, select, sys

for module, names in {
    os: "sched_getaffinity sched_setaffinity memfd_create eventfd pidfd_open copy_file_range posix_fadvise getrandom",
    select: "epoll",
}.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)

found = ctypes.CDLL.__getattr__
def of_libc(library, name):
    if name in ("prctl", "malloc_trim"):
        raise AttributeError(name)
    return found(library, name)
ctypes.CDLL.__getattr__ = of_libc

opened = io.open
def without_proc(file, *args, **more):
    asks = sys._getframe(1).f_globals.get("__name__", "")
    if str(file).startswith("/proc") and not asks.startswith("psutil"):  # which has a part of its own for each system
        raise FileNotFoundError(2, "No such file or directory", file)
    return opened(file, *args, **more)
builtins.open = io.open = without_proc
"""


@pytest.fixture
def elsewhere(tmp_path: Path) -> dict[str, str]:
    """An environment whose every Python lacks them."""
    (tmp_path / "sitecustomize.py").write_text(WITHOUT)
    return os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "XDG_CACHE_HOME": str(tmp_path / "cache")}


@pytest.mark.ci
def test_eight_recordings_are_measured_by_several_processes(elsewhere: dict[str, str], tmp_path: Path) -> None:
    recordings = sorted(str(path) for kind in ("cnn", "dense41m", "vgg16") for path in DATA.glob(f"{kind}-*.sqlite.xz"))
    found = []
    for name, environ in (("here", dict(os.environ)), ("elsewhere", elsewhere)):
        out = tmp_path / f"{name}.json"
        command = [sys.executable, "-m", "harness", "timeline", *recordings, "--json", str(out)]
        done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        found.append(json.loads(out.read_text()))
    assert found[0] == found[1]
    assert len(found[1]["recordings"]) == 8  # as many as processes are worth it for


@pytest.mark.ci
def test_an_nsys_report_is_exported(elsewhere: dict[str, str], tmp_path: Path) -> None:
    """By an nsys that is a script here: what counts is that it is started, and ended with us."""
    exported, report = tmp_path / "exported.sqlite", tmp_path / "a.nsys-rep"
    subprocess.run(f"xz -dc {DATA / 'vgg16-1gpu-device.rank0.sqlite.xz'} > {exported}", shell=True, check=True)
    report.write_bytes(b"NVIDIA Tegra Profiler Report" + bytes(64))
    nsys = tmp_path / "nsys"
    nsys.write_text(f'#!/bin/sh\nwhile [ "$1" != --output ]; do shift; done\ncp {exported} "$2"\n')
    nsys.chmod(0o755)
    environ = elsewhere | {"PATH": f"{tmp_path}{os.pathsep}{elsewhere['PATH']}"}
    command = [sys.executable, "-m", "harness", "timeline", str(report), "--json", "-"]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["gpus"][0]["kernels"]["count"] > 0
