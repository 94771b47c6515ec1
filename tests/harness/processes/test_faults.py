"""Faults end as rows, with real processes under Open MPI's mpirun; nothing outlives a sweep."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.running import DRIVE, PATIENCE_S, ROOT, carrying, rows, wait_until

MPIRUN = Path(sys.executable).with_name("mpirun")
pytestmark = pytest.mark.skipif(
    not (MPIRUN.exists() or shutil.which("mpirun")), reason="no mpirun: pip install '.[train-cpu]'"
)
SMALL = ["--models", "mlp", "--feeds", "prefetch", "--per-rank-batch", "8", "--launcher", "mpirun", "--steps", "10"]


def start(mode: str, out: Path, mark: str, *options: str) -> subprocess.Popen[str]:
    environ = os.environ | {"RINGSCOPE_TEST": mark, "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    argv = [sys.executable, str(DRIVE), mode, "--out", str(out), *options]
    return subprocess.Popen(
        argv,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # A shell's background jobs ignore Ctrl-C, and so would what they start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def bench(mode: str, out: Path, mark: str, *options: str) -> tuple[int, str]:
    process = start(mode, out, mark, *options)
    said, _ = process.communicate(timeout=PATIENCE_S)
    return process.returncode, said


AT_ONCE = {
    "crash": ("failed", "rank 1 ended with code 1: ValueError: the loss is not a number"),
    "killed": ("failed", "rank 1 was killed by SIGKILL"),
    "segfault": ("failed", "rank 1 was killed by SIGSEGV"),
    "memory": ("oom", "rank 1: MemoryError"),
}
STALLED = ("hung", "no step for 5 s (--stall-limit); rank 1 was at train step")
AFTER_THE_LIMIT = {"hung": STALLED, "stopped": STALLED}


@pytest.mark.parametrize(
    ("faults", "stall_s"),
    [
        pytest.param(AT_ONCE, PATIENCE_S, id="at once"),  # more than a busy machine takes to end a launch
        pytest.param(AFTER_THE_LIMIT, 5, id="after the limit", marks=pytest.mark.ci),
    ],
)
def test_a_fault_is_a_row_and_the_sweep_goes_on(
    faults: dict[str, tuple[str, str]], stall_s: int, tmp_path: Path, mark: str
) -> None:
    """Each launch of the sweep has another fault."""
    out, launches = tmp_path / "out", str(len(faults))
    options = [*SMALL, "--ranks", "2", "--launches", launches, "--stall-limit", str(stall_s)]
    code, said = bench(",".join(faults), out, mark, *options)
    assert code == 1, said
    found = sorted(rows(out), key=lambda row: int(row["launch"]))
    assert [row["status"] for row in found] == [status for status, _ in faults.values()], said
    for row, mode in zip(found, faults, strict=True):
        assert row["reason"].startswith(faults[mode][1])
        assert ("stopped (SIGSTOP or a debugger): rank 1" in row["reason"]) is (mode == "stopped")
        assert row["samples_per_s_global"] == ""
    assert len(list(out.glob("*/*/rank1.log"))) == len(faults)
    assert carrying(mark) == []


@pytest.mark.exhaustive  # waits for its limit; it alone deletes what a sweep is about to write
def test_a_run_directory_that_is_deleted_meanwhile_ends_in_a_sentence(tmp_path: Path, mark: str) -> None:
    out = tmp_path / "out"
    options = [*SMALL, "--ranks", "2", "--launches", "1", "--stall-limit", "5"]
    process = start("hung", out, mark, *options)
    wait_until(lambda: len(list(out.glob("*/*/rank*.progress"))) == 2, PATIENCE_S, process.poll)
    while out.exists():  # a rank may just make another file
        shutil.rmtree(out, ignore_errors=True)
    said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1, said  # drive.py shows the error as it is
    last = said.splitlines()[-1]
    assert last.startswith("profiles.ground.errors.RingscopeError: ") and "record.json: No such file" in last
    assert carrying(mark) == []


@pytest.fixture
def small_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A memory cgroup of 100 MB, of either version; skips where this machine gives none."""
    first = Path("/sys/fs/cgroup/memory")
    group = (first if first.is_dir() else Path("/sys/fs/cgroup")) / f"ringscope-test-{os.getpid()}"
    try:
        group.mkdir()
        limit = group / ("memory.limit_in_bytes" if first.is_dir() else "memory.max")
        limit.write_text("100000000")
    except OSError as error:
        pytest.skip(f"no memory cgroup may be made here: {error}")
    monkeypatch.setenv("RINGSCOPE_CGROUP", str(group))
    yield group
    group.rmdir()


@pytest.mark.root
def test_a_rank_that_the_kernel_kills_for_memory_is_a_row(small_memory: Path, tmp_path: Path, mark: str) -> None:
    out = tmp_path / "out"
    code, said = bench("kernel", out, mark, *SMALL, "--ranks", "2", "--launches", "1")
    assert code == 1, said
    assert [row["status"] for row in rows(out)] == ["oom"]
    assert rows(out)[0]["reason"].startswith("rank 1 was killed by the kernel for memory")


@pytest.mark.parametrize("launcher", ["mpirun", pytest.param("horovodrun", marks=pytest.mark.exhaustive)])
def test_a_host_that_cannot_be_reached_is_a_row(launcher: str, tmp_path: Path, mark: str) -> None:
    if launcher == "horovodrun":
        pytest.importorskip("horovod", reason="Horovod is not installed")
    out = tmp_path / "out"
    away = ["--hosts", "localhost:1,nowhere.invalid:1", "--launcher", launcher]
    code, said = bench("ok", out, mark, *SMALL, "--ranks", "2", "--launches", "1", *away)
    assert code == 1, said
    assert [row["status"] for row in rows(out)] == ["unreachable"]
    assert "nowhere.invalid" in rows(out)[0]["reason"]


def test_a_launch_over_its_time_limit_is_a_row(tmp_path: Path, mark: str) -> None:
    out = tmp_path / "out"
    code, said = bench(
        "ok", out, mark, *SMALL, "--steps", "100000", "--ranks", "2", "--launches", "1", "--time-limit", "3"
    )
    assert code == 1, said
    assert [row["status"] for row in rows(out)] == ["timeout"]
    assert carrying(mark) == []


def test_a_batch_that_does_not_divide_is_a_row_and_the_others_run(tmp_path: Path, mark: str) -> None:
    out = tmp_path / "out"
    options = [*SMALL, "--per-rank-batch", "9", "--scaling", "strong", "--ranks", "1,2,3", "--launches", "1"]
    code, said = bench("ok", out, mark, *options)
    assert code == 1, said
    assert {row["ranks"]: row["status"] for row in rows(out)} == {"1": "ok", "2": "indivisible", "3": "ok"}
    for row in rows(out):
        # 10 ms a step, in which all ranks together do 9 samples: no more than this can have been done.
        assert row["status"] != "ok" or 0 < float(row["samples_per_s_global"]) <= 9 / 0.010
    assert carrying(mark) == []


def test_what_daemonises_itself_ends_with_its_launch(tmp_path: Path, mark: str) -> None:
    bench("daemon", tmp_path / "out", mark, *SMALL, "--ranks", "1", "--launches", "1")
    assert carrying(mark) == []


@pytest.fixture
def hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """While this file is there, no more launches than the number in it come to an end."""
    monkeypatch.setenv("RINGSCOPE_TEST_HOLD", str(tmp_path / "hold"))
    return tmp_path / "hold"


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.exhaustive)])
def test_an_interrupted_sweep_ends_its_ranks_and_can_be_resumed(
    number: signal.Signals, tmp_path: Path, mark: str, hold: Path
) -> None:
    out = tmp_path / "out"
    hold.write_text("0")
    process = start("ok", out, mark, *SMALL, "--ranks", "2", "--launches", "1")
    wait_until(lambda: list(out.glob("*/0/rank1.progress")), PATIENCE_S, lambda: "no rank came up")
    process.send_signal(number)
    said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, said
    assert [row["status"] for row in rows(out)] == ["interrupted"]
    assert "--resume" in said
    assert carrying(mark) == []
    hold.unlink()
    code, said = bench("ok", out, mark, "--resume")
    assert code == 0, said
    assert [row["status"] for row in rows(out)] == ["ok"]


def test_after_kill_9_no_process_survives_and_resume_repeats_nothing(tmp_path: Path, mark: str, hold: Path) -> None:
    out = tmp_path / "out"
    hold.write_text("1")
    process = start("ok", out, mark, *SMALL, "--ranks", "2", "--launches", "2")
    wait_until(lambda: len(list(out.glob("*/*/rank1.progress"))) == 2, PATIENCE_S, lambda: "no second launch")
    process.kill()
    process.wait()
    wait_until(lambda: not carrying(mark), PATIENCE_S, lambda: "processes survive their sweep")
    before = finished(out)
    assert len(before) == 1
    hold.unlink()
    for path in out.rglob("*.json"):
        json.loads(path.read_text())
    code, said = bench("ok", out, mark, "--resume")
    assert code == 0, said
    after = finished(out)
    assert len(after) == 2
    assert {path: text for path, text in after.items() if path in before} == before
    assert "1 launch" in said


def finished(out: Path) -> dict[Path, str]:
    """record.json of every launch that has a result."""
    found = [path for path in out.glob("*/*/record.json") if path.parent.name.isdigit()]
    texts = {path: path.read_text() for path in found}
    return {path: text for path, text in texts.items() if json.loads(text)["status"] != "interrupted"}


def test_two_sweeps_cannot_write_one_directory(tmp_path: Path, mark: str, hold: Path) -> None:
    out = tmp_path / "out"
    hold.write_text("0")
    process = start("ok", out, mark, *SMALL, "--ranks", "1", "--launches", "1")
    wait_until(
        lambda: (out / "sweep.json").exists() and list(out.glob("*/0")), PATIENCE_S, lambda: "the sweep did not begin"
    )
    code, said = bench("ok", out, mark, "--resume")
    process.kill()
    process.communicate()
    assert code != 0 and "another ringscope" in said
