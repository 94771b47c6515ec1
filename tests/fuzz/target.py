"""What is fuzzed: a reader given any bytes makes something whole of them, or says what is wrong with them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from profiles.ground.errors import UnreadableRecording
from profiles.metrics import logged
from profiles.model.logged import Logged
from profiles.model.tables import COLUMNS
from profiles.model.timeline import Timeline
from profiles.readers import opening, refused

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
    "inspector_log",
    "plugin_log",
)
TARGETS = (*READERS, "refused")  # the last names files that are no recordings, such as Perfetto's traces
CORPUS = Path(__file__).parent / "corpus"


def check(reader: str, path: Path) -> Timeline | Logged | tuple[str, str] | None:
    """Read `path`. None: refused as it should be. Raises whatever else the reader raises, and AssertionError."""
    module = importlib.import_module(f"profiles.readers.{reader}")
    if reader == "refused":
        return _named(path)
    if reader in ("inspector_log", "plugin_log"):
        return _log(module.read, path)
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


def _log(read: Callable[[Path], Any], path: Path) -> Logged | None:
    """Files without a timeline are measured at once."""
    head = path.read_bytes()[: 1 << 16]
    refused.is_inspector_log(head)
    refused.is_plugin_log(head)
    try:
        found = read(path)
    except UnreadableRecording as error:
        assert "\n" not in str(error), "a refusal is one line"
        return None
    made = logged.measured(found.calls, ["log"], found.damaged, found.untimed)
    for kind in made.kinds:
        assert sum(one.lasted_ns for one in kind.each) == kind.lasted_ns
        assert sum(one.matched_ns - (one.waiting_ns or 0) for one in kind.each) == (kind.transfer_ns or 0) * len(
            kind.each
        )
    assert sum(one.lasted_ns for one in made.processes) == sum(kind.lasted_ns for kind in made.kinds)
    return made


def _named(path: Path) -> tuple[str, str] | None:
    """(what the file is, what to do); None if nothing is known of it. Raises AssertionError if that is not one line."""
    head = path.read_bytes()[: opening.HEAD_BYTES]
    try:
        found = refused.stranger(head) or refused.recognised(head, path)
    except UnreadableRecording as error:  # a damaged database
        assert "\n" not in str(error), "a refusal is one line"
        return None
    assert "\n" not in "".join(found or refused.unknown(head, path)), "a refusal is one line"
    return found
