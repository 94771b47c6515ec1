"""Some of what `tests.fuzz.files` tries, by dice that always fall alike."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from . import files


@pytest.mark.parametrize("what", files.KINDS)
def test_changed_files_are_answered_or_refused_by_every_verb(what: str, tmp_path: Path) -> None:
    one, dice = files.KINDS[what](tmp_path), random.Random(42)
    answered, tries = 0, 10
    for _ in range(tries):
        _, _, attempt = one(dice)
        with files.limited():
            answered += not all(attempt().values())
    assert answered > 0 and (what == "runs" or answered < tries)  # a damaged launch is a row of the report
