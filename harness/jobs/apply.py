"""Run `record --apply`: train a script by turns unchanged and with one setting (a knob) changed, and print which
settings make it faster.

A turn starts the script on all ranks in a copy of the working directory, and ends it once enough steps are timed. The
settings that pay are printed as lines to paste into the script or the shell.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from profiles.ground import numbers
from profiles.ground.errors import RingscopeError
from profiles.ground.files import write_whole
from profiles.ground.lazy import INTERRUPTED
from profiles.ground.stats import spread
from profiles.views.terminal import recording as terminal

from .. import launch
from ..launch import profilers
from ..processes.lifeline import Lifeline
from ..processes.signals import stopped_by_signals
from . import bench, knobs, sweep
from .knobs import Knob, Taken, Verdict
from .options import Record
from .progress import about
from .run_directory import new_path, writing

TURNS = 2  # turns of the unchanged script, and of each knob
STEPS, SECONDS = 40, 20.0  # a turn times this many steps, or as many as fit into these seconds
LIMIT_S = 600.0  # the longest time of a turn, start included
POLL_S = 0.2
Copied = Callable[[Path, Path], AbstractContextManager[Path]]


@dataclass(slots=True)
class Trials:
    """The turns of one script so far. take: runs a turn with the given knobs changed."""

    take: Callable[[Sequence[Knob]], Taken]
    as_it_is: list[Taken] = field(default_factory=list)
    tried: dict[Knob, list[Taken]] = field(default_factory=dict)
    again: list[Taken] = field(default_factory=list)  # turns with all knobs that paid, at once

    def first(self) -> Taken:
        """Run a turn of the unchanged script. Raises RingscopeError if it does not train."""
        taken = self.take([])
        if taken.step_ns is None:
            raise RingscopeError(f"the unchanged script cannot be timed, so no setting can be tried: {taken.why}")
        self.as_it_is.append(taken)
        return taken

    def by_turns(self, every: Sequence[Knob]) -> None:
        """Run rounds of the unchanged script and each knob alone. A knob whose turn failed is not tried again."""
        for number in range(TURNS):
            if number:
                self._again()
            for knob in every:
                turns = self.tried.setdefault(knob, [])
                if not turns or turns[-1].step_ns is not None:
                    turns.append(self.take([knob]))

    def confirm(self, paid: Sequence[Knob]) -> None:
        """Run turns with all the knobs that paid, because one of many knobs may look faster in a few turns by
        chance."""
        for _ in range(TURNS):
            self.again.append(self.take(paid))
            self._again()

    def verdicts(self) -> dict[Knob, Verdict]:
        """The verdict on each knob that had all of its turns, or that failed in one."""
        failed = {knob for knob, turns in self.tried.items() if turns and turns[-1].step_ns is None}
        whole = {knob: turns for knob, turns in self.tried.items() if len(turns) == TURNS or knob in failed}
        return {knob: knobs.judge(self.as_it_is, turns) for knob, turns in whole.items()}

    def _again(self) -> None:
        taken = self.first()
        if told := knobs.apart(self.as_it_is[0].losses, taken.losses):
            raise RingscopeError(
                "the script trains differently each time, so the effect of a setting on its result is not known: "
                f"{told}; seed its random numbers (keras.utils.set_random_seed)"
            )


def main(options: Record, copied: Copied) -> int:
    """Try the knobs and print which of them pay; returns the exit code. copied: context manager that copies a folder
    into a new one."""
    console = terminal.console()
    how = sweep.of_command(bench.how_to_launch(options.launch), options.ranks, options.launch.given)
    sweep.check_launcher(how)
    profilers.check_script(options.command)
    words = profilers.python_words(options.command)
    if words is None:
        raise RingscopeError(
            f"--apply tries Python scripts and modules, not {' '.join(options.command)!r}; name one of these"
        )
    folder = ((options.launch.out or new_path()) / "apply").resolve()
    if folder.exists():
        raise RingscopeError(f"{folder}: exists already; name another --out")
    with writing(folder):
        folder.mkdir(parents=True)
    steps = options.span.steps or STEPS
    count = [0]

    def take(turned: Sequence[Knob]) -> Taken:
        count[0] += 1
        name = " and ".join(knob.name for knob in turned) or "as it is"
        with console.status(f"{name}: turn {count[0]}"):
            began_s = time.monotonic()
            with (
                tempfile.TemporaryDirectory(prefix="ringscope-apply-") as temporary,
                copied(Path.cwd(), Path(temporary, "copy")) as place,
            ):
                taken = _turn(folder / str(count[0]), place, options, how, words, turned, steps)
        result = taken.why if taken.step_ns is None else f"{numbers.duration(taken.step_ns)} a step"
        took = numbers.minutes(time.monotonic() - began_s)
        console.print(f"{count[0]}. {name}: {result} ({took})", soft_wrap=True)
        return taken

    trials, began_s = Trials(take), time.monotonic()
    try:
        with stopped_by_signals():
            first = trials.first()
            cores = len(os.sched_getaffinity(0))
            every = knobs.of_environment(gpus=how.gpus, ranks=options.ranks, cores=cores, environ=os.environ)
            every += knobs.of_code(first.refused, ranks=options.ranks, cores=cores)
            turns = TURNS * (1 + len(every)) - 1
            took_s = turns * (time.monotonic() - began_s)
            names = ", ".join(knob.name for knob in every)
            console.print(
                f"{numbers.counted(len(every), 'knob')} to try in {turns} turns, about {about(took_s)}: {names}"
            )
            trials.by_turns(every)
            if paid := [knob for knob, verdict in trials.verdicts().items() if verdict.kept]:
                trials.confirm(paid)
    except KeyboardInterrupt:
        _report(trials, options, folder, console, nothing="interrupted before all turns: a setting may still be faster")
        return INTERRUPTED
    _report(trials, options, folder, console)
    return 0


def _turn(
    folder: Path,
    place: Path,
    options: Record,
    how: sweep.How,
    words: tuple[list[str], list[str]],
    turned: Sequence[Knob],
    steps: int,
) -> Taken:
    """Start the script once in `place`, and end its ranks when each has written its report into `folder`."""
    folder.mkdir()
    environment = {name: value for knob in turned for name, value in knob.environment.items()}
    changes = json.dumps(dict(knob.change for knob in turned if knob.change))
    tried = ["-m", "harness.launch.timed_script", str(folder), str(steps), f"{SECONDS:g}", changes]
    with Lifeline(lines=options.ranks + 1) as lifeline, (folder / "launcher.log").open("wb") as output:
        job = launch.command(
            [*words[0], *tried, *words[1]],
            ranks=options.ranks,
            launcher=how.launcher,
            environ={**os.environ, **environment},
            lifeline=lifeline.address,
            log_dir=folder,
            launcher_args=how.launcher_args,
        )
        argv = launch.keeper(job.argv, lifeline=lifeline.address)
        process = subprocess.Popen(argv, env=job.env, cwd=place, stdout=output, stderr=output)
        try:
            late = _wait(process, folder, options.ranks)
        finally:
            lifeline.close()
            process.wait()
    return _taken(folder, options.ranks, turned, late)


def _wait(process: subprocess.Popen[bytes], folder: Path, ranks: int) -> bool:
    """Wait until all ranks have reported or the launcher has ended. Returns True if the time limit came first."""
    deadline_s = time.monotonic() + LIMIT_S
    while process.poll() is None and len(list(folder.glob("rank*.tried.json"))) < ranks:
        if time.monotonic() > deadline_s:
            return True
        time.sleep(POLL_S)
    return False


def _taken(folder: Path, ranks: int, turned: Sequence[Knob], late: bool) -> Taken:
    told = [json.loads(path.read_text()) for path in sorted(folder.glob("rank*.tried.json"))]
    if len(told) < ranks:
        why = f"not done within {numbers.minutes(LIMIT_S)}" if late else f"it failed: {_last_words(folder)}"
        return Taken(None, why=why)
    refused: dict[str, str] = {}
    for rank in told:
        refused |= {name: why for name, why in rank["refused"].items() if why or name not in refused}
    for knob in turned:
        if knob.change and refused.get(knob.change[0]):
            return Taken(None, refused=refused, why=refused[knob.change[0]])
    if not all(rank["steps"] for rank in told):
        return Taken(
            None, refused=refused, why="the script ended before a step of Keras's fit was timed; let it train longer"
        )
    losses = {f"{rank['rank']}:{place}": loss for rank in told for place, loss in rank["losses"].items()}
    return Taken(max(round(rank["seconds"] * 1e9 / rank["steps"]) for rank in told), losses, refused)


def _last_words(folder: Path) -> str:
    """The last line that a rank printed; if no rank printed any, the launcher's last line."""
    for path in (*sorted(folder.glob("rank*.log")), folder / "launcher.log"):
        lines = path.read_text(errors="replace").split("\n") if path.exists() else []
        if said := [line.strip() for line in lines if line.strip()]:
            return f"{said[-1][:200]} ({path})"
    return f"the script printed nothing ({folder})"


def _report(
    trials: Trials,
    options: Record,
    folder: Path,
    console: Console,
    nothing: str = "nothing to change: no setting makes the script faster here",
) -> None:
    """Print for each knob its gain and whether it is kept, then the lines to paste or, if there are none, `nothing`;
    write all of it into `knobs.json`."""
    if not trials.as_it_is:
        console.print(nothing)
        return
    verdicts = trials.verdicts()
    again = knobs.judge(trials.as_it_is, trials.again) if len(trials.again) == TURNS else None
    kept = [knob for knob, verdict in verdicts.items() if verdict.kept] if again and again.kept else []
    before = spread([turn.step_ns or 0 for turn in trials.as_it_is])
    lines = [f"\nthe unchanged script: {_step(trials.as_it_is)} per step"]
    lines += [
        f"  {'kept' if knob in kept else 'not '}  {_said(knob.name, trials.tried[knob], v)}"
        for knob, v in verdicts.items()
    ]
    if again:
        lines.append(f"  {'kept' if again.kept else 'not '}  {_said('all that paid, together', trials.again, again)}")
    refused = trials.as_it_is[0].refused
    lines += [f"  not tried  {name}: {why}" for name, why in refused.items() if why]
    paste = [line for knob in kept for line in knob.lines]
    lines += ["\nto keep it:", *(f"    {line}" for line in paste)] if paste else [nothing]
    console.print("\n".join(lines), soft_wrap=True)
    written = {
        "schema": "ringscope.knobs/1",
        "command": list(options.command),
        "ranks": options.ranks,
        "step_ns": round(before.median),
        "turns_ns": [turn.step_ns for turn in trials.as_it_is],
        "knobs": [_json(knob, trials.tried[knob], verdict, knob in kept) for knob, verdict in verdicts.items()],
        "again_ns": [turn.step_ns for turn in trials.again],
        "refused": {name: why for name, why in refused.items() if why},
        "paste": paste,
    }
    write_whole(folder / "knobs.json", json.dumps(written, indent=1) + "\n")
    console.print(f"turns and logs: {folder}", soft_wrap=True)


def _step(turns: Sequence[Taken]) -> str:
    return numbers.duration(spread([turn.step_ns or 0 for turn in turns]).median)


def _said(name: str, turns: Sequence[Taken], verdict: Verdict) -> str:
    """The result of a knob, such as `2 threads each: 11.2 ms a step, +10.2 % (+8 % to +12 %)`."""
    if verdict.gain is None:
        return f"{name}: {verdict.why}"
    low, high = (numbers.gain(value - 1) for value in (verdict.gain.low, verdict.gain.high))
    why = f": {verdict.why}" if verdict.why else ""
    return f"{name}: {_step(turns)} a step, {numbers.gain(verdict.gain.value - 1)} ({low} to {high}){why}"


def _json(knob: Knob, turns: Sequence[Taken], verdict: Verdict, kept: bool) -> dict[str, Any]:
    gain = verdict.gain
    return {
        "name": knob.name,
        "lines": knob.lines,
        "turns_ns": [turn.step_ns for turn in turns],
        "gain": None if gain is None else gain.value - 1,
        "low": None if gain is None else gain.low - 1,
        "high": None if gain is None else gain.high - 1,
        "kept": kept,
        "why": verdict.why,
    }
