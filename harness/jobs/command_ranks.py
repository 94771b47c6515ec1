"""The ranks of a recorded command: ringscope or the user's own launcher starts them, and not all may be recorded."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from profiles.ground.errors import RingscopeError

from .. import launch
from ..launch import hosts, profilers, users_launcher
from ..launch.profilers import Profiler, Span
from ..machine import recorded_ranks
from . import sweep
from .options import Record


@dataclass(frozen=True, slots=True)
class Ranks:
    """Functions that start and count a command's ranks. One set is for ringscope's launchers, one for the user's
    own."""

    job: Callable[[str], launch.Job]
    """Lifeline address -> the command that starts the ranks; ranks that ringscope starts have a keeper with this
    lifeline."""
    count: Callable[[], int | None]
    """The number of ranks that are recorded; None until all ranks have started."""
    missing: Callable[[], str]
    """The ranks that are not recorded, and what to do; "" if none are known."""

    def are_whole(self, profiler: Profiler, folder: Path) -> bool:
        """True if the recordings of all ranks are complete; False as long as not all ranks have started."""
        number = self.count()
        return number is not None and profiler.whole(folder, number)


def by_ringscope(options: Record, how: sweep.How, profiler: Profiler, folder: Path, span: Span) -> Ranks:
    """Ranks that ringscope starts by a launcher of its own. Raises RingscopeError for a script that does not exist."""
    recorded_ranks.check(how.recorded, options.ranks)
    if not how.hosts:
        profilers.check_script(options.command)
    job = partial(
        launch.command,
        profiler.of_command(options.command, folder, span),
        ranks=options.ranks,
        launcher=how.launcher,
        environ=os.environ,
        hosts=how.hosts,
        prefix=profiler.prefix(folder, span),
        launcher_args=how.launcher_args,
        variables=how.variables,
        container=how.container,
        recorded=how.recorded,
    )
    count = partial(count_of_ours, profiler, folder, recorded(how, options.ranks))
    return Ranks(lambda lifeline: job(lifeline=lifeline), count, partial(missing_of_ours, profiler, folder))


def count_of_ours(profiler: Profiler, folder: Path, ours: int) -> int | None:
    """The number of recordings of a command that ringscope starts on `ours` ranks; None until all ranks have started.
    If the script starts ranks itself, nsys records them into one file."""
    by_script = profiler.name in profilers.INSIDE and users_launcher.by_script(folder)
    return users_launcher.count(folder, users_launcher.SCRIPT) if by_script else ours


def missing_of_ours(profiler: Profiler, folder: Path) -> str:
    """The ranks that the script starts itself and that are not recorded, and what to do; "" if none are known."""
    if not users_launcher.by_script(folder):
        return ""
    if profiler.name == "nvprof":
        return (
            "nvprof does not record the ranks that the script starts; let torchrun start them, or give --profiler "
            "framework"
        )
    return users_launcher.missing(folder, users_launcher.SCRIPT)


def by_launcher(name: str, options: Record, how: sweep.How, profiler: Profiler, folder: Path, span: Span) -> Ranks:
    """Ranks that the user's launcher `name` starts. Raises RingscopeError for options that only ringscope's launchers
    heed."""
    ours = ("launcher", "launcher_args", "hosts", "hostfile", "env", "container")
    if given := [one for one in ours if one in options.launch.given]:
        flag = given[0].replace("_", "-")
        raise RingscopeError(f"{name} starts the ranks, so --{flag} has no effect; leave it out, or give it to {name}")
    if shutil.which(options.command[0]) is None:
        raise RingscopeError(f"{options.command[0]}: no such program; check the PATH")
    if "ranks" in options.launch.given or options.recorded == recorded_ranks.FIRST_PER_HOST:
        recorded_ranks.check(options.recorded, options.ranks)
    environ = users_launcher.environment(os.environ, profiler, folder, span, how.recorded)
    job = launch.Job(list(options.command), environ)
    count, missing = partial(users_launcher.count, folder, name), partial(users_launcher.missing, folder, name)
    return Ranks(lambda lifeline: job, count, missing)


def recorded(how: sweep.How, ranks: int) -> int:
    """The number of ranks that are recorded, of those that ringscope starts."""
    return recorded_ranks.count(how.recorded, ranks, [host.slots for host in hosts.take(how.hosts, ranks)])
