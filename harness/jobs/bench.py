"""What `bench` and `train` do: options -> grid -> run directory -> sweep -> report."""

from __future__ import annotations

import math
import os
import shlex
import signal
import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from profiles.errors import RingscopeError
from profiles.records import Cell, SweepRecord, read_sweep, write_whole
from profiles.scaling import run_directory
from profiles.scaling.measure import Scaling
from profiles.views import sweep as view

from ..launch import hosts as host_lists
from ..launch import slurm
from ..launch.hosts import Host
from ..machine import describe as machine
from ..machine import nvml
from ..processes.supervise import Limits
from . import prove, sweep
from .grid import CPU_LAUNCHES, GPU_LAUNCHES, Choices, grid, names, numbers
from .progress import Watch, describe
from .run_directory import RunDirectory, new_path

INTERRUPTED = 130
# Names whose registries import TensorFlow; a test holds them equal.
FEEDS = ("numpy", "host", "prefetch", "device", "staging", "pinned", "resident")
STEPS = ("fit", "compiled")
COMPRESSIONS = ("none", "fp16", "bf16")
STRATEGIES = ("horovod", "none", "mirrored")
# Options that make the grid: given with --resume they add cells to the sweep.
_OF_THE_GRID = """
    ranks models per_rank_batch feeds input_dtype step precision strategy compression aggregate scaling steps warmup
    data seed
"""
OF_THE_GRID = frozenset(_OF_THE_GRID.split())
# Options that a sweep remembers: --resume takes them up again where the command line says nothing.
REMEMBERED = ("launcher", "launcher_args", "hosts", "time_limit", "stall_limit")


def main(options: dict[str, Any], given: Collection[str] = ()) -> int:
    """Run the sweep that the command line asks for; `given`: the options it names. Returns the exit code."""
    console = Console()
    if options["models"] == "help":
        from ..training.models import MODELS

        console.print("\n".join(MODELS), highlight=False)
        return 0
    if options["resume"]:
        options["out"] = options["out"] or run_directory.newest()
        remembered = read_sweep(options["out"]).options
        options |= {name: remembered[name] for name in REMEMBERED if name in remembered and name not in given}
    here = nvml.visible_gpus()
    gpus = len(here)
    tried = _trial(options, gpus)
    if tried:
        elsewhere = tried.recorded_on != {gpu["name"] for gpu in here}
        where = f"; recorded on {', '.join(sorted(tried.recorded_on)) or 'no GPU'}, unlike this" if elsewhere else ""
        console.print(f"{tried.words()}{where}", markup=False, highlight=False, soft_wrap=True)
    chosen = [tried.before, tried.after] if tried else cells(options, gpus=gpus)
    launches = options["launches"] or (GPU_LAUNCHES if gpus else CPU_LAUNCHES)
    how = how_to_launch(options)
    check_data(chosen, how)
    if options["dry_run"]:
        return _dry_run(chosen, launches, how, console)
    if how.launcher == "slurm" and not in_allocation():
        return _submit(open_directory(options, given, chosen, launches, how), how, gpus, console)
    sweep.check_training()
    sweep.check_launcher(how)
    directory = open_directory(options, given, chosen, launches, how)
    tasks = sweep.missing(directory, retry_failed=options["retry_failed"])
    stopped = False
    if tasks:
        with console.status("looking at this machine"):
            found = machine.describe()
        if not directory.sweep.machine:
            directory.sweep.machine = found
            directory.write_sweep()
        cells_now = counted(len(directory.sweep.cells), "cell")
        console.print(f"{cells_now}, {counted(len(tasks), 'launch')} to do, into {directory.path}", highlight=False)
        stopped = run_tasks(directory, tasks, how, found, console)
    scaling = run_directory.write(directory.path)
    view.show(scaling, str(directory.path), console)
    if tried:
        console.print(
            f"\n{prove.report(tried, scaling, directory.path)}", markup=False, highlight=False, soft_wrap=True
        )
    if stopped:
        console.print(f"\ninterrupted; go on with: ringscope bench --resume --out {directory.path}", markup=False)
        return INTERRUPTED
    return exit_code(scaling)


def _trial(options: dict[str, Any], gpus: int) -> prove.Trial | None:
    if bool(options.get("apply")) != bool(options.get("of")):
        raise RingscopeError("--apply FINDING --of LAUNCH: give both, the finding and the launch it was found in")
    if not options.get("apply"):
        return None
    return prove.trial(options["apply"], options["of"], gpus=gpus, steps=options["steps"], warmup=options["warmup"])


def counted(count: int, noun: str) -> str:
    """`1 cell`, `2 launches`."""
    return f"{count} {noun}{'' if count == 1 else 'es' if noun.endswith('ch') else 's'}"


def exit_code(scaling: Scaling) -> int:
    """0 where every cell is ok, 1 else."""
    return 0 if all(row.status == "ok" for row in scaling.cells) else 1


def one_cell(options: dict[str, Any]) -> dict[str, Any]:
    """The options of the grid that is the one cell of `train` and `record`, launched once. Raises RingscopeError."""
    for name in ("model", "feed", "input_dtype", "step", "precision", "strategy", "compression"):
        if "," in (options[name] or ""):
            raise RingscopeError(f"--{name.replace('_', '-')} {options[name]}: one only; lists are for ringscope bench")
    counts = {name: str(options[name] or "") for name in ("ranks", "per_rank_batch", "aggregate")}
    lists = {"models": options["model"], "feeds": options["feed"]}
    once = {"scaling": "weak", "launches": 1, "resume": False, "retry_failed": False, "dry_run": False}
    return {**options, **lists, **counts, **once, "one_cell": True}


def cells(options: dict[str, Any], *, gpus: int) -> list[Cell]:
    """The grid; its first cell where one is asked for and the machine leaves a choice. Raises RingscopeError."""
    found = grid(choices(options), gpus=gpus)
    return found[:1] if options.get("one_cell") else found


def choices(options: dict[str, Any]) -> Choices:
    """The grid's lists, checked. Raises RingscopeError."""
    from ..training.models import INPUT_DTYPES, MODELS, PRECISIONS

    def many(option: str, known: Sequence[str]) -> tuple[str, ...]:
        return names(options[option], f"--{option.replace('_', '-')}", known) if options[option] else ()

    def counts(option: str) -> tuple[int, ...]:
        return numbers(options[option], f"--{option.replace('_', '-')}") if options[option] else ()

    return Choices(
        ranks=counts("ranks"),
        models=many("models", tuple(MODELS)),
        per_rank_batch=counts("per_rank_batch"),
        feeds=many("feeds", FEEDS),
        input_dtype=many("input_dtype", INPUT_DTYPES),
        step=many("step", STEPS),
        precision=many("precision", PRECISIONS),
        strategy=many("strategy", STRATEGIES),
        compression=many("compression", COMPRESSIONS),
        aggregate=counts("aggregate"),
        steps=options["steps"],
        warmup=options["warmup"],
        scaling=options["scaling"],
        data=data_of(options["data"]),
        seed=options["seed"],
    )


def data_of(text: str) -> str:
    """`synthetic`, or the directory whole: ranks on other hosts may start elsewhere."""
    return text if text == "synthetic" else str(Path(text).resolve())


def check_data(cells: Sequence[Cell], how: sweep.How) -> None:
    """Raise RingscopeError where a cell's data is not here, and its ranks would run here."""
    for data in {cell.data for cell in cells} - {"synthetic"}:
        if not how.hosts and not Path(data).is_dir():
            raise RingscopeError(f"--data {data}: no such directory; name one of TFRecords, or synthetic")


def how_to_launch(options: dict[str, Any]) -> sweep.How:
    """The launcher, its hosts and limits. Raises RingscopeError."""
    if options["hosts"] and options["hostfile"]:
        raise RingscopeError("--hosts and --hostfile: give one of them")
    hosts: tuple[Host, ...] = ()
    if options["hosts"]:
        hosts = host_lists.parse(options["hosts"])
    elif options["hostfile"]:
        hosts = host_lists.read(options["hostfile"])
    elif options["launcher"] == "slurm" and in_allocation():
        hosts = slurm.hosts(os.environ)
        options["launcher_args"] = ""  # they were sbatch's
    return sweep.How(
        launcher=options["launcher"],
        hosts=hosts,
        limits=Limits(time_s=options["time_limit"], stall_s=options["stall_limit"]),
        launcher_args=tuple(shlex.split(options["launcher_args"])),
        gpus=len(nvml.visible_gpus()),
    )


def in_allocation() -> bool:
    """Whether this process runs inside a Slurm job, which gives it its hosts."""
    return "SLURM_JOB_ID" in os.environ


def open_directory(
    options: dict[str, Any], given: Collection[str], cells: list[Cell], launches: int, how: sweep.How
) -> RunDirectory:
    if options["resume"]:
        more = cells if OF_THE_GRID.intersection(given) else []
        return RunDirectory.resume(options["out"], more, launches=launches if "launches" in given else None)
    record = SweepRecord(
        cells=cells,
        launches=launches,
        launcher=how.launcher,
        hosts=[str(host) for host in how.hosts],
        created_utc_ns=time.time_ns(),
        options={name: options[name] for name in REMEMBERED if name != "hosts"}
        | {"hosts": ",".join(map(str, how.hosts)) or None, "profiler": how.profiler.name if how.profiler else None},
    )
    return RunDirectory.create(options["out"] or new_path(), record)


def _submit(directory: RunDirectory, how: sweep.How, gpus: int, console: Console) -> int:
    """Write the batch script that runs this sweep inside an allocation, and submit it where Slurm is."""
    ranks = max(cell.ranks for cell in directory.sweep.cells)
    launches = len(sweep.missing(directory))
    path = directory.path.resolve() / "job.sbatch"
    text = slurm.script(
        [sys.executable, "-m", "harness", "bench", "--resume", "--out", str(directory.path.resolve())],
        ranks=ranks,
        minutes=math.ceil(launches * how.limits.time_s / 60) + 5,
        gpus=bool(gpus),
        log=path.with_name("job.log"),
        environ=os.environ,
        sbatch_args=how.launcher_args,
    )
    write_whole(path, text)
    job = slurm.submit(path)
    if job:
        console.print(f"job {job} submitted: {path}; when it is done: ringscope report {directory.path}", markup=False)
    else:
        console.print(f"no sbatch here; submit where there is one: sbatch {path}", markup=False)
    return 0


def run_tasks(
    directory: RunDirectory, tasks: Sequence[sweep.Task], how: sweep.How, found: dict[str, Any], console: Console
) -> bool:
    """Run the tasks; whether a person, or the machine's end, stopped them."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        with Watch(tasks, console) as watch:
            sweep.run(directory, tasks, how=how, machine=found, watcher=watch)
    except KeyboardInterrupt:
        return True
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return False


def _dry_run(cells: Sequence[Cell], launches: int, how: sweep.How, console: Console) -> int:
    for cell in cells:
        refused = sweep.refusal(cell, how, {})
        console.print(f"{cell.id}  {describe(cell)}", markup=False, highlight=False, soft_wrap=True)
        if refused:
            console.print(f"    {refused.status}: {refused.reason}", markup=False, soft_wrap=True)
            continue
        job = sweep.command(Path("DIR") / cell.id / "0", cell, how, os.environ)("SWEEP:PORT")
        console.print(f"    {shlex.join(job.argv)}", markup=False, highlight=False, soft_wrap=True)
    console.print(f"{counted(len(cells), 'cell')} x {counted(launches, 'launch')}", highlight=False)
    return 0
