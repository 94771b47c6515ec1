"""Odd files through every verb and view."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from profiles import analyse
from profiles.verbs import timeline

from ..made import hostile
from . import negotiated, verbs


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


def test_a_rank_that_is_fuzzed_beside_horovods_timeline_waits_as_long_as_that_tells(tmp_path: Path) -> None:
    (gpu,) = analyse(negotiated.written(tmp_path)).measures.gpus
    assert gpu.ledger_ns["idle_peers"] == negotiated.STEPS * 400_000


def test_what_a_file_that_is_refused_leaves_is_gone_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    recording, _ = negotiated.written(tmp_path)
    (out := tmp_path / "out").mkdir()
    monkeypatch.setattr(verbs.check.command, "main", damaged)
    with pytest.raises(ZeroDivisionError):
        verbs.put_through(recording, out)
    assert not any(out.iterdir())
    monkeypatch.undo()
    assert {verb for verb, why in verbs.put_through(recording, out).items() if why} == {"cut"}  # of SQLite alone
