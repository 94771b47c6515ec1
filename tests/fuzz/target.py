"""What is fuzzed: a reader given any bytes makes a whole timeline of them, or says what is wrong with them."""

from __future__ import annotations

import importlib
from pathlib import Path

from profiles.ground.errors import UnreadableRecording
from profiles.model.timeline import COLUMNS, Timeline

READERS = (
    "nsys.sqlite",
    "nvprof.sqlite",
    "nvprof.csv",
    "nsys.stats_csv",
    "chrome.kineto",
    "chrome.rocprof",
    "rocprofv3.results",
    "rocprofv3.database",
    "chrome.horovod",
    "xplane",
    "xla_trace",
)
CORPUS = Path(__file__).parent / "corpus"


def check(reader: str, path: Path) -> Timeline | None:
    """Read `path`. None: refused as it should be. Raises whatever else the reader raises, and AssertionError."""
    module = importlib.import_module(f"profiles.readers.{reader}")
    module.detects(path.read_bytes()[: 1 << 16], path)
    try:
        timeline: Timeline = module.read(path)
    except UnreadableRecording as error:
        assert "\n" not in str(error), "a refusal is one line"
        return None
    for name in COLUMNS:
        table = getattr(timeline, name)
        if "start_ns" in table:
            assert (table["end_ns"] >= table["start_ns"]).all(), f"{name} end before they start"
        if "stream" in table:
            assert (table["device"] >= -1).all()
    assert any(len(getattr(timeline, name)) for name in COLUMNS), "an empty timeline should have been refused"
    return timeline
