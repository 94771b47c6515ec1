"""What a launch left behind, and what became of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.processes.outcome import Outcome, judge
from profiles.runs.rank_records import RankRecord, write_rank
from tests.harness.running import ROOT


def write_ranks(folder: Path, count: int) -> None:
    for k in range(count):
        write_rank(folder / f"rank{k}.jsonl", RankRecord(k, 2, k, "a", None, 0, 30, 24, [10] * 3, [0] * 3))


def end(code: int | None = None, signal: int | None = None, oom_kills: int = 0) -> str:
    return json.dumps({"exit_code": code, "signal": signal, "oom_kills": oom_kills, "max_rss_bytes": 3 * 10**9})


def outcome(path: Path, *, code: int = 1, stopped: Outcome | None = None, remote: bool = False) -> Outcome:
    return judge(path, processes=2, exit_code=code, stopped=stopped, remote=remote)


def test_a_rank_that_the_kernel_killed_for_memory_is_out_of_memory(tmp_path: Path) -> None:
    (tmp_path / "rank1.end.json").write_text(end(signal=9, oom_kills=1))
    (tmp_path / "rank0.error.json").write_text('{"status": "failed", "reason": "HorovodInternalError: shut down"}')
    found = outcome(tmp_path)
    assert found == Outcome("oom", "rank 1 was killed by the kernel for memory at 3.0 GB")


def test_the_fault_wins_over_the_peers_that_tell_of_it(tmp_path: Path) -> None:
    (tmp_path / "rank0.error.json").write_text('{"status": "failed", "reason": "HorovodInternalError: shut down"}')
    (tmp_path / "rank1.error.json").write_text('{"status": "failed", "reason": "KeyError: 7"}')
    assert outcome(tmp_path) == Outcome("failed", "rank 1: KeyError: 7")


def test_an_error_is_told_and_not_the_code_that_raised_it(tmp_path: Path) -> None:
    (tmp_path / "rank0.end.json").write_text(end(code=1))
    (tmp_path / "rank0.log").write_text('Traceback:\n    raise MemoryError("no room")\nMemoryError: no room\n')
    assert outcome(tmp_path) == Outcome("oom", "rank 0: MemoryError: no room")


def test_a_host_that_cannot_be_reached_is_unreachable(tmp_path: Path) -> None:
    said = "ssh: connect to host b port 22: No route to host"
    (tmp_path / "launcher.log").write_text(f"...\n{said}\n")
    assert outcome(tmp_path, remote=True) == Outcome("unreachable", said)


def test_a_connection_refused_between_local_ranks_is_no_unreachable_host(tmp_path: Path) -> None:
    (tmp_path / "launcher.log").write_text("Connection refused\n")
    assert outcome(tmp_path).status == "failed"


def test_a_directory_that_a_host_does_not_see_is_said(tmp_path: Path) -> None:
    argv = [
        sys.executable,
        "-m",
        "harness.processes.keeper",
        "--rank",
        "--log-dir",
        str(tmp_path / "elsewhere"),
        "--",
        "true",
    ]
    said = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert said.returncode == 127
    (tmp_path / "launcher.log").write_text(f"[1]<stderr>:{said.stderr}Process 1 exit with status code 127.\n")
    found = outcome(tmp_path)
    assert found.status == "failed"
    assert found.reason.startswith(f"rank 0 does not see {tmp_path}/elsewhere") and "--out" in found.reason


def test_what_a_cell_cannot_do_is_unsupported(tmp_path: Path) -> None:
    (tmp_path / "rank0.error.json").write_text('{"status": "unsupported", "reason": "XLA cannot compile it"}')
    assert outcome(tmp_path) == Outcome("unsupported", "XLA cannot compile it")


def test_a_code_of_0_without_all_records_is_a_failure(tmp_path: Path) -> None:
    write_ranks(tmp_path, 1)
    assert outcome(tmp_path, code=0).status == "failed"
    write_ranks(tmp_path, 2)
    assert outcome(tmp_path, code=0) == Outcome("ok")


def test_records_that_could_not_be_fetched_are_said_with_the_host_and_the_way_out(tmp_path: Path) -> None:
    found = judge(tmp_path, processes=2, exit_code=0, stopped=None, remote=True, lost={"b": "tar: not found"})
    assert found.status == "failed"
    assert "b (tar: not found)" in found.reason and "--out" in found.reason


def test_half_a_record_is_a_failure(tmp_path: Path) -> None:
    write_ranks(tmp_path, 2)
    whole = (tmp_path / "rank1.jsonl").read_text()
    (tmp_path / "rank1.jsonl").write_text(whole[: len(whole) // 2])
    assert outcome(tmp_path, code=0).status == "failed"


def test_half_an_error_of_a_rank_is_not_the_end_of_the_sweep(tmp_path: Path) -> None:
    (tmp_path / "rank0.error.json").write_text('{"status": "fai')
    assert outcome(tmp_path).status == "failed"


@pytest.mark.parametrize(
    ("code", "log", "reason"),
    [
        (137, "I0000 00:00:1 1 port.cc:153] oneDNN custom operations are on.\n", "rank 1 was killed by SIGKILL"),
        (139, "Fatal\n", "rank 1 was killed by SIGSEGV"),
        (3, "ValueError: no\nI0000 00:00:1 1 port.cc:153] oneDNN is on\n", "rank 1 ended with code 3: ValueError: no"),
        (
            3,
            "E: all is lost\n2026-11-22 06:00:00.1: I tensorflow/x.cc:1] told\n",
            "rank 1 ended with code 3: E: all is lost",
        ),
        (1, "horovodrun gave up\n_queue.Empty\n", "rank 1 ended with code 1: horovodrun gave up"),
        (1, "", "rank 1 ended with code 1"),
    ],
)
def test_the_reason_is_the_line_that_says_something(tmp_path: Path, code: int, log: str, reason: str) -> None:
    (tmp_path / "rank1.end.json").write_text(end(code=code))
    (tmp_path / "rank1.log").write_text(log)
    assert outcome(tmp_path) == Outcome("failed", reason)
