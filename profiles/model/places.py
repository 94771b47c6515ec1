"""Data classes for places: parts of the user's code, and the idle time that the host spent in them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

SAMPLED: Final = ("python", "call")  # kinds of places that samples saw; recorded ranges have the other kinds


@dataclass(slots=True)
class Line:
    """A line of the user's code within a place, at which samples saw the host."""

    file: str
    line: int
    function: str
    via: str  # the library call on that line, or ""
    source: str  # the line's text
    ns: int


@dataclass(slots=True)
class Place:
    """A part of the user's code, and the idle time of the GPU that the host spent in it.

    `kind` of a recorded range: callback, eager, dataset, generator, py_function, validation, saving or gc; `line`
    is that of its definition. `kind` of a function that samples saw: python, or call for the user's function that
    called into the framework; `line` is the one seen longest.
    """

    kind: str
    name: str
    file: str
    line: int
    ns: dict[str, int]  # owner -> ns of the window
    lines: list[Line] = field(default_factory=list)  # the line with most time first
    longest_start_ns: int | None = None  # start of the longest idle span that the host spent in it
    longest_ns: int = 0

    @property
    def total_ns(self) -> int:
        return sum(self.ns.values())

    @property
    def at(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(slots=True)
class Places:
    """Idle time by part of the user's code. For each cause of idle, the rows and `elsewhere_ns` add up to the
    ledger."""

    rows: list[Place]  # the place with most time first
    elsewhere_ns: dict[str, int]
    ranges: bool  # True if the recording has ranges of places
    samples: bool  # True if a file of samples lies beside the recording
