"""Options of a batch system, and what all batch scripts have in common. One module per system writes the script.

A script runs the whole sweep in one allocation: `ringscope bench --resume`, which starts its ranks there. All that a
user gives is quoted: no path or argument is read as a command (tests/harness/launch/test_batch.py).
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from profiles.ground.errors import RingscopeError

from .environment import allowed


@dataclass(frozen=True, slots=True)
class Request:
    """A sweep to run in a batch system. gpus: whether each rank needs a GPU."""

    argv: tuple[str, ...]  # the sweep's own command
    ranks: int
    minutes: int
    log: Path
    ranks_per_node: int | None = None  # None: all on one node, but under Slurm as it sees fit
    cpus_per_rank: int | None = None
    gpus: bool = False
    args: tuple[str, ...] = ()  # further ones of the system, which win over ours
    prologue: str = ""  # lines of bash that come first, such as `module load cuda`
    variables: tuple[str, ...] = ()  # that travel beside what training needs
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def nodes(self) -> list[int]:
        """The ranks of each node."""
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
    """A batch script: lines `<mark> <directive>`, the prologue, the allow-list's variables, the command.

    `without`: the system's own variables, by how they begin, which each node gets from it. `before`: lines before the
    command.
    """
    env = allowed(request.environ, request.variables)
    passed = {name: value for name, value in env.items() if not name.startswith(without)}
    lines = ["#!/bin/bash", *(f"{mark} {one_line(directive)}" for directive in directives)]
    lines += [request.prologue.rstrip("\n")] if request.prologue else []
    lines += ["set -eu"]
    # Entries that the prologue puts before a search path stay before it.
    lines += [f"export {name}={_value(name, value, bool(request.prologue))}" for name, value in sorted(passed.items())]
    lines += [*before, f"cd {shlex.quote(str(Path.cwd()))}", f"exec {' '.join(map(_word, request.argv))}"]
    return "\n".join(lines) + "\n"


def _word(word: str) -> str:
    """A word of the command: quoted, but the name of the file in which the system lists the nodes."""
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
    """A directive as it is. Raises RingscopeError for a line break, which would end it and begin a command."""
    if re.search(r"[\x00-\x1f\x7f]", text):
        raise RingscopeError(f"{text!r} has a line break or another control character; a batch script cannot name it")
    return text


def read_prologue(path: Path) -> str:
    """The lines of a prologue. Raises RingscopeError."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise RingscopeError(f"--prologue {path}: cannot be read ({why}); name a file of bash lines") from error
