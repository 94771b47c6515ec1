"""The profilers (Nsight Systems, nvprof, the frameworks' own): which one records here, with which options, into which
files."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from profiles.ground.errors import RingscopeError

from ..machine import describe, nvml

SUFFIXES = (".sqlite", ".nsys-rep", ".nvvp", ".xplane.pb", ".pt.trace.json")
# Profilers that run inside the process, by the suffixes of their files: TensorFlow's, or that of the framework that the
# script trains with.
INSIDE = {"tensorflow": (".xplane.pb",), "framework": (".xplane.pb", ".pt.trace.json")}
# Bytes of disk space for a rank's recording and its export; 12 steps of ResNet-50 take some 30 MB.
BYTES_A_RANK = 300_000_000
SETTLED_S = 5.0  # seconds; when nsys writes a report of 300 MB it pauses for less than this
STEPS = 20  # steps of a Python command that are recorded, once the step time is steady
# Seconds before and of the recording, for a program in which no steps are seen.
DELAY_S, DURATION_S = 30.0, 10.0


@dataclass(frozen=True, slots=True)
class Span:
    """The part of a command that is recorded: `steps` training steps, once the step time is steady. If the command is
    no Python script, if no step is seen, or if steps is None, the recording is timed in seconds from the start. A cell
    needs no span, because its worker opens the CUDA capture range."""

    delay_s: float = DELAY_S
    duration_s: float = DURATION_S
    steps: int | None = None

    def __str__(self) -> str:
        time = f"after {self.delay_s:g} s, for {self.duration_s:g} s"
        if self.steps is None:
            return time
        return f"{self.steps} steps, once the step time is steady (if no step is seen: {time})"


@dataclass(frozen=True, slots=True)
class Profiler:
    """A profiler by name, and its path (None for a framework's profiler). more: further options of `nsys profile`."""

    name: str
    path: str | None = None
    more: tuple[str, ...] = ()

    @property
    def spoken(self) -> str:
        """The profiler in a sentence, such as `recorded by nsys`."""
        return "the framework's own profiler" if self.name == "framework" else self.name

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The suffixes of the profiler's files."""
        return INSIDE.get(self.name) or ({"nsys": ".nsys-rep", "nvprof": ".nvvp"}[self.name],)

    def whole(self, folder: Path, count: int) -> bool:
        """True if the recordings of `count` ranks are complete while the ranks still run.

        A framework's recording gets its name only when it is complete. nsys's recording grows under its final name, so
        it counts as complete if it has not changed for SETTLED_S; if that is wrong, the export fails. nvprof writes
        when the process ends.
        """
        found = [path for suffix in self.suffixes for path in folder.glob(f"rank*{suffix}")]
        if len(found) < count or self.name == "nvprof":
            return False
        states = [path.stat() for path in found] if self.name == "nsys" else []
        return all(state.st_size and time.time() - state.st_mtime > SETTLED_S for state in states)

    def prefix(self, folder: Path, span: Span | None = None) -> list[str]:
        """The words before a rank's command. span: of a user's command; None for a cell, which opens its own capture
        range."""
        stem = f"{folder}/rank%q{{RINGSCOPE_RANK}}"
        # without a span in seconds the profiler waits for the capture range
        timed = span if span is not None and span.steps is None else None
        if self.name == "nsys":
            # --kill=none: the training goes on after the recording has ended
            seconds = (f"--delay={timed.delay_s:g}", f"--duration={timed.duration_s:g}", "--kill=none") if timed else ()
            part = seconds or ("-c", "cudaProfilerApi", "--capture-range-end=stop")
            return [str(self.path), "profile", *_NSYS, *part, *self.more, "-o", stem]
        if self.name == "nvprof":
            options = [] if timed else ["--profile-from-start", "off"]
            return [str(self.path), "-f", "-o", f"{stem}.nvvp", *options]
        return []

    def of_command(self, argv: Sequence[str], folder: Path, span: Span) -> list[str]:
        """The user's command with what records it from inside. Raises RingscopeError if this profiler cannot record the
        command."""
        options = self.options_of_command(folder, span)
        if not options:
            return list(argv)
        words = python_words(argv)
        if words is None:
            raise RingscopeError(
                "neither nsys nor nvprof can record here, and frameworks' profilers record Python scripts and "
                f"modules only, not {' '.join(argv)!r}; install Nsight Systems, or give: python SCRIPT or "
                "python -m MODULE"
                if self.name in INSIDE
                else f"steps are seen in Python scripts and modules only, not in {' '.join(argv)!r}; leave --steps out"
            )
        interpreter, program = words
        return [*interpreter, *options, *program]

    def options_of_command(self, folder: Path, span: Span) -> list[str]:
        """The words to put between `python` and a script (or `-m` and a module) so that it is recorded; empty if the
        profiler stands before `python` and needs nothing inside the script."""
        if self.name not in INSIDE and span.steps is None:
            return []
        return ["-m", "harness.launch.recorded_script", json.dumps([self.name, str(folder), asdict(span)])]


def python_words(argv: Sequence[str]) -> tuple[list[str], list[str]] | None:
    """(interpreter and its options, script or module and its arguments) of a Python command; None for another command.
    `env NAME=VALUE ...` before the command counts to the interpreter."""
    at = 0
    if Path(argv[0]).name == "env":
        at = next((at for at, word in enumerate(argv) if at and "=" not in word), 0)
    after = at + 1
    while after < len(argv) and (flag := _PYTHON_FLAG.fullmatch(argv[after])):
        after += 2 if flag[1] else 1
    interpreter, program = list(argv[:after]), list(argv[after:])
    module = program[:1] == ["-m"]
    if "python" not in Path(argv[at]).name or len(program) < 1 + module or program[module].startswith("-"):
        return None
    return interpreter, program


def check_script(argv: Sequence[str]) -> None:
    """Raise RingscopeError, before any rank starts, if the script of a Python command does not exist."""
    words = python_words(argv)
    if words and words[1][0] != "-m" and not Path(words[1][0]).exists():
        raise RingscopeError(f"{words[1][0]}: no such file; check the path of the script")


# -I, -E and -S are left out: with them Python does not find this package. -X and -W have a value, in the same or in the
# next word.
_PYTHON_FLAG = re.compile(r"(-[XW])|-(?:[bBdOPqRsuvx]+|[XW].+)")
# nsys would show a CUDA graph as one launch without its kernels, so it traces graphs by node. It samples no CPU and
# traces no OS calls.
_NSYS = ("-t", "cuda,nvtx", "-s", "none", "--cpuctxsw=none", "--cuda-graph-trace=node", "--force-overwrite=true")


_METRICS = "--gpu-metrics"  # nsys's options for GPU metrics begin so
# nsys's words where none of the GPUs here can be read: a line for each GPU, with the reason after a dash
_NO_METRICS = re.compile(r"None of the installed GPUs are supported.*?\s-\s+([^\n]+)", re.DOTALL)
_ANSWER_S = 60.0  # seconds that nsys has to say whether it can read GPU metrics


def choose(wanted: str | None = None) -> Profiler:
    """The wanted profiler, else the best one that is here and can record these GPUs; without a GPU the framework's own.
    Raises RingscopeError if the wanted profiler is not here."""
    found = {name: describe.find(name) for name in describe.PLACES}
    if wanted in found and not found[wanted]:
        raise RingscopeError(
            f"{wanted} is not on the PATH nor in its usual places; install it, or leave --profiler out"
        )
    if wanted:
        return Profiler(wanted, found.get(wanted))
    gpus, _ = nvml.gpu_list()
    if gpus and found["nsys"]:
        return Profiler("nsys", found["nsys"])
    if gpus and found["nvprof"] and all(_nvprof_records(gpu) for gpu in gpus):
        return Profiler("nvprof", found["nvprof"])
    return Profiler("framework")


def allowed(profiler: Profiler) -> tuple[Profiler, str]:
    """The profiler without options for GPU metrics if nsys cannot read them here, and a line that says so; else the
    same profiler and "". With such an option nsys would end before it starts the command."""
    metrics = [word for word in profiler.more if word.startswith(_METRICS)]
    if not metrics:
        return profiler, ""
    asked = [str(profiler.path), "profile", "--gpu-metrics-devices=help"]
    with suppress(subprocess.TimeoutExpired):
        done = subprocess.run(asked, capture_output=True, text=True, errors="replace", timeout=_ANSWER_S)
        if found := _NO_METRICS.search(done.stdout + done.stderr):
            values = {profiler.more.index(word) + 1 for word in metrics if "=" not in word}
            more = [word for at, word in enumerate(profiler.more) if word not in metrics and at not in values]
            return replace(profiler, more=tuple(more)), (
                f"nsys cannot read GPU metrics here ({found[1].strip()}); the recording goes on without them"
            )
    return profiler, ""


def _nvprof_records(gpu: Mapping[str, Any]) -> bool:
    """True if nvprof supports the GPU: up to compute capability 7.5 (NVIDIA's Profiler User's Guide)."""
    capability = gpu["compute_capability"]
    return capability is None or int(capability.split(".")[0]) < 8
