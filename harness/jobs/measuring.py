"""Recordings of a launch -> `measures.json` beside them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from profiles import measures_json
from profiles.files import write_whole
from profiles.judging.subject import load
from profiles.measures import Measures


def write_measures(recordings: Sequence[Path]) -> Measures:
    """Measure the recordings of one launch. Raises RingscopeError where they hold no GPU work, or nothing readable."""
    measures = load(list(recordings)).measures
    assert measures is not None  # recordings were given
    write_whole(recordings[0].with_name("measures.json"), measures_json.dumps(measures))
    return measures
