"""What a recording without a GPU tells of the user's code."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.jobs import measuring
from profiles.doubts.recordings import samples_few
from profiles.model import marks
from tests.made.build import Build
from tests.profiles.verdicts.test_people import MS


def rank(slow_ms: int) -> Build:
    """Four steps of 10 ms, a callback in each."""
    made = Build()
    for number in range(4):
        begun = number * 10 * MS
        made.mark(f"step {number}", begun, begun + 10 * MS)
        made.mark(marks.place("callback", "Slow.on_train_batch_end", "train.py", 7), begun, begun + slow_ms * MS)
        made.sample(begun, begun + slow_ms * MS, "norm", 3, file="norms.py", source="x = w.numpy()")
    return made


def test_the_longest_part_of_all_ranks_is_told_first_with_its_code_and_line(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: dict[Path, Any] = {Path("rank0"): rank(2), Path("rank1"): rank(6)}
    monkeypatch.setattr(measuring, "read", lambda path: recorded[path].timeline())
    first, second = measuring.of_the_host(list(recorded))
    assert first.startswith("rank1: slow-callback: 60.0 % ") and second.startswith("rank0: slow-callback: 20.0 % ")
    assert "train.py:7" in first and "norms.py:3" in first


@pytest.mark.parametrize("kind", ["callback", "python"])
def test_a_line_that_few_samples_show_is_doubted(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The share of a range is exact."""
    made = rank(2) if kind == "callback" else Build()
    if kind == "python":
        made.mark("step 0", 0, 10 * MS)
        made.sample(0, 4 * MS, "<module>", 3, file="train.py", source="norm(x)")
    timeline = made.timeline()
    timeline = replace(timeline, doubts=(*timeline.doubts, samples_few(Path("rank0.places.json"), 5)))
    monkeypatch.setattr(measuring, "read", lambda path: timeline)
    told = measuring.of_the_host([Path("rank0")])
    assert ["only 5 samples" in one for one in told] == ([False] if kind == "callback" else [False, True])
