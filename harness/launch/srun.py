"""`srun --mpi=pmix`: Slurm itself starts the ranks, which use Open MPI. It works only inside an allocation."""

from __future__ import annotations

from collections.abc import Sequence

from .hosts import Host


def argv(
    rank_argv: Sequence[str], *, ranks: int, hosts: Sequence[Host], env: dict[str, str], launcher_args: Sequence[str]
) -> list[str]:
    """The command line. Ranks fill node after node, are not bound to cores, and inherit `env` from srun."""
    where = [f"--nodes={len(hosts)}", f"--nodelist={','.join(host.name for host in hosts)}"] if hosts else []
    # srun takes no --cpus-per-task from the allocation (srun(1), since 22.05).
    cpus = [f"--cpus-per-task={env['SLURM_CPUS_PER_TASK']}"] if env.get("SLURM_CPUS_PER_TASK") else []
    return [
        "srun",
        "--mpi=pmix",
        f"--ntasks={ranks}",
        *where,
        *cpus,
        "--distribution=block",
        "--cpu-bind=none",
        "--kill-on-bad-exit=1",
        "--unbuffered",
        "--export=ALL",
        *launcher_args,
        *rank_argv,
    ]
