"""Find the time span of the steps that `ringscope cut --steps` keeps."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from ..ground.errors import RingscopeError
from ..model import marks
from ..model.names import rows_named
from ..model.timeline import Timeline
from ..readers import read
from ..readers.span import Span
from .analysis import analyse

_STEPS = re.compile(r"\s*(\d*)\s*:\s*(\d*)\s*")


def of_steps(path: Path, text: str, *, max_bytes: int | None = None, cache: bool = True) -> Span:
    """The time span for the text of --steps: `10:20` goes from the start of step 10 to the start of step 20.

    `10:` and `:20` are open at one side. Steps are the host's marks `step N`, so that each kept step keeps its
    mark; without marks, the steps found in the GPUs' work. Raises RingscopeError if there is no such step.
    """
    match = _STEPS.fullmatch(text)
    if match is None or not any(match.groups()):
        raise RingscopeError(f"--steps {text}: write it as 10:20 (from step 10 up to step 20), 10: or :20")
    first, end = (int(part) if part else None for part in match.groups())
    if first is not None and end is not None and first >= end:
        raise RingscopeError(f"--steps {text}: the last step is not after the first; write the smaller number first")
    timeline = read(path, max_bytes=max_bytes, cache=cache)
    start_of = _marked(timeline) or _measured(timeline)
    if not start_of:
        raise RingscopeError(f"{path}: no steps were found in it; `ringscope timeline` says why; cut it with --time")
    there = f"there are steps {min(start_of)} to {max(start_of)}"
    if first is not None and first not in start_of:
        raise RingscopeError(f"--steps {text}: {path} has no step {first}; {there}")
    if end is not None and end not in start_of and end != max(start_of) + 1:
        raise RingscopeError(f"--steps {text}: {path} has no step {end}; {there}")
    return Span(None if first is None else start_of[first], None if end is None else start_of.get(end))


def _marked(timeline: Timeline) -> dict[int, int]:
    """For each step number, the start in ns of its first mark `step N`."""
    rows = rows_named(timeline.marks, marks.STEP, whole=True)
    numbers = (int(name.removeprefix(marks.STEP_PREFIX)) for name in timeline.marks["name"].iloc[rows])
    return _earliest(zip(numbers, timeline.marks["start_ns"].to_numpy()[rows].tolist(), strict=True))


def _measured(timeline: Timeline) -> dict[int, int]:
    """For each step number, the start in ns of the measured step, the earliest over the GPUs."""
    gpus = analyse(timeline, window="steps").measures.gpus
    return _earliest((row.step, row.start_ns) for gpu in gpus for row in gpu.steps.rows)


def _earliest(starts: Iterable[tuple[int, int]]) -> dict[int, int]:
    found: dict[int, int] = {}
    for number, start_ns in starts:
        found[number] = min(start_ns, found.get(number, start_ns))
    return found
