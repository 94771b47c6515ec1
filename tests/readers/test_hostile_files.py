"""Files made to do harm end in one sentence, and soon, within a gigabyte of memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..made import hostile
from . import limited


@pytest.fixture(scope="module")
def ringscope() -> Iterator[limited.Limited]:
    with limited.started() as one:
        yield one


# A second of CPU and more each.
SLOW = {
    "four million planes without anything",
    "a quote that never closes",
    "four gigabytes of letters",
    "an archive of four gigabytes of letters",
    "five thousand tables",
    "five million empty events",
    "strings whose pages lead to a million million rows",
    "an archive of a million empty files",
}

# Of those that are read.
MARKS: dict[str, Any] = {
    "a database with a pipe where changes would be": (),
    "two contexts with streams of the same numbers": (),
    "power whose types are texts, and names in any case": (),
    "message sizes at a place that is a text": (),
    "a profile whose events share long names": pytest.mark.exhaustive,  # smaller ones of other formats are above
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.exhaustive if name in SLOW else ()) for name in hostile.SMALL]
)
def test_a_hostile_file_ends_in_a_sentence(name: str, ringscope: limited.Limited, tmp_path: Path) -> None:
    is_refused(ringscope.timeline(hostile.SMALL[name](tmp_path)))


@pytest.mark.ci
def test_the_slow_ones_are_among_them() -> None:
    assert set(hostile.SMALL) >= SLOW


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", hostile.LARGE)
def test_a_large_hostile_file_ends_in_a_sentence(name: str, ringscope: limited.Limited, tmp_path: Path) -> None:
    path = hostile.LARGE[name](tmp_path)
    said = ringscope.timeline(path)
    path.unlink()
    is_refused(said)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=MARKS.get(name, pytest.mark.exhaustive)) for name in hostile.READABLE]
)
def test_an_odd_file_is_read(name: str, ringscope: limited.Limited, tmp_path: Path) -> None:
    path = hostile.READABLE[name](tmp_path)
    said = ringscope.timeline(path)
    path.unlink()
    assert said.code == 0, said
    assert said.peak_mb < limited.MEMORY_MB


def is_refused(said: limited.Said) -> None:
    assert said.code == 2, said
    assert said.text.startswith("ringscope: "), said
    assert said.text.count("\n") == 1, "one line"
    assert "; " in said.text, "what is wrong, and what to do"
    assert said.peak_mb < limited.MEMORY_MB, said
