"""Run `bench` and `train`: options -> grid -> run directory -> sweep -> report (docs/reference/files.md)."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from profiles.explaining import explained
from profiles.ground import numbers, terminals
from profiles.ground.errors import RingscopeError
from profiles.ground.lazy import INTERRUPTED
from profiles.runs.cell import TFRECORDS, in_words
from profiles.runs.records import Cell, SweepRecord, read_runs, read_sweep
from profiles.scaling import run_directory
from profiles.scaling.measure import Scaling
from profiles.views.terminal import sweep as view

from ..launch import BATCH, slurm
from ..launch import hosts as host_lists
from ..machine import nvml
from ..processes.signals import stopped_by_signals
from ..processes.supervise import Limits
from . import prove, submit, sweep
from .grid import CPU_MINUTES, GPU_MINUTES, LAUNCHES, grid
from .options import Bench, Job, Launch
from .progress import Watch
from .rounds import Rounds
from .run_directory import RunDirectory, new_path

_NO_GPU_HERE = (
    "this host has no GPU: the job asks for none, and its cells are sized for CPUs; if the nodes have GPUs, give "
    "--gpu-nodes"
)


def main(options: Bench) -> int:
    """Run the sweep that the command line asks for. Returns the exit code."""
    console, began_s = terminals.console(), time.monotonic()
    if options.resume:
        options = remembered(options)
    gpus = len(nvml.visible_gpus()) or int(bool(options.launch.job.gpu_nodes))
    how = how_to_launch(options.launch)
    tried = _trial(options, gpus, console)
    chosen = [tried.before, tried.after] if tried else cells(options, gpus=gpus)
    submitting = _is_submitted(options, how)
    if options.launches is not None or tried or submitting:
        options = replace(options, minutes=None)
    elif options.minutes is None and not options.resume:
        options = replace(options, minutes=GPU_MINUTES if gpus else CPU_MINUTES)
    check_data(chosen, how)
    if submitting and not gpus:
        console.print(_NO_GPU_HERE, soft_wrap=True)
    if options.dry_run:
        return _dry_run(chosen, options, how, gpus, submitting, console)
    if submitting:
        return _submit(chosen, options, how, gpus, console)
    sweep.check_training()
    sweep.check_backends(chosen, os.environ)
    sweep.check_launcher(how)
    with console.status("looking at this machine"):
        sweep.check_gpus(chosen, how)
    directory = _directory(options, chosen, how)
    rounds = Rounds(
        directory,
        how,
        console,
        max(directory.sweep.launches, LAUNCHES if options.minutes is not None else 0),
        limit_s=None if options.minutes is None else 60 * options.minutes,
        explain=False if tried else options.explain,
        retry_failed=options.retry_failed,
        began_s=began_s,
    )
    stopped = _run(rounds)
    runs = read_runs(directory.path)
    scaling = run_directory.read(directory.path, runs)
    run_directory.write(directory.path, scaling)
    scaling, found = explained.told(scaling, runs, directory.path)
    view.show(scaling, str(directory.path), console, found)
    if tried:
        said = prove.report(tried, scaling, directory.path)
        console.print(f"\n{said}", soft_wrap=True)
    if stopped:
        console.print(f"\ninterrupted; continue with: ringscope bench --resume --out {directory.path}")
        return INTERRUPTED
    return exit_code(scaling)


def _is_submitted(options: Bench, how: sweep.How) -> bool:
    """True if a batch system runs the sweep. Raises RingscopeError if an option for a batch system is given without
    one."""
    if how.launcher in BATCH and not (how.launcher in ("slurm", "srun") and in_allocation()):
        return True
    if named := options.launch.given & {one.name for one in fields(Job)}:
        raise RingscopeError(
            f"--{sorted(named)[0].replace('_', '-')} is for a batch system, but this sweep runs here and is not "
            "submitted; leave it out"
        )
    return False


def _submit(chosen: list[Cell], options: Bench, how: sweep.How, gpus: int, console: Console) -> int:
    _file_of(chosen, options, gpus)  # refuse unknown values before anything is written
    directory = _directory(options, chosen, how)
    tasks = sweep.missing(directory, retry_failed=options.retry_failed)
    path = directory.path.resolve()
    written = submit.file_of(directory.sweep, len(tasks), path, options.launch, gpus=bool(gpus))
    directory.release()  # the job may begin now and needs the lock
    return submit.submit(written, directory.path, console)


def _run(rounds: Rounds) -> bool:
    """Make the launches that are missing. Returns True if a signal interrupted them."""
    directory, console = rounds.directory, rounds.console
    try:
        with stopped_by_signals():  # also between launches, while a result is shown or measured
            console.print(f"{rounds.plan()}, into {directory.path}", soft_wrap=True)
            rounds.run()
    except KeyboardInterrupt:
        return True
    return False


def remembered(options: Bench) -> Bench:
    """The options of `--resume`: an option that is not given now keeps the value that the sweep began with."""
    path = options.launch.out or run_directory.newest()
    before = read_sweep(path).options
    launch = options.launch

    def kept(name: str, now: Any) -> Any:
        return now if name in launch.given else before.get(name, now)

    limits = Limits(kept("time_limit", launch.limits.time_s), kept("stall_limit", launch.limits.stall_s))
    launcher = kept("launcher", launch.launcher)
    container = launch.container or before.get("container")
    variables = launch.variables or tuple(before.get("env", ()))
    again = replace(launch, launcher=launcher, limits=limits, out=path, container=container, variables=variables)
    if launcher == before.get("launcher"):  # another launcher would not know these arguments
        again = replace(again, launcher_args=launch.launcher_args or before.get("launcher_args") or "")
    if launcher != "single" and not launch.hosts and before.get("hosts"):
        again = replace(again, hosts=host_lists.parse(before["hosts"]))
    asked = options.explain if options.explain is not None else before.get("explain")
    minutes = options.minutes if options.minutes is not None else before.get("minutes")
    return replace(options, launch=again, explain=asked, minutes=minutes)


def _trial(options: Bench, gpus: int, console: Console) -> prove.Trial | None:
    """Find the trial that `--apply` asks for and print it. Returns None without `--apply`."""
    if options.finding is None or options.of is None:
        return None
    steps, warmup = (options.choices.values[name][0] for name in ("steps", "warmup"))
    tried = prove.trial(options.finding, options.of, gpus=gpus, steps=steps, warmup=warmup)
    elsewhere = tried.recorded_on != {gpu["name"] for gpu in nvml.visible_gpus()}
    where = (
        f"; recorded on {', '.join(sorted(tried.recorded_on)) or 'no GPU'}, unlike this machine" if elsewhere else ""
    )
    console.print(f"{tried.words()}{where}", soft_wrap=True)
    return tried


def exit_code(scaling: Scaling) -> int:
    """0 if every cell is ok, else 1."""
    return 0 if all(row.status == "ok" for row in scaling.cells) else 1


def cells(options: Bench, *, gpus: int) -> list[Cell]:
    """The cells of the grid; only the first one if `options.first_only`."""
    found = grid(options.choices, gpus=gpus)
    return found[:1] if options.first_only else found


def check_data(cells: Sequence[Cell], how: sweep.How) -> None:
    """Raise RingscopeError if the ranks run on this host and a cell's data is not here."""
    for data in {cell.data for cell in cells} - {"synthetic", "generated"}:
        if not how.hosts and not Path(data).is_dir():
            raise RingscopeError(f"--data {data}: no such directory; give one of TFRecords, or synthetic or generated")
        if not how.hosts and not any(Path(data).glob(TFRECORDS)):
            raise RingscopeError(f"--data {data}: holds no {TFRECORDS} file; give a directory that does")


def how_to_launch(options: Launch) -> sweep.How:
    """The launcher, its hosts and limits. Raises RingscopeError."""
    hosts, words = options.hosts, options.launcher_args
    if options.launcher in ("slurm", "srun") and in_allocation():
        hosts = hosts or slurm.hosts(os.environ)
        # the sweep remembers arguments for sbatch, which are none for the launcher inside the job
        words = words if "launcher_args" in options.given else ""
    return sweep.How(
        launcher=options.launcher,
        hosts=hosts,
        limits=options.limits,
        launcher_args=tuple(shlex.split(words)),
        variables=options.variables,
        container=options.container,
        gpus=len(nvml.visible_gpus()),
    )


def in_allocation() -> bool:
    """True if this process runs inside a Slurm job, which gives it its hosts."""
    return "SLURM_JOB_ID" in os.environ


def _directory(options: Bench, cells: list[Cell], how: sweep.How) -> RunDirectory:
    """Make or resume the run directory. With `minutes` each cell is launched once; launches are added while time is
    left."""
    if options.resume and options.launch.out:
        more = cells if options.more_cells else []
        return RunDirectory.resume(options.launch.out, more, launches=options.launches)
    launches = options.launches or (LAUNCHES if options.minutes is None else 1)
    return new_directory(options.launch, cells, launches, how, explain=options.explain, minutes=options.minutes)


def new_directory(
    options: Launch,
    cells: list[Cell],
    launches: int,
    how: sweep.How,
    *,
    explain: bool | None = None,
    minutes: float | None = None,
    search: dict[str, Any] | None = None,
) -> RunDirectory:
    """Make a run directory that records the options of the sweep. minutes: time in which launches are repeated. search:
    the plan of a search for the largest batch (`fits`). Raises RingscopeError."""
    record = SweepRecord(
        cells=cells,
        launches=launches,
        launcher=how.launcher,
        hosts=[str(host) for host in how.hosts],
        created_utc_ns=time.time_ns(),
        options={
            "launcher": options.launcher,
            "launcher_args": options.launcher_args,
            "time_limit": options.limits.time_s,
            "stall_limit": options.limits.stall_s,
            "hosts": ",".join(map(str, how.hosts)) or None,
            **({"container": options.container} if options.container else {}),
            **({"env": list(options.variables)} if options.variables else {}),
            **({} if explain is None else {"explain": explain}),
            **({} if minutes is None else {"minutes": minutes}),
            **({} if search is None else {"fits": search}),
            "profiler": how.profiler.name if how.profiler else None,
        },
    )
    return RunDirectory.create(options.out or new_path(), record)


def run_watched(
    directory: RunDirectory, tasks: Iterable[sweep.Task], how: sweep.How, found: dict[str, Any], watch: Watch
) -> bool:
    """Run the tasks and report their progress to `watch`. Returns True if a signal stopped them."""
    try:
        with stopped_by_signals():
            sweep.run(directory, tasks, how=how, machine=found, watcher=watch)
    except KeyboardInterrupt:
        return True
    return False


def _dry_run(
    cells: Sequence[Cell], options: Bench, how: sweep.How, gpus: int, submitting: bool, console: Console
) -> int:
    """Print the cells, and the commands that would run or the file for the batch system."""
    launches = options.launches or LAUNCHES
    cells = [cell for cell, _ in sweep.order(cells, 1)]
    for cell in cells:
        refused = sweep.refusal(cell, how, {})
        console.print(f"{cell.id}  {in_words(cell)}", soft_wrap=True)
        if refused and not submitting:
            console.print(f"    {refused.status}: {refused.reason}", soft_wrap=True)
        elif not submitting:
            job = sweep.command(Path("DIR") / cell.id / "0", cell, how, os.environ)("SWEEP:PORT")
            console.print(f"    {shlex.join(job.argv)}", soft_wrap=True)
    most = "" if options.minutes is None else f" at most, within {options.minutes:g} minutes"
    console.print(f"{numbers.counted(len(cells), 'cell')} x {numbers.counted(launches, 'launch')}{most}")
    if submitting:
        written = _file_of(cells, options, gpus)
        console.print(f"\n{written.name}:\n{written.text}", soft_wrap=True)
    return 0


def _file_of(cells: Sequence[Cell], options: Bench, gpus: int) -> submit.Written:
    """The file for the batch system, before the sweep's run directory exists. Raises RingscopeError."""
    launches = options.launches or LAUNCHES
    record = SweepRecord(list(cells), launches, options.launch.launcher)
    path = (options.launch.out or new_path()).resolve()
    return submit.file_of(record, len(cells) * launches, path, options.launch, gpus=bool(gpus))
