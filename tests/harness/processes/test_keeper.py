"""The keeper alone: exit codes, signals, what it leaves and what it does not."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from harness.processes import keeper
from harness.processes.outcome import judge
from tests.harness.running import PATIENCE_S, ROOT, environment, wait_until

needs_mpirun = pytest.mark.skipif(
    not shutil.which("mpirun", path=environment()["PATH"]), reason="no mpirun: pip install '.[train-cpu]'"
)


def start(*words: str, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "harness.processes.keeper", *words],
        cwd=ROOT,
        env=os.environ | environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(*words: str, **environ: str) -> tuple[int, str, str]:
    process = start(*words, **environ)
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, err


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -SEGV $$", 128 + signal.SIGSEGV)])
def test_a_commands_exit_code_is_its_keepers(script: str, code: int) -> None:
    assert run("--", "sh", "-c", script)[0] == code


def test_a_command_that_is_not_there_is_said() -> None:
    code, _, err = run("--", "no-such-program")
    assert code == 127 and "ringscope: cannot start no-such-program" in err


@pytest.mark.parametrize(("names", "value"), [("HOROVOD", "3"), ("OMPI_COMM_WORLD", "5"), ("PMI", "1")])
def test_a_rank_finds_its_number_by_one_name_under_every_launcher(names: str, value: str) -> None:
    told = {f"{names}_RANK": value, f"{names}_SIZE": "8"}
    assert run("--rank", "--", "sh", "-c", "echo $RINGSCOPE_RANK $RINGSCOPE_SIZE", **told)[1] == f"{value} 8\n"


def test_a_ranks_output_and_end_go_to_its_files(tmp_path: Path) -> None:
    code, out, _ = run("--rank", "--log-dir", str(tmp_path), "--", "sh", "-c", "echo hello; exit 3", HOROVOD_RANK="2")
    assert (code, out) == (3, "")
    assert (tmp_path / "rank2.log").read_text() == "hello\n"
    end = json.loads((tmp_path / "rank2.end.json").read_text())
    assert (end["exit_code"], end["signal"], end["host"]) == (3, None, socket.gethostname())


def test_what_a_command_leaves_running_ends_with_it(tmp_path: Path) -> None:
    script = f"setsid sleep 600 & echo $! > {tmp_path}/pid; wait -n 0.1 2>/dev/null; exit 0"
    assert run("--", "bash", "-c", script)[0] == 0
    left = int((tmp_path / "pid").read_text())
    with contextlib.suppress(psutil.NoSuchProcess):  # it may be reaped while it is looked at
        assert psutil.Process(left).status() == psutil.STATUS_ZOMBIE


@needs_mpirun
def test_a_killed_mpirun_leaves_nothing_and_the_next_of_its_process_id_starts(tmp_path: Path) -> None:
    environ = environment() | {"TMPDIR": str(tmp_path)}
    up = tmp_path / "up"
    keeper = start("--", "mpirun", "-np", "1", "sh", "-c", f"touch {up}; sleep 600", **environ)
    wait_for(up)
    psutil.Process(keeper.pid).children()[0].kill()
    keeper.communicate(timeout=PATIENCE_S)
    up.unlink()
    assert not list(tmp_path.glob("ringscope-*")) and not list(tmp_path.glob("ompi.[0-9]*"))
    # What one that nobody kept may have left, and that exec keeps the process id.
    leaves = f"mkdir {tmp_path}/ompi.$$; touch {tmp_path}/ompi.$$/pmix.{socket.gethostname()}.tool"
    code, out, err = run("--", "sh", "-c", f"{leaves}; exec mpirun -np 1 echo started", **environ)
    assert (code, out) == (0, "started\n"), err


def test_a_command_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    keeper = start("--", "sh", "-c", f"trap '' TERM; touch {tmp_path}/up; while true; do sleep 1; done")
    wait_for(tmp_path / "up")
    keeper.send_signal(signal.SIGTERM)
    keeper.communicate(timeout=PATIENCE_S)
    assert keeper.returncode == 128 + signal.SIGKILL


def test_a_command_may_end_itself_on_sigterm(tmp_path: Path) -> None:
    keeper = start("--", "sh", "-c", f"trap 'exit 9' TERM; touch {tmp_path}/up; sleep 600 & wait")
    wait_for(tmp_path / "up")
    keeper.send_signal(signal.SIGTERM)
    keeper.communicate(timeout=PATIENCE_S)
    assert keeper.returncode == 9


def test_the_command_ends_when_the_lifeline_does(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        line = f"127.0.0.1:{listener.getsockname()[1]}"
        keeper = start("--lifeline", line, "--", "sh", "-c", f"touch {tmp_path}/up; sleep 600")
        held, _ = listener.accept()
        wait_for(tmp_path / "up")
        held.close()
        keeper.communicate(timeout=PATIENCE_S)
    assert keeper.returncode == 128 + signal.SIGKILL


def test_without_a_lifeline_to_hold_nothing_is_started(tmp_path: Path) -> None:
    with socket.socket() as mute:  # holds a port, and listens to nobody
        mute.bind(("127.0.0.1", 0))
        line = f"127.0.0.1:{mute.getsockname()[1]}"
        code, _, err = run("--lifeline", line, "--", "touch", str(tmp_path / "up"))
    assert code == 127 and "cannot reach the sweep" in err
    assert not (tmp_path / "up").exists()


def wait_for(path: Path) -> None:
    wait_until(path.exists, PATIENCE_S, lambda: path)


@pytest.mark.parametrize("after", ["time.sleep(600)", "sys.exit(0)"], ids=["it goes on", "it is over at once"])
def test_a_rank_that_holds_more_memory_than_it_may_is_out_of_memory(after: str, tmp_path: Path) -> None:
    script = f"import sys, time; held = b'1' * 200_000_000; {after}"
    words = ["--rank", "--log-dir", str(tmp_path), "--memory-limit-mb", "100", "--", sys.executable, "-c", script]
    run(*words, HOROVOD_RANK="0")
    end = json.loads((tmp_path / "rank0.end.json").read_text())
    assert end["over_memory_limit_mb"] == 100 and end["max_rss_bytes"] > 100 << 20
    found = judge(tmp_path, processes=1, exit_code=1, stopped=None, remote=False)
    assert found.status == "oom"
    assert re.match(r"rank 0 used \d+ MiB of host memory, more than 100 \(--memory-limit-mb\)", found.reason)
    (tmp_path / "rank0.progress").write_text('{"phase": "import", "step": 0, "of": 0}   \n')
    found = judge(tmp_path, processes=1, exit_code=1, stopped=None, remote=False)
    assert re.match(r"rank 0 used \d+ MiB of host memory before it had a model, more than 100 ", found.reason)


def test_a_rank_ended_for_its_memory_is_told_so_where_the_kernels_two_accounts_differ(tmp_path: Path) -> None:
    """VmHWM said more than the limit, and ended the rank; getrusage says some pages less afterwards."""
    limit_mb = 10**6  # more than any child of this process has held
    end = tmp_path / "rank0.end.json"
    keeper._write_end(end, -9, 0, limit_mb, (limit_mb << 20) + 1)
    assert json.loads(end.read_text())["over_memory_limit_mb"] == limit_mb
    keeper._write_end(end, -9, 0, limit_mb, limit_mb << 20)
    assert "over_memory_limit_mb" not in json.loads(end.read_text())


def test_a_rank_that_holds_less_than_it_may_is_left_alone(tmp_path: Path) -> None:
    script = "held = b'1' * 50_000_000"
    words = ["--rank", "--log-dir", str(tmp_path), "--memory-limit-mb", "400", "--", sys.executable, "-c", script]
    assert run(*words, HOROVOD_RANK="0")[0] == 0
    assert "over_memory_limit_mb" not in json.loads((tmp_path / "rank0.end.json").read_text())
