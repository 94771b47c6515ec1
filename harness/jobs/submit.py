"""`--launcher slurm|srun|pbs|lsf|kubeflow`: write the file for the batch system; for Slurm, also submit it."""

from __future__ import annotations

import json
import math
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from profiles.ground.errors import RingscopeError
from profiles.ground.files import write_whole
from profiles.runs.records import SweepRecord

from ..launch import batch, kubeflow, lsf, pbs, slurm
from .options import Launch

SPARE_MINUTES = 5  # time for the machine's description and the report, beside the launches


@dataclass(frozen=True, slots=True)
class Written:
    """The file for the batch system, and the command that submits it."""

    name: str
    text: str
    command: str


def file_of(sweep: SweepRecord, launches: int, directory: Path, options: Launch, *, gpus: bool) -> Written:
    """The file to submit, with a time limit for `launches` launches of the sweep. Raises RingscopeError."""
    job = options.job
    request = batch.Request(
        argv=(sys.executable, "-m", "harness", "bench", "--resume", "--out", str(directory)),
        ranks=max(cell.ranks for cell in sweep.cells),
        minutes=math.ceil(launches * options.limits.time_s / 60) + SPARE_MINUTES,
        log=directory / "job.log",
        ranks_per_node=job.ranks_per_node,
        cpus_per_rank=job.cpus_per_rank,
        gpus=gpus,
        args=tuple(shlex.split(options.launcher_args)),
        variables=options.variables,
        prologue=batch.read_prologue(job.prologue) if job.prologue else "",
    )
    if options.launcher in ("slurm", "srun"):
        return Written("job.sbatch", slurm.script(request, by_srun=options.launcher == "srun"), "sbatch")
    if options.launcher == "pbs":
        return Written("job.pbs", pbs.script(request), "qsub")
    if options.launcher == "lsf":
        return Written("job.lsf", lsf.script(request), "bsub <")
    if options.container is None:
        raise RingscopeError("--launcher kubeflow starts pods; give their image, with ringscope in it, by --container")
    text = kubeflow.manifest(
        request, name=directory.name, image=options.container, volume=job.volume, sweep=json.dumps(sweep.to_json())
    )
    return Written("job.json", text, "kubectl create -f")


def submit(written: Written, directory: Path, console: Console) -> int:
    """Write the file into the run directory; submit it if it is for Slurm and `sbatch` is here. Returns the exit code
    0."""
    path = directory.resolve() / written.name
    write_whole(path, written.text)
    job = slurm.submit(path) if written.command == "sbatch" else None
    if job:
        console.print(f"job {job} submitted: {path}; when it is done: ringscope report {directory}")
    else:
        command = f"{written.command} {shlex.quote(str(path))}"
        console.print(f"written, not submitted; submit it with: {command}", soft_wrap=True)
    return 0
