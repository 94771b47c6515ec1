"""Build the command line and the environment that start a command on every rank.

The functions are pure, except that mpirun is asked for its version once. Each rank's command runs under a keeper
(harness/processes/keeper.py), which ends the rank when the sweep ends.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from profiles.ground.errors import RingscopeError

from ..machine import recorded_ranks
from . import horovodrun, mpirun, srun
from .environment import OF_SLURM, allowed, on_this_host
from .hosts import Host, is_local, take

# For these batch systems ringscope writes a script; all other launchers start ranks on this machine or on named hosts.
BATCH = ("slurm", "srun", "pbs", "lsf", "kubeflow")
HERE = ("horovodrun", "mpirun", "single")  # launchers whose ranks run on this host, unless hosts are named
_BUILDERS: dict[str, Callable[..., list[str]]] = {
    "horovodrun": horovodrun.argv,
    "mpirun": mpirun.argv,
    "slurm": mpirun.argv,  # inside an allocation mpirun starts the ranks by srun, which starts mpirun's daemons
    "srun": srun.argv,
    "single": lambda rank_argv, **_: list(rank_argv),  # one process, which is one rank or drives all GPUs
}
PACKAGE = Path(__file__).resolve().parents[2]  # mounted in containers, because the image need not have it


@dataclass(frozen=True, slots=True)
class Job:
    """A command to execute. env: its whole environment; the caller's environment is not added."""

    argv: list[str]
    env: dict[str, str]


def worker(cell_path: Path | str, out_dir: Path | str) -> list[str]:
    """The command that each rank of a cell executes."""
    return [sys.executable, "-m", "harness.training.worker", "--cell", str(cell_path), "--out", str(out_dir)]


def on_backend(worker_argv: Sequence[str], backend: str, environ: Mapping[str, str]) -> list[str]:
    """A rank's command for another backend of Keras, without LD_LIBRARY_PATH. Its Python is the one that
    RINGSCOPE_JAX_PYTHON or RINGSCOPE_TORCH_PYTHON names, else the worker's own.

    JAX and PyTorch bring their own versions of CUDA's libraries; with LD_LIBRARY_PATH the linker would take
    TensorFlow's.
    """
    python = environ.get(f"RINGSCOPE_{backend.upper()}_PYTHON") or worker_argv[0]
    return ["env", "-u", "LD_LIBRARY_PATH", python, *worker_argv[1:]]


def command(
    rank_argv: Sequence[str],
    *,
    ranks: int,
    launcher: str,
    environ: Mapping[str, str],
    hosts: Sequence[Host] = (),
    prefix: Sequence[str] = (),
    lifeline: str | None = None,
    log_dir: Path | str | None = None,
    launcher_args: Sequence[str] = (),
    variables: Collection[str] = (),
    container: str | None = None,
    recorded: str = recorded_ranks.ALL,
    memory_limit_mb: int = 0,
) -> Job:
    """The job that runs `rank_argv` on every rank.

    Under every launcher a rank finds its number in RINGSCOPE_RANK and the number of ranks in RINGSCOPE_SIZE.

    prefix: words before `rank_argv`, such as a profiler (`nsys profile -o out.%q{RINGSCOPE_RANK} ...`).
    lifeline: `host:port/token`; each rank ends when its connection to it does.
    log_dir: a rank's output goes to `rank<k>.log` there, and how it ended to `rank<k>.end.json`. None: output passes
        through.
    launcher_args: arguments for the launcher itself.
    variables: names of environment variables that ranks on other hosts get besides the variables that training
        needs; ranks on this host get all variables.
    container: the image that ranks run in, by pyxis if srun starts them, by Apptainer (with the GPU driver, --nv) under
        any other launcher. This package and `log_dir` are mounted in it.
    recorded: which ranks the prefix is for (`machine.recorded_ranks`).
    memory_limit_mb: a rank that uses more host memory than this, in MiB, is ended; 0: no limit.

    Raises RingscopeError for an unknown launcher, or if the hosts have too few slots.
    """
    if launcher not in _BUILDERS:
        raise RingscopeError(f"there is no launcher {launcher!r}; choose from {', '.join(_BUILDERS)}")
    here = launcher in HERE and all(is_local(host.name) for host in hosts)
    named = allowed(environ, {*variables, *(OF_SLURM if launcher in ("slurm", "srun") else ())})
    folders, words = [log_dir] if log_dir else [], list(launcher_args)
    if container and launcher != "srun":
        binds = [word for folder in (PACKAGE, *folders) for word in ("--bind", str(folder))]
        rank_argv = ["apptainer", "exec", "--nv", *binds, container, *_of_the_image(rank_argv)]
    more = ["--record-ranks", recorded, "--profiler-words", str(len(prefix))] if recorded != recorded_ranks.ALL else []
    if memory_limit_mb:
        more += ["--memory-limit-mb", str(memory_limit_mb)]
    kept = keeper([*prefix, *rank_argv], lifeline=lifeline, log_dir=log_dir, rank=True, more=more)
    if container and launcher == "srun":
        mounts = ",".join(f"{folder}:{folder}" for folder in (PACKAGE, *folders))
        kept = _of_the_image(kept)
        words = [f"--container-image={container}", f"--container-mounts={mounts}", *words]
    argv = _BUILDERS[launcher](kept, ranks=ranks, hosts=take(hosts, ranks), env=named, launcher_args=words)
    return Job(argv, on_this_host(environ, variables) if here else named)


def _of_the_image(argv: Sequence[str]) -> list[str]:
    """The command with the image's own Python in place of this process's."""
    return ["python3" if word == sys.executable else word for word in argv]


def keeper(
    argv: Sequence[str],
    *,
    lifeline: str | None = None,
    log_dir: Path | str | None = None,
    rank: bool = False,
    more: Sequence[str] = (),
) -> list[str]:
    """The command `argv` under a keeper. rank: True if `argv` is a rank's command, False if it is a launcher's. more:
    further options of the keeper."""
    kept = [sys.executable, "-m", "harness.processes.keeper"]
    if rank:
        kept += ["--rank"]
    if lifeline:
        kept += ["--lifeline", lifeline]
    if log_dir:
        kept += ["--log-dir", str(log_dir)]
    return [*kept, *more, "--", *argv]
