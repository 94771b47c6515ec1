"""The request for a batch job, and the common part of all batch scripts; one module per batch system writes the script.

A script runs the whole sweep in one allocation by `ringscope bench --resume`, which starts the ranks there. Every path
and argument from the user is quoted, so that none is read as a command (tests/harness/launch/test_batch.py).
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from profiles.ground.errors import RingscopeError
from profiles.ground.files import as_text

from .environment import allowed


@dataclass(frozen=True, slots=True)
class Request:
    """A sweep to run in a batch system. gpus: True if each rank needs a GPU."""

    argv: tuple[str, ...]  # the sweep's own command
    ranks: int
    minutes: int
    log: Path
    ranks_per_node: int | None = None  # None: all ranks on one node; under Slurm, as Slurm decides
    cpus_per_rank: int | None = None
    gpus: bool = False
    args: tuple[str, ...] = ()  # further options of the system, which override ringscope's
    prologue: str = ""  # lines of bash to run first, such as `module load cuda`
    variables: tuple[str, ...] = ()  # names of variables that ranks get beside those that training needs
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def nodes(self) -> list[int]:
        most = self.ranks_per_node or self.ranks
        full, rest = divmod(self.ranks, most)
        return [most] * full + ([rest] if rest else [])


def script(
    mark: str,
    directives: Sequence[str],
    request: Request,
    *,
    without: str | tuple[str, ...],
    before: Sequence[str],
) -> str:
    """A batch script: lines `<mark> <directive>`, the prologue, the variables that ranks may get, the command.

    without: prefixes of the batch system's own variables, which the system sets on each node. before: lines before the
    command.
    """
    env = allowed(request.environ, request.variables)
    passed = {name: value for name, value in env.items() if not name.startswith(without)}
    lines = ["#!/bin/bash", *(f"{mark} {one_line(directive)}" for directive in directives)]
    lines += [request.prologue.rstrip("\n")] if request.prologue else []
    lines += ["set -eu"]
    # Search paths are appended, so that folders which the prologue puts first stay first.
    lines += [f"export {name}={_value(name, value, bool(request.prologue))}" for name, value in sorted(passed.items())]
    lines += [*before, f"cd {shlex.quote(str(Path.cwd()))}", f"exec {' '.join(map(_word, request.argv))}"]
    return "\n".join(lines) + "\n"


def _word(word: str) -> str:
    """A word of the command, quoted for bash. The variable that names the system's list of nodes is left to bash."""
    return f'"{word}"' if word in NODE_FILES else shlex.quote(word)


NODE_FILES = ("$PBS_NODEFILE", "$LSB_DJOB_HOSTFILE")


def to_log(request: Request) -> str:
    """The line after which all output goes to the log."""
    return f"exec >>{shlex.quote(str(request.log))} 2>&1"


_SEARCHED = ("PATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "PYTHONPATH")


def _value(name: str, value: str, prologue: bool) -> str:
    quoted = shlex.quote(value)
    return f'"${{{name}:+${name}:}}"{quoted}' if prologue and name in _SEARCHED else quoted


def one_line(text: str) -> str:
    """Return a directive unchanged. Raises RingscopeError for a line break, which would end the directive and begin a
    command."""
    if re.search(r"[\x00-\x1f\x7f]", text):
        raise RingscopeError(f"{text!r} has a line break or another control character; a batch script cannot name it")
    return text


def read_prologue(path: Path) -> str:
    """The lines of the prologue file. Raises RingscopeError if the file cannot be read."""
    try:
        return as_text(path.read_bytes())
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", error)
        raise RingscopeError(f"--prologue {path}: cannot be read ({why}); name a file of bash lines") from error
