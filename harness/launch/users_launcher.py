"""The user's own launcher (`torchrun`, `accelerate launch`, `deepspeed`, `srun`, `mpirun` ...) starts the ranks.

Each Python process that finds that it is a rank replaces itself by the same command under the profiler. The launcher's
options are not read. A folder on PYTHONPATH (hook/sitecustomize.py) makes every Python below the launcher call `begin`,
and the variables that launchers set tell which of them are ranks (machine/ranks.py).
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from profiles.ground import numbers
from profiles.ground.files import write_whole

from ..machine import joined, ranks, recorded_ranks
from .environment import package_path
from .profilers import Profiler, Span, python_words

VARIABLE = "RINGSCOPE_OWN"  # hook/sitecustomize.py looks for the same name
LAUNCHERS = ("accelerate", "deepspeed", "horovodrun", "jsrun", "mpiexec", "mpiexec.hydra", "mpirun", "srun", "torchrun")
_MODULES = re.compile(r"torch\.distributed\.(run|launch)|(accelerate|deepspeed|horovod\.runner)(\.\w+)*")
_IN_SHELL = re.compile(
    rf"(?<![\w./-])(?:[\w./~-]*/)?({'|'.join(map(re.escape, LAUNCHERS))})(?=\s|$)|-m\s+({_MODULES.pattern})(?=\s|$)"
)
_SHELLS = ("sh", "bash", "dash", "ksh", "zsh")
_MOST_BYTES = 1 << 20  # a larger shell script is not searched for a launcher
SCRIPT = "the script"  # the name of what starts the ranks if no launcher does
STARTED = "started"  # folder in which each rank writes a file when it has started


def launcher(argv: Sequence[str]) -> str | None:
    """The launcher of ranks that a command is or calls: `torchrun ...`, `env A=1 uv run torchrun ...`, `python -m
    torch.distributed.run ...`, `bash train.sh` whose text calls one. None if the command is that of a single rank."""
    for at, word in enumerate(argv):
        name = Path(word).name
        if name in LAUNCHERS:
            return name
        if name in _SHELLS or word.endswith(".sh"):
            return _in_shell(argv[at:])
        if "python" in name:
            words = python_words(argv[at:])
            program = words[1] if words else [""]
            if program[0] == "-m":
                return program[1] if _MODULES.fullmatch(program[1]) else None
            return Path(program[0]).name if Path(program[0]).name in LAUNCHERS else None
    return _in_shell(argv[:1])


def _in_shell(words: Sequence[str]) -> str | None:
    """The launcher that the text of a shell script calls, or the words of `bash -c`; None if there is none."""
    for word in words:
        text = word if " " in word else _script(Path(word))
        code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
        if found := _IN_SHELL.search(code):
            return found[1] or found[2]
    return None


def _script(path: Path) -> str:
    """The text of a shell script; "" if the file is none."""
    try:
        if not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return ""
        text = path.read_text(errors="replace")
    except OSError:
        return ""
    first = text.partition("\n")[0]
    return text if path.suffix == ".sh" or (first.startswith("#!") and "sh" in first) else ""


def environment(
    environ: Mapping[str, str], profiler: Profiler, folder: Path, span: Span, recorded: str
) -> dict[str, str]:
    """The user's environment for a launcher: every Python in it that is a rank records itself."""
    told = {
        "prefix": profiler.prefix(folder, span),
        "options": profiler.options_of_command(folder, span),
        "folder": str(folder),
        "recorded": recorded,
        "paths": environ.get("PYTHONPATH"),
    }
    return entered(environ, {VARIABLE: json.dumps(told)})


def entered(environ: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """The user's environment for a launcher, with `variables`: every Python in it runs hook/sitecustomize.py."""
    # Leave out variables that make this process look like a rank: a batch script of Slurm is itself task 0.
    mine = {name: value for name, value in environ.items() if name not in ranks.OF_ONE_RANK}
    hook = str(Path(__file__).with_name("hook"))
    paths = ":".join(filter(None, (hook, package_path(environ.get("PYTHONPATH")))))
    return {**mine, **variables, "PYTHONPATH": paths}


def is_rank() -> bool:
    """True if this process runs a script as a rank that a launcher has started, and is not a launcher itself."""
    return python_words(sys.orig_argv) is not None and ranks.is_told() and not launcher(sys.orig_argv)


def begin() -> None:
    """If this process is a rank, replace it by the same command under the profiler."""
    words = python_words(sys.orig_argv)
    if words is None or not is_rank():
        return
    told = json.loads(os.environ.pop(VARIABLE))
    # Without this, processes that the rank starts would take themselves for ranks.
    os.environ["PYTHONPATH"] = package_path(told["paths"])
    number = ranks.rank()
    os.environ |= {"RINGSCOPE_RANK": str(number), "RINGSCOPE_SIZE": str(ranks.size())}
    holds = recorded_ranks.holds(told["recorded"], number, ranks.local_rank())
    say_started(Path(told["folder"]), number, ranks.size(), recorded=holds)
    if not holds:
        os.environ[recorded_ranks.RECORDED] = "0"
        return
    argv = [*told["prefix"], sys.executable, *words[0][1:], *told["options"], *words[1]]
    os.execvp(argv[0], argv)


def say_started(folder: Path, number: int, size: int, *, recorded: bool = True) -> None:
    """Write a file that tells ringscope that this rank of `size` has started; a host that cannot write it sends no
    recordings either."""
    first = number - ranks.local_rank()
    of_host = [first, first + ranks.local_size()] if "TORCHELASTIC_RUN_ID" in os.environ else [0, size]
    here = {"rank": number, "of": size, "of_host": of_host, "recorded": recorded, "host": socket.gethostname()}
    try:
        (folder / STARTED).mkdir(parents=True, exist_ok=True)
        write_whole(folder / STARTED / f"{number}.json", json.dumps(here))
    except OSError as error:
        print(f"ringscope: rank {number} cannot write its recording: {error}", file=sys.stderr, flush=True)


def by_script(folder: Path) -> bool:
    """True if several ranks have told of their start: the script starts them, where ringscope has started one."""
    return any(one["of"] > 1 for one in _started(folder))


def count(folder: Path, name: str) -> int | None:
    """The number of ranks that are recorded, counted by the files that ranks write at their start; None until all that
    the launcher `name` starts have started."""
    found = _started(folder)
    return None if _missing(found, name) else sum(bool(one["recorded"]) for one in found)


def missing(folder: Path, name: str) -> str:
    """The ranks of the launcher `name` that have not told of their start, and what to do; "" if all have."""
    return _missing(_started(folder), name)


def _missing(found: Sequence[Mapping[str, Any]], name: str) -> str:
    of_one_host = name.partition(".")[0] in ("accelerate", "torch", "torchrun")
    variable = joined.VARIABLE if name == SCRIPT else VARIABLE
    by_hand = "" if of_one_host or name == SCRIPT else f" (mpirun: -x PYTHONPATH -x {variable})"
    keep = f"keep PYTHONPATH and {variable} in the environment of the ranks{by_hand}"
    if not found:
        waits = f"if {name} waits for other hosts, start it there too, each with an --out of its own; else "
        return (
            f"{name} has started no Python process that is a rank and can import ringscope; {waits * of_one_host}"
            f"{keep}, and install ringscope in their Python"
        )
    expected = {rank for one in found for rank in range(*(one["of_host"] if of_one_host else [0, one["of"]]))}
    absent = expected - {one["rank"] for one in found}
    return f"not recorded: rank {numbers.ranges(absent)}; {keep}" if absent else ""


def _started(folder: Path) -> list[dict[str, Any]]:
    """The facts that each rank wrote at its start."""
    return [json.loads(path.read_text()) for path in (folder / STARTED).glob("*.json")]
