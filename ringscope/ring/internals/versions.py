"""The releases of Keras, TensorFlow and Horovod that ring was tested with: the first and the last of each."""

from __future__ import annotations

import sys
from typing import NamedTuple


class Tried(NamedTuple):
    package: str  # the package's name for pip
    version: str  # the installed release
    first: str
    last: str

    @property
    def is_outside(self) -> bool:
        return not _numbers(self.first) <= _numbers(self.version) <= _numbers(self.last)

    @property
    def is_last(self) -> bool:
        """True for the newest of the tested releases that this Python can have."""
        return self.version == self.last

    @property
    def remedy(self) -> str:
        """The command that installs a release which ring was tested with."""
        if self.package == "horovod":  # Horovod's release on PyPI does not work without edits
            return f"python scripts/build_horovod.py builds {self.last}"
        return f"pip install '{self.package}=={self.last}'"


# Keras 3.13 and later need Python 3.11.
KERAS = ("3.12.4", "3.15.1" if sys.version_info >= (3, 11) else "3.12.4")


TRIED = {"keras": KERAS, "tensorflow": ("2.21.0", "2.21.0"), "horovod": ("0.28.1", "0.28.1")}


def installed() -> dict[str, Tried]:
    """Module name -> its installed and its tested releases. All three modules must be imported already."""
    return {name: Tried(name, sys.modules[name].__version__, *tried) for name, tried in TRIED.items()}


def outside() -> list[str]:
    """A line for each package whose release is older or newer than the tested ones."""
    return [
        f"{one.package} {one.version} is not among the releases that ring was tried with ({one.first} to {one.last})"
        for one in installed().values()
        if one.is_outside
    ]


def _numbers(version: str) -> tuple[int, ...]:
    """The first three numbers of a version: 3.16.0.dev2026 counts as 3.16.0."""
    parts = version.partition("+")[0].split(".")
    return tuple(int(part) for part in parts[:3] if part.isdecimal())
