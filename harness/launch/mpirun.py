"""Open MPI's `mpirun` (5.x: two dashes, PRRTE underneath)."""

from __future__ import annotations

from collections.abc import Sequence

from .hosts import Host

SSH_ARGS = "-o BatchMode=yes -o ConnectTimeout=15 -o StrictHostKeyChecking=accept-new"
# A daemon notices within 35 s that mpirun's host is cut off, as keepers do; by itself it takes 300 s and more.
_PROBES = {"time": "15", "intvl": "5", "probes": "4"}
KEEP_ALIVE = [word for name, value in _PROBES.items() for word in ("--prtemca", f"oob_tcp_keepalive_{name}", value)]


def argv(
    rank_argv: Sequence[str], *, ranks: int, hosts: Sequence[Host], env: dict[str, str], launcher_args: Sequence[str]
) -> list[str]:
    """Ranks fill host after host and are bound to no core: TensorFlow's threads need several."""
    where = ",".join(map(str, hosts)) or f"localhost:{ranks}"
    passed = [part for name in sorted(env) if not name.startswith("SLURM_") for part in ("-x", name)]
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
        "--prtemca",
        "plm_ssh_args",
        SSH_ARGS,
        *KEEP_ALIVE,
        *passed,
        *launcher_args,
        *rank_argv,
    ]
