"""Ranks on two hosts: two namespaces with an sshd each, joined by a veth pair (scripts/two_hosts.sh)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.root
ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "two_hosts.sh"
CANNOT_HERE = 77


def on_host_a(*argv: object, timeout: int = 120) -> subprocess.CompletedProcess[str]:
    """Run a command on host a, beside which there is a host b. Skips with the reason where that may not be."""
    done = subprocess.run([SCRIPT, *map(str, argv)], capture_output=True, text=True, timeout=timeout, cwd=ROOT)
    if done.returncode == CANNOT_HERE:
        pytest.skip(done.stderr.strip())
    return done


def test_the_two_hosts_have_names_networks_and_processes_of_their_own():
    here = Path("/etc/hosts").read_bytes()
    look = "hostname; ip -brief link show dev eth0 | cut -d@ -f1; ps -e | wc -l"
    done = on_host_a("sh", "-c", f"{look}; ssh b '{look}'; exit 5")
    assert done.returncode == 5, done.stderr
    a, a_interface, a_processes, b, b_interface, b_processes = done.stdout.split()
    assert (a, b) == ("a", "b")
    assert a_interface == b_interface == "eth0"
    assert int(a_processes) < 10
    assert int(b_processes) < 10
    assert Path("/etc/hosts").read_bytes() == here


@pytest.mark.train
@pytest.mark.parametrize("launcher", ["horovodrun", "mpirun"])
def test_each_launcher_starts_a_rank_on_each_host(launcher, tmp_path):
    pytest.importorskip("horovod", reason="Horovod is not installed")
    tell = f'echo "$(hostname) $RINGSCOPE_RANK $RINGSCOPE_SIZE" > {tmp_path}/rank$RINGSCOPE_RANK'
    code = (
        "import os, subprocess, sys\n"
        "from harness import launch\n"
        "from harness.launch import hosts\n"
        "job = launch.command(['sh', '-c', sys.argv[2]], ranks=3, launcher=sys.argv[1], environ=os.environ,\n"
        "                     hosts=hosts.parse('a:1,b:2'))\n"
        "sys.exit(subprocess.run(job.argv, env=job.env).returncode)\n"
    )
    done = on_host_a(sys.executable, "-c", code, launcher, tell)
    assert done.returncode == 0, done.stderr
    said = [(tmp_path / f"rank{rank}").read_text().split() for rank in range(3)]
    assert said == [["a", "0", "3"], ["b", "1", "3"], ["b", "2", "3"]]
