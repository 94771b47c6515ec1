"""Measures of places: parts of the user's code, with the idle time that the host spent in them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Line:
    """A line of the user's code at which samples saw the host within a place."""

    file: str
    line: int
    function: str
    via: str  # the library call on that line, or ""
    source: str  # text of the line
    ns: int


@dataclass(slots=True)
class Place:
    """A part of the user's code, and the idle time of the GPU that the host spent in it.

    kind: callback, eager, dataset, generator, py_function, validation, saving, gc for recorded ranges, with the line of
    the definition; python, call for functions that samples saw, with the line seen longest. `call`: the user's function
    that called into the framework.
    """

    kind: str
    name: str
    file: str
    line: int
    ns: dict[str, int]  # owner -> ns of the window
    lines: list[Line] = field(default_factory=list)  # the longest first
    longest_start_ns: int | None = None  # its longest idle span in the window
    longest_ns: int = 0

    @property
    def total_ns(self) -> int:
        return sum(self.ns.values())

    @property
    def at(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(slots=True)
class Places:
    """Idle time by part of the user's code. For each cause the rows and `elsewhere_ns` add up to the ledger."""

    rows: list[Place]  # the longest first
    elsewhere_ns: dict[str, int]
    ranges: bool  # True if the recording has ranges of places
    samples: bool  # True if a file of samples lies beside the recording
