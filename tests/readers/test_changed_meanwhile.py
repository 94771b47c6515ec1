"""Recordings that are removed, cut off, written on or replaced while they are read: an answer, or one line."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from profiles import readers
from profiles.ground.errors import UnreadableRecording
from tests.fuzz.target import READERS
from tests.readers.changed_meanwhile import CHANGES
from tests.recordings import DATA

MADE = DATA / "made" / "k_plain.json.gz"


def tried(every: int, *names: str) -> dict[str, int]:
    argv = [sys.executable, "-m", "tests.readers.changed_meanwhile", str(every), *names]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, int] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_a_database_that_changes_at_any_opening_is_answered_or_refused(every: int) -> None:
    found = tried(every, "nsys.sqlite")
    for change in CHANGES.keys() - {"grown"}:
        assert found[f"{change} refused"] > 5
    assert found["grown answered"] > 5


@pytest.mark.exhaustive  # the other readers open their file a few times each
def test_a_recording_of_any_other_format_is_too() -> None:
    found = tried(1, *(name for name in READERS if name != "nsys.sqlite"))
    assert sum(found.values()) > 500 and {f"{change} refused" for change in CHANGES} <= found.keys()


def test_a_file_that_goes_after_it_was_listed_is_a_doubt_beside_the_others(tmp_path: Path) -> None:
    text = gzip.decompress(MADE.read_bytes())
    for rank in range(2):
        (tmp_path / f"rank{rank}.json").write_bytes(text + b"\n" * rank)  # two of the same bytes are one
    found, doubts = readers.read_all([tmp_path], progress=lambda done, *_: done or removed(tmp_path / "rank1.json"))
    assert [one.recording.rank for one in found] == [0]
    assert [(doubt.code, "no such file" in doubt.text) for doubt in doubts] == [("unreadable", True)]


def removed(path: Path) -> None:
    path.unlink(missing_ok=True)


def test_a_folder_whose_only_recording_goes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json.gz"
    shutil.copy(MADE, path)
    with pytest.raises(UnreadableRecording, match="no such file"):
        readers.read_all([tmp_path], progress=lambda *_: removed(path))
