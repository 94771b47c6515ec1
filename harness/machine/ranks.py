"""The rank of a process, read from its launcher's variables, so that it is known before any framework is loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping

# The variables are set by horovodrun, Open MPI, PyTorch's launchers, any launcher of PMIx (srun --mpi=pmix), PMI, srun.
_RANK = ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
_LOCAL_RANK = (*("HOROVOD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"),)
_LOCAL_SIZE = ("HOROVOD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "LOCAL_WORLD_SIZE", "MPI_LOCALNRANKS")
# SLURM_NTASKS is left out, because it is set in the whole allocation, also outside a job step of srun.
_SIZE = ("HOROVOD_SIZE", "OMPI_COMM_WORLD_SIZE", "WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
# torchrun, accelerate and deepspeed set all three. One alone says nothing, because scripts use RANK for other things.
_OF_TORCH = frozenset({"RANK", "LOCAL_RANK", "WORLD_SIZE"})
_OF_TORCH_ALONE = _OF_TORCH | {"LOCAL_WORLD_SIZE"}
# Variables that describe one rank. A launch removes them from its environment, where they describe a rank of an outer
# launcher; the inner launcher sets its own.
OF_ONE_RANK = frozenset({*_RANK, *_LOCAL_RANK, *_SIZE, *_LOCAL_SIZE} - _OF_TORCH_ALONE) | {"RINGSCOPE_RANK"}
# accelerate sets this in its processes. It sets no rank if it starts only one process.
_ALONE = "ACCELERATE_MIXED_PRECISION"


def is_told(environ: Mapping[str, str] = os.environ) -> bool:
    """True if the variables of a launcher say that this process is a rank."""
    return any(_number(environ, name) is not None for name in _RANK) or _ALONE in environ


def rank(environ: Mapping[str, str] = os.environ) -> int:
    """This process's rank; 0 without a launcher."""
    return _first(environ, _RANK, 0)


def local_rank(environ: Mapping[str, str] = os.environ) -> int:
    """This process's number on its host; 0 without a launcher."""
    return _first(environ, _LOCAL_RANK, 0)


def size(environ: Mapping[str, str] = os.environ) -> int:
    """The number of ranks that the launcher started; 1 without a launcher."""
    return _first(environ, _SIZE, 1)


def local_size(environ: Mapping[str, str] = os.environ) -> int:
    """The number of ranks on this host; the number of all ranks if the launcher does not say."""
    return _first(environ, _LOCAL_SIZE, size(environ))


def _first(environ: Mapping[str, str], names: tuple[str, ...], otherwise: int) -> int:
    # under torchrun its own variables come first, because srun or mpirun may have started one torchrun on each host
    if "TORCHELASTIC_RUN_ID" in environ:
        names = tuple(sorted(names, key=lambda name: name not in _OF_TORCH_ALONE))
    found = (_number(environ, name) for name in names)
    return next((number for number in found if number is not None), otherwise)


def _number(environ: Mapping[str, str], name: str) -> int | None:
    if name in _OF_TORCH_ALONE and not environ.keys() >= _OF_TORCH:
        return None
    return int(environ[name]) if environ.get(name, "").isdigit() else None
