"""Ranks on two hosts: namespaces with an sshd each, joined by a veth pair (scripts/hosts.sh).

They alone catch files, faults and kills that get lost between two disks.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from harness.machine import describe
from tests.harness.launch.test_users_launcher import ENDS as NSYS_OF_NOTHING
from tests.harness.running import DRIVE, PATIENCE_S, ROOT, rows, wait_until

pytestmark = [pytest.mark.root, pytest.mark.train, pytest.mark.exhaustive]
SCRIPT = ROOT / "scripts" / "hosts.sh"
CANNOT_HERE = 77
LAUNCHERS = ["horovodrun", "mpirun"]
KEEP_THE_HOSTS = ("sshd", "sh", "sleep")  # a host's first process, and what waits on host a when the sweep has ended
SMALL = ["--models", "mlp", "--per-rank-batch", "8", "--launches", "1"]


@pytest.fixture(autouse=True)
def _horovod_is_here() -> None:
    pytest.importorskip("horovod", reason="Horovod is not installed")


def environment(shared: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100", "HOSTS_SHARE": str(shared)}


def on_host_a(shared: Path, *argv: object, timeout: int = 900) -> subprocess.CompletedProcess[str]:
    """Run a command on host a, beside which there is a host b. Skips with the reason where that may not be."""
    words = (SCRIPT, *map(str, argv))
    environ = environment(shared)
    done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, cwd=ROOT, env=environ)
    if done.returncode == CANNOT_HERE:
        pytest.skip(done.stderr.strip())
    return done


def test_the_two_hosts_have_names_networks_and_processes_of_their_own(tmp_path: Path) -> None:
    here = Path("/etc/hosts").read_bytes()
    look = "hostname; ip -brief link show dev eth0 | cut -d@ -f1; ps -e | wc -l"
    done = on_host_a(tmp_path, "sh", "-c", f"{look}; ssh b '{look}'; exit 5")
    assert done.returncode == 5, done.stderr
    a, a_interface, a_processes, b, b_interface, b_processes = done.stdout.split()
    assert (a, b) == ("a", "b")
    assert a_interface == b_interface == "eth0"
    assert int(a_processes) < 10
    assert int(b_processes) < 10
    assert Path("/etc/hosts").read_bytes() == here


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_sweep_trains_over_both_hosts(launcher: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = [*SMALL, "--feeds", "resident", "--ranks", "2", "--steps", "10", "--warmup", "2", "--launcher", launcher]
    done = on_host_a(tmp_path, sys.executable, "-m", "harness", "bench", "--hosts", "a:1,b:1", "--out", out, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [row["status"] for row in rows(out)] == ["ok"]
    ends = [next(out.glob(f"*/0/rank{rank}.end.json")).read_text() for rank in range(2)]
    assert ['"host": "a"' in ends[0], '"host": "b"' in ends[1]] == [True, True]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_ranks_fill_the_slots_of_host_after_host(launcher: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = [*SMALL, "--ranks", "3", "--steps", "10", "--launcher", launcher, "--hosts", "a:1,b:2"]
    done = on_host_a(tmp_path, sys.executable, DRIVE, "ok", "--out", out, "--feeds", "resident", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    where = [next(out.glob(f"*/0/rank{rank}.end.json")).read_text() for rank in range(3)]
    assert [next(host for host in "ab" if f'"host": "{host}"' in text) for text in where] == ["a", "b", "b"]


ELSEWHERE = "/tmp/elsewhere"  # on each host a directory of its own


def on_disks_of_their_own(shared: Path, *words: object, first: str = "true") -> tuple[int, str]:
    """Run ringscope on host a with --out where b sees nothing of it; it is then to be found in `shared`/out.

    `shared`/left lists what lies there on b afterwards. Returns the exit code and what was said.
    """
    ringscope = shlex.join(map(str, [*words, "--out", ELSEWHERE, "--hosts", "a:1,b:1"]))
    script = (
        f"{first}; {ringscope}; code=$?; cp -r {ELSEWHERE} $0/out; ssh b find {ELSEWHERE} -type f >$0/left; exit $code"
    )
    done = on_host_a(shared, "sh", "-c", script, shared)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_what_a_rank_wrote_on_a_host_with_a_disk_of_its_own_is_fetched(launcher: str, tmp_path: Path) -> None:
    bench = [sys.executable, DRIVE, "ok", *SMALL, "--feeds", "resident", "--ranks", "1,2", "--launcher", launcher]
    code, said = on_disks_of_their_own(tmp_path, *bench, "--launches", "2")
    assert code == 0, said
    assert [row["status"] for row in rows(tmp_path / "out")] == ["ok"] * 4
    for launch in (tmp_path / "out").glob("mlp-n2-*/[01]"):
        ends = [json.loads((launch / f"rank{rank}.end.json").read_text())["host"] for rank in range(2)]
        assert ends == ["a", "b"]
        kinds = {path.name for path in launch.iterdir()} - {"cell.json", "record.json", "launcher.log"}
        assert kinds == {f"rank{rank}.{kind}" for rank in range(2) for kind in ("log", "end.json", "jsonl", "progress")}
    assert (tmp_path / "left").read_text() == ""


def test_a_fault_on_a_host_with_a_disk_of_its_own_is_told_as_here(tmp_path: Path) -> None:
    bench = [sys.executable, DRIVE, "memory", *SMALL, "--feeds", "resident", "--ranks", "2", "--launcher", "mpirun"]
    code, said = on_disks_of_their_own(tmp_path, *bench)
    assert code == 1, said
    (row,) = rows(tmp_path / "out")
    assert (row["status"], row["reason"].split(":")[0]) == ("oom", "rank 1")


def test_files_that_cannot_be_fetched_are_a_row_that_says_what_to_do(tmp_path: Path) -> None:
    bench = [sys.executable, DRIVE, "ok", *SMALL, "--feeds", "resident", "--ranks", "2", "--launcher", "mpirun"]
    without_tar = "ssh b 'mount --bind /bin/false $(command -v tar)'"
    code, said = on_disks_of_their_own(tmp_path, *bench, first=without_tar)
    assert code == 1, said
    (row,) = rows(tmp_path / "out")
    assert row["status"] == "failed"
    assert re.search(
        r"rank 1 .* not shared, .* from b \(exit code 1\); name an --out that every host sees", row["reason"]
    )
    assert "rank1.jsonl" in (tmp_path / "left").read_text()


@pytest.mark.parametrize("hands", [True, False])
def test_record_names_a_rank_whose_host_does_not_get_the_variables(tmp_path: Path, *, hands: bool) -> None:
    """Open MPI's ssh hands on only the variables that -x names."""
    (tmp_path / "nsys").write_text(NSYS_OF_NOTHING)
    (tmp_path / "nsys").chmod(0o755)
    (tmp_path / "rank.py").write_text("import socket; print('trained on', socket.gethostname())")
    given = "-x PYTHONPATH -x RINGSCOPE_OWN" if hands else ""
    mpirun = f"{describe.which('mpirun')} --allow-run-as-root -np 2 --host a:1,b:1 {given} {sys.executable} rank.py"
    record = f"{sys.executable} -m harness record --profiler nsys --delay 0 --duration 1 --out out -- {mpirun}"
    done = on_host_a(tmp_path, "sh", "-c", f"cd {tmp_path}; PATH={tmp_path}:$PATH {record}")
    assert done.returncode == (0 if hands else 1), done.stdout + done.stderr
    assert "trained on a" in done.stdout and "trained on b" in done.stdout
    found = sorted(path.name for path in (tmp_path / "out" / "command" / "0").glob("*.sqlite"))
    assert found == ["rank0.sqlite", "rank1.sqlite"][: 1 + hands]
    assert ("not recorded: rank 1; keep PYTHONPATH and RINGSCOPE_OWN" in done.stdout) == (not hands)


def test_recordings_come_from_a_host_with_a_disk_of_its_own(tmp_path: Path) -> None:
    record = [sys.executable, "-m", "harness", "record", "--profiler", "tensorflow", "-np", "2"]
    code, said = on_disks_of_their_own(tmp_path, *record, "--model", "mlp", "--steps", "4", "--per-rank-batch", "8")
    assert code == 0, said
    assert {path.name for path in (tmp_path / "out").rglob("*.pb")} == {"rank0.xplane.pb", "rank1.xplane.pb"}
    assert (tmp_path / "left").read_text() == ""


@dataclass
class Sweep:
    """A sweep of long stand-ins over two hosts, seen from outside: the hosts stay when it ends."""

    script: subprocess.Popen[bytes]
    out: Path

    def ready(self, begun: Callable[[], object]) -> None:
        """Wait until `begun`; skips with the reason where there can be no two hosts."""
        wait_until(
            lambda: self.script.poll() is not None or begun(), PATIENCE_S, lambda: "the sweep did not get so far"
        )
        if self.script.poll() is not None:
            said = self.script.stdout.read().decode()
            pytest.skip(said) if self.script.returncode == CANNOT_HERE else pytest.fail(said)

    def first_process(self, host: str) -> psutil.Process | None:
        """The sshd that a host begins with."""
        for process in psutil.Process(self.script.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # others end while they are looked at
                if f"/run/hosts/start {host} " in _command(process) and process.name() == "unshare":
                    return next(iter(process.children()), None)
        return None

    def processes(self, hosts: str = "ab") -> list[psutil.Process]:
        """All that is alive on these hosts but their sshds and what keeps the hosts up."""
        first = [process.pid for process in map(self.first_process, hosts) if process]
        namespaces = set(map(_namespace, first))
        return [p for p in psutil.process_iter() if _namespace(p.pid) in namespaces and _counts(p)]

    def leader(self) -> psutil.Process:
        """The sweep itself."""
        return min((p for p in self.processes() if str(DRIVE) in _words(p)), key=lambda p: p.create_time())

    def cut_the_line(self) -> None:
        b = self.first_process("b")
        assert b is not None
        subprocess.run(["nsenter", "-t", str(b.pid), "--net", "ip", "link", "set", "eth0", "down"], check=True)

    def kill(self) -> None:
        """kill -9, and then nothing is left on either host, whose ranks would live for a quarter of an hour; the hosts
        themselves stay."""
        self.leader().kill()
        wait_until(lambda: not self.processes(), PATIENCE_S, lambda: f"left: {self.processes()}")
        assert self.script.poll() is None


def _namespace(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return None


def _words(process: psutil.Process | None) -> list[str]:
    """None of what has ended."""
    try:
        return list(process.cmdline()) if process else []
    except psutil.Error:
        return []


def _command(process: psutil.Process | None) -> str:
    return " ".join(_words(process))


def _counts(process: psutil.Process) -> bool:
    try:
        return process.name() not in KEEP_THE_HOSTS and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


@contextmanager
def begun(launcher: str, tmp_path: Path) -> Iterator[Sweep]:
    out = tmp_path / "out"
    options = [*SMALL, "--feeds", "resident", "--ranks", "2", "--steps", "100000", "--launcher", launcher]
    bench = [sys.executable, DRIVE, "ok", "--out", out, "--hosts", "a:1,b:1", "--stall-limit", "5", *options]
    argv = [SCRIPT, "sh", "-c", f"{shlex.join(map(str, bench))} & wait; exec sleep 600"]
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    script = subprocess.Popen(argv, cwd=ROOT, env=environment(tmp_path), **output)
    try:
        yield Sweep(script, out)
    finally:
        script.kill()
        script.communicate()


@pytest.fixture(params=LAUNCHERS)
def sweep(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sweep]:
    """A sweep whose ranks train on both hosts."""
    with begun(request.param, tmp_path) as found:
        found.ready(lambda: len(list(found.out.glob("*/0/rank*.progress"))) == 2)
        assert found.processes("a") and found.processes("b")
        yield found


def test_after_kill_9_nothing_is_left_on_either_host(sweep: Sweep) -> None:
    sweep.kill()


def test_after_kill_9_a_host_that_is_cut_off_ends_its_ranks_too(sweep: Sweep) -> None:
    sweep.cut_the_line()
    sweep.kill()


@pytest.mark.parametrize("cut", [False, True], ids=["reached", "cut off"])
def test_killed_while_horovodrun_looks_at_the_hosts_it_leaves_nothing_either(cut: bool, tmp_path: Path) -> None:
    with begun("horovodrun", tmp_path) as sweep:
        # Horovod's service on b, which finds out how the hosts reach each other before any rank starts
        sweep.ready(lambda: any("horovod.runner.task_fn" in _command(p) for p in sweep.processes("b")))
        if cut:
            sweep.cut_the_line()
        sweep.kill()


def test_a_host_that_dies_is_a_row(sweep: Sweep) -> None:
    b = sweep.first_process("b")
    assert b is not None
    b.kill()
    wait_until(lambda: (sweep.out / "results.csv").exists(), PATIENCE_S, lambda: "the sweep did not go on")
    assert rows(sweep.out)[0]["status"] in ("failed", "hung", "unreachable")
