"""Errors that a user sees as one line: what is wrong, where, and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_ONE_LINE: Final = {ord("\n"): "\N{SYMBOL FOR LINE FEED}", ord("\r"): "\N{SYMBOL FOR CARRIAGE RETURN}"}


class RingscopeError(Exception):
    """Bad input or usage. It ends a command with one line and exit code 2."""

    exit_code: Final = 2


class MissingLibrary(RingscopeError, ImportError):
    """TensorFlow or Horovod does not load. It is an ImportError, too, so that a script that tries
    `from ringscope import ring` can go on without it."""


class UnreadableRecording(RingscopeError):
    """A file that cannot be read as a recording: its path, the problem, and what to do."""

    def __init__(self, path: Path | str, problem: str, remedy: str) -> None:
        super().__init__(f"{path}: {problem}; {remedy}".translate(_ONE_LINE))
        self.path = str(path)
        self.problem = problem
        self.remedy = remedy

    def __reduce__(self) -> tuple[type[UnreadableRecording], tuple[str, str, str]]:
        return type(self), (self.path, self.problem, self.remedy)


class NcclLog(UnreadableRecording):
    """A log of NCCL's Inspector or profiler plugin, which has collectives but no timeline of a GPU; `timeline` and
    `gate` read such logs."""


class SameRecording(UnreadableRecording):
    """A file with the same content as another file given."""
