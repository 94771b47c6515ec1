"""Chrome's traces whose events are a list alone, without an object around it, and with or without its last bracket."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from profiles import analyse, readers
from profiles.ground.errors import UnreadableRecording
from profiles.model.timeline import Timeline
from tests.readers.test_rocprof import results, steps
from tests.recordings import DATA

TABLES = ("kernels", "copies", "memsets", "api", "marks")


def kineto(_: Path) -> str:
    return gzip.decompress((DATA / "made" / "k_plain.json.gz").read_bytes()).decode()


def xla(_: Path) -> str:
    return gzip.decompress((DATA / "made" / "jax.trace.json.gz").read_bytes()).decode()


def rocprof(folder: Path) -> str:
    return results(folder / "results.json", *steps()).read_text()


MADE = (kineto, xla, rocprof)


def bare(text: str) -> list[str]:
    """The events as they are written: times have more digits than a double."""
    body = re.search(r'"traceEvents"\s*:\s*\[', text)
    assert body
    decoder, at, found = json.JSONDecoder(), body.end(), []
    while text[at] != "]":
        start = re.compile(r"[\s,]*").match(text, at)
        assert start
        _, end = decoder.raw_decode(text, start.end())
        found.append(text[start.end() : end])
        space = re.compile(r"\s*,?\s*").match(text, end)
        assert space
        at = space.end()
    return found


def read(folder: Path, text: str) -> Timeline:
    path = folder / "trace.json"
    path.write_text(text)
    return readers.read(path)


def same(one: Timeline, other: Timeline) -> None:
    for table in TABLES:
        pd.testing.assert_frame_equal(getattr(one, table), getattr(other, table))


@pytest.mark.parametrize("made", MADE)
def test_a_list_of_events_is_read_as_the_object_around_it(made: Callable[[Path], str], tmp_path: Path) -> None:
    text = made(tmp_path)
    events = bare(text)
    assert len(events) == len(json.loads(text)["traceEvents"])
    whole = read(tmp_path, text)
    assert len(whole.kernels)
    for written in ("[" + ",".join(events) + "]", "\ufeff [\n" + ",\n".join(events) + ",\n]\n"):
        found = read(tmp_path, written)
        same(found, whole)
        assert found.recording.format == whole.recording.format
        assert "unfinished-recording" not in [doubt.code for doubt in found.doubts]


@pytest.mark.parametrize("made", MADE)
def test_a_list_that_breaks_off_is_read_up_to_the_last_whole_event(made: Callable[[Path], str], tmp_path: Path) -> None:
    events = bare(made(tmp_path))
    kept = len(events) * 9 // 10
    head = "[" + ",\n".join(events[:kept])
    whole = read(tmp_path, head + "]")
    for broken in (
        head,
        head + ",",
        head + ",\n" + events[kept][:-2],
        head + ",\n" + events[kept][: len(events[kept]) // 2],
    ):
        found = read(tmp_path, broken)
        same(found, whole)
        assert [doubt.code for doubt in found.doubts].count("unfinished-recording") == 1


def test_a_list_with_numbers_that_json_does_not_have_is_read(tmp_path: Path) -> None:
    events = bare(kineto(tmp_path))
    odd = '{"ph": "X", "cat": "x", "name": "k", "ts": 1, "dur": 2, "args": {"memory bandwidth (GB/s)": inf}}'
    same(read(tmp_path, "[" + ",".join([*events, odd])), read(tmp_path, "[" + ",".join(events) + "]"))


def test_a_list_of_two_ranks_is_measured(tmp_path: Path) -> None:
    """The rank is the file name's: the object that told it is gone."""
    for rank in (0, 1):
        (tmp_path / f"rank{rank}.json").write_text("[" + ",".join(bare(kineto(tmp_path))))
    found = analyse([tmp_path / "rank0.json"]).measures
    assert [gpu.rank for gpu in found.gpus] == [0] and found.gpus[0].steps.count


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[{"ph": nonsense}' + ',{"ph": "X"}' * 200 + "]", "cut short or damaged"),
        ('[{"ph": "X", "name": "work"', "cut short or damaged"),
        ('["ph",' + "[" * 100_000, "cut short or damaged"),
        ('[{"ph": "X", "name": "work", "cat": "host", "ts": 1, "dur": 2}]', "1 event of the host and none of a GPU"),
        ('["ph", 1, null, []]', "without GPU events"),
    ],
)
def test_a_list_without_gpu_work_or_with_damage_in_it_is_refused(text: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(UnreadableRecording, match=why) as caught:
        read(tmp_path, text)
    assert "\n" not in str(caught.value)
