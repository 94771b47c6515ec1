"""Slurm: a batch script that runs the whole sweep inside one allocation, where mpirun or srun starts the ranks."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from profiles.ground.errors import RingscopeError

from . import batch
from .hosts import Host


def script(request: batch.Request, *, by_srun: bool = False) -> str:
    """The batch script. If two directives set the same option sbatch takes the later, so `request.args` override
    ringscope's."""
    per_node = request.ranks_per_node
    directives = [
        "--job-name=ringscope",
        f"--ntasks={request.ranks}",
        f"--time={request.minutes}",
        f"--output={_pattern(request.log)}",
        "--export=NONE",
    ]
    directives += [f"--ntasks-per-node={per_node}"] if per_node else []
    directives += [f"--cpus-per-task={request.cpus_per_rank}"] if request.cpus_per_rank else []
    directives += [_gpus(request, by_srun)] if request.gpus else []
    words = [_escaped(word) for word in [*directives, *request.args]]
    before = [
        # After sbatch --export=NONE, srun passes no variables to tasks unless SLURM_EXPORT_ENV is unset (sbatch(1)).
        "unset SLURM_EXPORT_ENV",
        # mpirun's daemon is one task per node; SLURM_WHOLE gives this task all cores of the node's allocation
        # (srun(1)).
        *([] if by_srun else ["export SLURM_WHOLE=1"]),
    ]
    return batch.script("#SBATCH", words, request, without="SLURM_", before=before)


def _gpus(request: batch.Request, by_srun: bool) -> str:
    """The directive for GPUs. mpirun must not get --gpus-per-task, which would bind each node's daemon, and so all its
    ranks, to one GPU."""
    if by_srun:
        return "--gpus-per-task=1"
    return f"--gpus-per-node={request.ranks_per_node}" if request.ranks_per_node else f"--gpus={request.ranks}"


def _pattern(log: Path) -> str:
    """The log's path as a file name pattern (sbatch(1)), in which % is special and a backslash makes it plain."""
    if "\\" in str(log):
        raise RingscopeError(f"{log}: Slurm writes no log to a path with a backslash; name another --out")
    return str(log).replace("%", "%%")


def _escaped(word: str) -> str:
    """A word of a directive in sbatch's syntax: words end at blanks outside quotes; inside quotes `\\` escapes a
    quote."""
    if re.fullmatch(r"[\w./:=,+@%-]+", batch.one_line(word)):
        return word
    return '"' + re.sub(r'([\\"])', r"\\\1", word) + '"'


def submit(path: Path) -> str | None:
    """Submit the script to Slurm. Returns the job's id, or None if there is no sbatch here. Raises RingscopeError."""
    if not shutil.which("sbatch"):
        return None
    done = subprocess.run(["sbatch", "--parsable", str(path)], capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"code {done.returncode}"])[-1]
        raise RingscopeError(f"{path}: {said}; give what your site asks for by --launcher-args, as in --partition=gpu")
    return done.stdout.strip().partition(";")[0]


def hosts(environ: Mapping[str, str]) -> tuple[Host, ...]:
    """The nodes of the allocation that this process runs in, with the number of tasks on each. Raises
    RingscopeError."""
    nodes = environ.get("SLURM_JOB_NODELIST", "")
    try:
        told = subprocess.run(["scontrol", "show", "hostnames", nodes], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise RingscopeError(f"cannot ask Slurm which nodes {nodes!r} are ({error}); name the --hosts") from error
    counts = slots(environ)
    return tuple(Host(name, count) for name, count in zip(told.stdout.split(), counts, strict=True))


def slots(environ: Mapping[str, str]) -> list[int]:
    """The number of ranks on each node of the allocation, from `SLURM_TASKS_PER_NODE`: 4(x2),3 -> 4, 4, 3."""
    found: list[int] = []
    for part in environ.get("SLURM_TASKS_PER_NODE", "1").split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if not match:
            raise RingscopeError(f"SLURM_TASKS_PER_NODE is {part!r}, which is not Slurm's form; name the --hosts")
        found += [int(match[1])] * int(match[2] or 1)
    return found
