"""What nsys says it may have lost, and what a real recording says of it."""

from __future__ import annotations

import lzma
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from profiles import readers
from profiles.ground.errors import UnreadableRecording

from ..recordings import DATA

CUDA = "Not all CUDA events might have been collected."
NVTX = "Not all NVTX events might have been collected."
BUFFERS = (
    "Number of CUPTI events produced: \t1292, CUPTI buffers: 49 of 50. Some CUPTI events might be missing. To make"
)
KERNEL, CALL = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"
ONE_CALL = f"(SELECT correlationId FROM {KERNEL} WHERE COALESCE(graphNodeId, 0) = 0 ORDER BY start LIMIT 1 OFFSET 99)"
STEP = "NVTX_EVENTS WHERE textId = (SELECT id FROM StringIds WHERE value = 'step 15')"


def said(tmp_path: Path, words: list[str], *changes: str) -> list[str]:
    """The doubts of a real recording of which nsys says so, after these changes."""
    path = tmp_path / "run.sqlite"
    path.write_bytes(lzma.decompress((DATA / "cnn-1gpu-node.rank0.sqlite.xz").read_bytes()))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE DIAGNOSTIC_EVENT (text)")
        connection.executemany("INSERT INTO DIAGNOSTIC_EVENT VALUES (?)", [(one,) for one in words])
        for change in changes:
            assert connection.execute(change).rowcount != 0
    return [doubt.text.removeprefix("nsys said: ") for doubt in readers.read(path).doubts]


def test_what_might_be_missing_and_is_not_is_no_doubt(tmp_path: Path):
    assert said(tmp_path, [CUDA, NVTX, BUFFERS]) == []


def test_a_launch_without_its_kernel_says_that_events_are_missing(tmp_path: Path):
    change = f"DELETE FROM {KERNEL} WHERE correlationId = {ONE_CALL}"
    assert said(tmp_path, [CUDA, NVTX, BUFFERS], change) == [CUDA, BUFFERS]


def test_a_launch_into_a_graph_has_no_kernel_and_misses_none(tmp_path: Path):
    """Two calls around it on its thread: from where the stream is captured, to where that ends."""
    calls = "(990001, 'cudaStreamBeginCapture_v10000'), (990002, 'cudaStreamEndCapture_v10000')"
    columns = "start, end, eventClass, returnValue, globalTid, correlationId, nameId"
    around = [
        f"INSERT INTO {CALL} ({columns}) SELECT {time}, {time}, eventClass, 0, globalTid, {number}, {number}"
        f" FROM {CALL} WHERE correlationId = {ONE_CALL}"
        for number, time in ((990001, "start - 1"), (990002, "end + 1"))
    ]
    gone = f"DELETE FROM {KERNEL} WHERE correlationId = {ONE_CALL}"
    assert said(tmp_path, [CUDA], f"INSERT INTO StringIds VALUES {calls}", *around, gone) == []


def test_a_number_missing_among_the_steps_says_that_ranges_are_missing(tmp_path: Path):
    assert said(tmp_path, [CUDA, NVTX], f"DELETE FROM {STEP}") == [NVTX]


def test_without_ranges_of_steps_nothing_tells(tmp_path: Path):
    assert said(tmp_path, [NVTX], "UPDATE StringIds SET value = 'a ' || value WHERE value LIKE 'step %'") == [NVTX]


@pytest.mark.parametrize("words", ["3 events were dropped", "Number of incomplete CUPTI events dropped: 6."])
def test_what_nsys_knows_to_be_lost_stands(tmp_path: Path, words: str):
    assert said(tmp_path, [words]) == [words]


def test_a_recording_of_calls_alone_is_refused_as_one_without_gpu_work(tmp_path: Path):
    operations = [f"DELETE FROM CUPTI_ACTIVITY_KIND_{name}" for name in ("KERNEL", "MEMCPY", "MEMSET")]
    with pytest.raises(UnreadableRecording, match="without GPU work: 528 launches"):
        said(tmp_path, [CUDA], *operations)


@pytest.mark.parametrize(("table", "what"), [("VULKAN_WORKLOAD", "Vulkan"), ("GPU_METRICS", "counters")])
def test_what_stands_in_place_of_cudas_work_is_named(tmp_path: Path, table: str, what: str):
    operations = [f"DELETE FROM CUPTI_ACTIVITY_KIND_{name}" for name in ("KERNEL", "MEMCPY", "MEMSET", "RUNTIME")]
    with pytest.raises(UnreadableRecording, match=f"no kernels, copies or memsets, but .*{what}"):
        said(tmp_path, [CUDA], *operations, f'CREATE TABLE "{table}" (timestamp INTEGER)')
