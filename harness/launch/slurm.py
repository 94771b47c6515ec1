"""Slurm: a batch script that runs the whole sweep inside one allocation, where mpirun starts the ranks through srun."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from profiles.errors import RingscopeError

from .environment import allowed
from .hosts import Host, slurm_slots


def script(
    argv: Sequence[str],
    *,
    ranks: int,
    minutes: int,
    gpus: bool,
    log: Path,
    environ: Mapping[str, str],
    sbatch_args: Sequence[str] = (),
) -> str:
    """The batch script that runs `argv` (the sweep's own command line) with room for so many ranks and minutes.

    `sbatch_args` (`--partition=gpu`, `--nodes=2`) become directives; a later directive wins over ours. The environment
    is the allow-list's, not all of the submitting shell's.
    """
    directives = [
        "--job-name=ringscope",
        f"--ntasks={ranks}",
        f"--time={minutes}",
        f"--output={log}",
        "--export=NONE",
        # Not --gpus-per-task, which would bind each node's one daemon of mpirun, and so its ranks, to one GPU.
        *([f"--gpus={ranks}"] if gpus else []),
        *sbatch_args,
    ]
    passed = {name: value for name, value in allowed(environ).items() if not name.startswith("SLURM_")}
    lines = ["#!/bin/bash", *(f"#SBATCH {directive}" for directive in directives), "set -eu"]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in sorted(passed.items())]
    # sbatch --export=NONE makes srun pass nothing on either, unless told (sbatch(1)).
    lines += ["unset SLURM_EXPORT_ENV", f"cd {shlex.quote(str(Path.cwd()))}", f"exec {shlex.join(argv)}"]
    return "\n".join(lines) + "\n"


def submit(path: Path) -> str | None:
    """Hand the script to Slurm: the job's id, None where there is no sbatch here. Raises RingscopeError."""
    if not shutil.which("sbatch"):
        return None
    done = subprocess.run(["sbatch", "--parsable", str(path)], capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"code {done.returncode}"])[-1]
        raise RingscopeError(f"{path}: {said}; give what your site asks for by --launcher-args, as in --partition=gpu")
    return done.stdout.strip().partition(";")[0]


def hosts(environ: Mapping[str, str]) -> tuple[Host, ...]:
    """The nodes of the allocation that this process runs in, with the tasks that each takes. Raises RingscopeError."""
    nodes = environ.get("SLURM_JOB_NODELIST", "")
    try:
        told = subprocess.run(["scontrol", "show", "hostnames", nodes], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise RingscopeError(f"cannot ask Slurm which nodes {nodes!r} are ({error}); name the --hosts") from error
    slots = slurm_slots(environ)
    return tuple(Host(name, count) for name, count in zip(told.stdout.split(), slots, strict=True))
