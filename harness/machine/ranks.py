"""The rank of a process, by the variables of its launcher: known before any framework is loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping

# horovodrun, Open MPI, any launcher of PMIx (srun --mpi=pmix), PMI, srun.
_RANK = ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
_LOCAL_RANK = ("HOROVOD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
_LOCAL_SIZE = ("HOROVOD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
# Not SLURM_NTASKS, which is the whole allocation's also where nothing was started by srun.
_SIZE = ("HOROVOD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")


def rank(environ: Mapping[str, str] = os.environ) -> int:
    """This process's rank; 0 without a launcher."""
    return _first(environ, _RANK, 0)


def local_rank(environ: Mapping[str, str] = os.environ) -> int:
    """This process's number on its host; 0 without a launcher."""
    return _first(environ, _LOCAL_RANK, 0)


def size(environ: Mapping[str, str] = os.environ) -> int:
    """The number of ranks that the launcher started; 1 without one."""
    return _first(environ, _SIZE, 1)


def local_size(environ: Mapping[str, str] = os.environ) -> int:
    """The number of ranks on this host; all of them where the launcher does not tell."""
    return _first(environ, _LOCAL_SIZE, size(environ))


def _first(environ: Mapping[str, str], names: tuple[str, ...], otherwise: int) -> int:
    return next((int(environ[name]) for name in names if environ.get(name, "").isdigit()), otherwise)
