"""Some of what `tests.fuzz.files` tries, by dice that always fall alike."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from . import files


@pytest.mark.parametrize("what", [files.of_recordings, files.of_documents])
def test_changed_files_are_answered_or_refused_by_every_verb(what: type, tmp_path: Path) -> None:
    one, dice = what(tmp_path), random.Random(42)
    answered = 0
    for _ in range(12):
        _, attempt = one(dice)
        with files.limited():
            answered += attempt()
    assert 0 < answered < 12
