"""The errors a user sees: one line that says what, where and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_ONE_LINE: Final = {ord("\n"): "\N{SYMBOL FOR LINE FEED}", ord("\r"): "\N{SYMBOL FOR CARRIAGE RETURN}"}


class RingscopeError(Exception):
    """Ends a command with one readable line, and exit code 2: bad input or usage."""

    exit_code: Final = 2


class MissingLibrary(RingscopeError, ImportError):
    """TensorFlow or Horovod does not load; an ImportError too, so that `try: from ringscope import ring` can go on."""


class UnreadableRecording(RingscopeError):
    """A file that is not a readable recording: path, problem and remedy."""

    def __init__(self, path: Path | str, problem: str, remedy: str) -> None:
        super().__init__(f"{path}: {problem}; {remedy}".translate(_ONE_LINE))
        self.path = str(path)
        self.problem = problem
        self.remedy = remedy

    def __reduce__(self) -> tuple[type[UnreadableRecording], tuple[str, str, str]]:
        return type(self), (self.path, self.problem, self.remedy)


class InspectorLog(UnreadableRecording):
    """A log of NCCL's Inspector: collectives without a timeline of a GPU, which `timeline` and `gate` read too."""


class SameRecording(UnreadableRecording):
    """A file that is a copy of another given file."""
