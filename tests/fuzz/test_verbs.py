"""Odd files through every verb and view."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from profiles.verbs import timeline

from ..made import hostile
from . import verbs


def test_streams_of_two_contexts_are_told_apart_in_every_view(tmp_path: Path) -> None:
    path = hostile.two_contexts_with_streams_of_the_same_numbers(tmp_path)
    (out := tmp_path / "out").mkdir()
    assert not any(verbs.put_through(path, out).values())
    words = [str(path), "--perfetto", str(tmp_path / "trace.json.gz"), "--json", str(tmp_path / "measures.json")]
    timeline.command.main(words, standalone_mode=False)
    events = json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
    assert len(names) == len(set(names)) == 12 and "stream 7, context 2" in names


@pytest.mark.parametrize("kind", ["kernel", "gpu_memcpy"])
def test_a_gpu_whose_operations_take_no_time_is_refused(kind: str, tmp_path: Path) -> None:
    event = {"ph": "X", "cat": kind, "name": "k", "ts": 5, "dur": 0, "args": {"device": 0, "stream": 7}}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [event]}))
    (out := tmp_path / "out").mkdir()
    assert "no GPU did anything" in verbs.put_through(path, out)["timeline"]
