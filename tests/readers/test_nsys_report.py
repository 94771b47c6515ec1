"""nsys's own reports: with the real nsys where there is one, and what happens without and around it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.training import Shape
from benchmarks.write import WRITERS
from profiles import readers
from profiles.ground.errors import UnreadableRecording
from profiles.readers.nsys import report as nsys_rep

from ..recordings import fingerprint

REPORT = b"NVIDIA Tegra Profiler Report 1.\n" + bytes(100)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "ringscope"


@pytest.fixture
def report(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "run.nsys-rep").write_bytes(REPORT)
    return folder / "run.nsys-rep"


def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """A program called nsys, alone on the PATH; it writes down each call."""
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    program = folder / "nsys"
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n{script}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return tmp_path / "calls"


def test_without_nsys_the_error_says_how_to_export(report: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(
        UnreadableRecording, match="no nsys is on the PATH.*nsys export -t sqlite -o run.sqlite run.nsys-rep"
    ):
        readers.read(report)


def test_an_export_is_kept_by_content_and_used_again(
    report: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for nsys, which hands out a built export. Its sixth word is the target, its eighth the report."""
    export = tmp_path / "export.sqlite"
    WRITERS["nsys"](Shape(steps=3, kernels=20, gpus=2, processes=1), export, None)
    calls = stand_in(tmp_path, monkeypatch, f'cp {export} "$6"; touch "$8.log"')
    before = fingerprint(report.parent)
    read = readers.read(report)
    assert read.kernels.equals(readers.read(export).kernels) and read.recording.path == str(report)
    renamed = report.rename(report.with_name("other-name"))
    assert len(readers.read(renamed).kernels) == len(read.kernels)
    assert len(calls.read_text().splitlines()) == 1
    assert len(list(cache.iterdir())) == 1
    renamed.rename(report)
    assert fingerprint(report.parent).keys() == before.keys()
    assert fingerprint(report.parent)["run.nsys-rep"] == before["run.nsys-rep"]
    readers.read(report, cache=False)
    assert len(calls.read_text().splitlines()) == 2 and len(list(cache.iterdir())) == 1


def test_the_cache_is_capped_and_what_was_used_last_stays(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export = tmp_path / "export.sqlite"
    WRITERS["nsys"](Shape(steps=3, kernels=20, gpus=2, processes=1), export, None)
    stand_in(tmp_path, monkeypatch, f'cp {export} "$6"')
    monkeypatch.setattr(nsys_rep, "CACHE_BYTES", 2 * export.stat().st_size)
    for number in range(4):
        path = tmp_path / f"{number}.nsys-rep"
        path.write_bytes(REPORT + bytes([number]))
        readers.read(path)
        for age, kept in enumerate(sorted(cache.iterdir(), key=lambda kept: kept.stat().st_mtime, reverse=True)):
            os.utime(kept, (1e9 - age, 1e9 - age))
    assert len(list(cache.iterdir())) == 2
    assert (cache / f"{nsys_rep._digest(path)}.sqlite").exists()


def test_an_export_that_fails_says_what_nsys_said_and_keeps_nothing(
    report: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch, "echo unsupported version >&2; exit 3")
    with pytest.raises(UnreadableRecording, match="failed and said: unsupported version.*at least as new") as caught:
        readers.read(report)
    assert caught.value.path == str(report) and not list(cache.iterdir())


def test_an_nsys_that_cannot_export_blobs_exports_the_rest(
    report: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export = tmp_path / "export.sqlite"
    WRITERS["nsys"](Shape(steps=3, kernels=20, gpus=2, processes=1), export, None)
    refuses = """case "$7" in --include*) echo "unrecognised option '$7'" >&2; exit 1;; esac"""
    calls = stand_in(tmp_path, monkeypatch, f'{refuses}; cp {export} "$6"')
    assert len(readers.read(report).kernels)
    assert len(calls.read_text().splitlines()) == 2


def test_a_cache_that_cannot_be_made_is_done_without(
    report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export = tmp_path / "export.sqlite"
    WRITERS["nsys"](Shape(steps=3, kernels=20, gpus=2, processes=1), export, None)
    stand_in(tmp_path, monkeypatch, f'cp {export} "$6"')
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert len(readers.read(report).kernels)


@pytest.mark.skipif(shutil.which("nsys") is None, reason="no nsys here: reports are recorded and exported where it is")
def test_a_report_of_the_real_nsys_is_exported(tmp_path: Path, cache: Path) -> None:
    """Real: recorded here. Without a GPU it holds no GPU work, which is what must be said of it."""
    report = tmp_path / "real.nsys-rep"
    command = ["nsys", "profile", "-t", "nvtx,osrt", "-s", "none", "--cpuctxsw=none", "-o", str(tmp_path / "real")]
    subprocess.run([*command, sys.executable, "-c", "import time; time.sleep(0.1)"], check=True, capture_output=True)
    if not report.exists():
        pytest.skip("this nsys cannot import its own recording (its importer is not installed)")
    assert nsys_rep.is_report(report)
    with pytest.raises(UnreadableRecording, match="a recording without GPU work"):
        readers.read(report)
    assert len(list(cache.iterdir())) == 1
