"""Open MPI's `mpirun` (5.x: two dashes, PRRTE underneath)."""

from __future__ import annotations

from collections.abc import Sequence

from .hosts import Host

SSH_ARGS = "-o BatchMode=yes -o ConnectTimeout=15 -o StrictHostKeyChecking=accept-new"


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
        *passed,
        *launcher_args,
        *rank_argv,
    ]
