"""`ringscope timeline --info` and `ringscope cut`, as they are typed."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import pytest

from benchmarks.training import Shape
from benchmarks.write import WRITERS
from profiles import cli, readers
from tests.recordings import ROOT

from ..recordings import OURS, fingerprint


def ringscope(*arguments: str | Path, code: int = 0, verb: str = "timeline") -> str:
    """What it printed, errors too; it must end with `code`."""
    out, err = io.StringIO(), io.StringIO()
    typed = ["ringscope", verb, *map(str, arguments)]
    with (
        patch.object(sys, "argv", typed),
        patch.dict(os.environ, COLUMNS="200"),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        cli.main()
    assert (ended.value.code or 0) == code, err.getvalue()
    return out.getvalue() + err.getvalue()


def started(*arguments: str | Path, code: int = 0, through: tuple[str, ...] = ()) -> str:
    """The same in a process of its own. `through`: a program that starts it."""
    command = [*through, sys.executable, "-m", "profiles", "timeline", *map(str, arguments)]
    environment = {**os.environ, "COLUMNS": "200"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, env=environment)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "run.sqlite"
    WRITERS["nsys"](Shape(steps=4, kernels=20, gpus=2, processes=1), path, None)
    return path


def test_info_tells_what_is_there_and_what_is_missing(tmp_path: Path) -> None:
    printed = tmp_path / "trace.csv"
    WRITERS["nvprof-csv"](Shape(steps=4, kernels=20, gpus=2, processes=1), printed, None)
    (tmp_path / "notes.txt").write_text("notes")
    (tmp_path / "empty.sqlite").touch()
    said = ringscope(OURS[0], tmp_path, "--info")
    real, built, doubts = said.split("\n\n")
    read = readers.read(OURS[0])
    for part in (
        "Nsight Systems 2025.3.2.0 (nsys-sqlite, schema 3.20.3)",
        "begun        2026-11-20 10:51:51 UTC",
        "rank         0 (from its file name)",
        f"GPU 0        NVIDIA H200 0000:00:06.0: {len(read.kernels):,} kernels, {len(read.copies):,} copies",
        "1 more GPU listed, without work",
        f"{len(read.api):,} API calls, {len(read.marks):,} marks",
    ):
        assert part in real
    (missing,) = (line for line in built.splitlines() if "not in it" in line)
    assert "CUDA calls" in missing and "NVTX marks" in missing
    assert not re.search(r"^ *rank .*\d", built, re.MULTILINE)
    assert "unreadable: " in doubts and "empty.sqlite: empty" in doubts and "1 other file in" in doubts


def test_a_slice_is_written_and_can_be_told_about(recording: Path, tmp_path: Path) -> None:
    before = fingerprint(tmp_path)["run.sqlite"]
    whole = readers.read(recording)
    last = int(whole.kernels["end_ns"].max())
    said = ringscope(recording, "--time", f":{last // 2}ns", "--shrink", "-o", tmp_path / "half.sqlite", verb="cut")
    assert str(tmp_path / "half.sqlite") in said and "CUPTI_ACTIVITY_KIND_KERNEL: " in said
    assert 0 < len(readers.read(tmp_path / "half.sqlite").kernels) < len(whole.kernels)
    assert "kernels" in ringscope(tmp_path / "half.sqlite", "--info")
    assert fingerprint(tmp_path)["run.sqlite"] == before


def test_what_cannot_be_done_is_one_line_exit_code_2_and_nothing_written(recording: Path, tmp_path: Path) -> None:
    before = list(fingerprint(tmp_path).items())[1:]  # the files: the folder itself saw a file come and go
    new = ("-o", tmp_path / "n")
    assert "missing option '-o'" in ringscope(recording, "--shrink", code=2, verb="cut")
    assert "unexpected extra argument" in ringscope(recording, recording, "--shrink", *new, code=2, verb="cut")
    assert "'x' is not a time" in ringscope(recording, "--time", "x:1s", *new, code=2, verb="cut")
    assert "exists already" in ringscope(recording, "--shrink", "-o", recording, code=2, verb="cut")
    assert "no GPU work in that span" in ringscope(recording, "--time", "900s:", *new, code=2, verb="cut")
    assert "no such file" in ringscope(tmp_path / "none", "--info", code=2)
    assert "no recordings there" in ringscope(ROOT / "docs" / "guides", "--info", code=2)
    assert "no file matches" in ringscope(f"{tmp_path}/*.nvvp", "--info", code=2)
    assert list(fingerprint(tmp_path).items())[1:] == before


def test_one_bad_recording_is_a_doubt_and_with_strict_the_end(recording: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.sqlite").write_bytes(recording.read_bytes()[:5000])
    assert "bad.sqlite: cut short" in ringscope(recording, tmp_path / "bad.sqlite", "--info")
    said = ringscope(recording, tmp_path / "bad.sqlite", "--info", "--strict", code=2)
    assert said.startswith("ringscope: ") and said.count("\n") == 1 and "cut short" in said


def test_what_may_not_be_read_is_said_wherever_it_lies(recording: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "closed").mkdir(parents=True)
    (folder / "open.sqlite").write_bytes(recording.read_bytes())
    (folder / "secret.sqlite").write_bytes(recording.read_bytes())
    through: tuple[str, ...] = ()
    if os.geteuid() == 0:  # root may read everything, unless it gives that up
        through = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search")
        if not shutil.which("setpriv"):
            pytest.skip("root may open every file, and there is no setpriv to become less")
    for path in (folder / "closed", folder / "secret.sqlite"):
        path.chmod(0)
    try:
        for path in (folder / "closed", folder / "secret.sqlite"):
            said = started(path, code=2, through=through)
            assert f"{path}: cannot be opened (Permission denied); check its permissions" in " ".join(said.split())
        said = " ".join(started(folder, "--info", through=through).split())
    finally:
        (folder / "closed").chmod(0o700)
    assert "open.sqlite recorded by Nsight Systems" in said
    for name in ("closed", "secret.sqlite"):
        assert f"{folder / name}: cannot be opened (Permission denied); this file is left out" in said


def test_a_recording_without_gpus_says_what_it_holds_instead() -> None:
    said = ringscope(ROOT / "tests" / "data" / "horovod" / "mpi-2-ranks.json", code=2)
    assert "only phases of collectives, no GPU operations" in said and "--info" in said
