"""Ranks that somebody put into one file: each has a GPU of its own, or the file is refused."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from profiles import analyse, read
from profiles.gpus import merged
from profiles.gpus.gather import gather
from profiles.ground.errors import UnreadableRecording
from profiles.model.measures import Measures
from tests.made.build import Build
from tests.recordings import DATA

MADE = DATA / "made"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
Event = dict[str, Any]


def events(name: str) -> list[Event]:
    found: list[Event] = json.loads(gzip.decompress((MADE / f"{name}.json.gz").read_bytes()))["traceEvents"]
    return found


def ledgers(path: Path) -> list[tuple[int, dict[str, int | None]]]:
    return [(gpu.kernels.count, gpu.ledger_ns) for gpu in analyse([path]).measures.gpus]


def as_it_is(merged: list[Event]) -> list[Event]:
    return merged


def in_order_of_time(merged: list[Event]) -> list[Event]:
    return sorted(merged, key=lambda event: event["ts"])


def with_calls_of_other_numbers(merged: list[Event]) -> list[Event]:
    """The second rank's calls are numbered from 1,001 on."""
    for event in merged[len(merged) // 2 :]:
        if "correlation" in event.get("args", {}):
            event["args"]["correlation"] += 1000
    return merged


def without_some_kernels_of_the_first(merged: list[Event]) -> list[Event]:
    """One of 40 of rank 0's, which rank 1 has."""
    first = merged[: len(merged) // 2]
    rest = merged[len(merged) // 2 :]
    return [one for one in first if one["cat"] != "kernel" or one["args"]["correlation"] % 40 != 7] + rest


@pytest.mark.parametrize("changed", [as_it_is, in_order_of_time, with_calls_of_other_numbers])
@pytest.mark.parametrize("name", ["k_merged", "k_merged0"])
def test_two_ranks_in_one_file_are_two_gpus_each_as_by_itself(
    name: str, changed: Callable[[list[Event]], list[Event]], tmp_path: Path
) -> None:
    path = tmp_path / "merged.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": changed(events(name))}))
    ((alone, ledger),) = ledgers(MADE / "k_plain.json.gz")
    assert ledgers(path) == [(alone, ledger)] * 2
    assert read(path).recording.rank is None


def test_a_kernel_that_one_rank_lost_is_not_taken_from_the_other_on_a_gpu_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "merged.json"
    path.write_text(json.dumps({"traceEvents": without_some_kernels_of_the_first(events("k_merged"))}))
    assert [gpu.kernels.count for gpu in analyse([path]).measures.gpus] == [480 - 12, 480]


def test_ranks_that_cannot_be_told_apart_are_refused_in_one_line(tmp_path: Path) -> None:
    """The second rank's kernels stand before the first's, 50 ms later: each would have the other's calls."""
    merged = events("k_merged0")
    half = len(merged) // 2
    for event in merged[half:]:
        event["ts"] += 50_000
    kernels = [event for event in merged[half:] if event["cat"] == "kernel"]
    path = tmp_path / "merged.json"
    path.write_text(json.dumps({"traceEvents": [*kernels, *(one for one in merged if one not in kernels)]}))
    with pytest.raises(UnreadableRecording, match="several processes in one file"):
        read(path)


def two_processes(*, overlapping: bool, uuid: str = "") -> Measures:
    """Ten collectives of each on GPU 0, of a format that says which process an operation is of."""
    made = Build()
    made.device(0, uuid=uuid)
    for number in range(10):
        for pid, later in ((1, 0), (2, 200 if overlapping else 1000)):
            at = 2000 * number + later
            made.kernel(at + 100, at + 700, NCCL, pid=pid, call=(at, at + 10))
    return analyse([made.timeline()]).measures


def test_processes_whose_collectives_overlap_have_a_gpu_each() -> None:
    assert [gpu.device for gpu in two_processes(overlapping=True).gpus] == [0, 1]


def test_more_processes_than_any_device_has_are_not_compared_with_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merged, "_MOST_PROCESSES", 1)
    assert len(two_processes(overlapping=True).gpus) == 1


@pytest.mark.parametrize("known", [{"overlapping": False}, {"overlapping": True, "uuid": "GPU-1"}])
def test_processes_that_share_a_gpu_share_it(known: dict[str, Any]) -> None:
    measures = two_processes(**known)
    assert len(measures.gpus) == 1
    assert "several-processes-on-gpu" in {doubt.code for doubt in measures.doubts}


def test_two_files_of_ranks_put_together_are_four_gpus(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(json.dumps({"traceEvents": events("k_merged0"), "of": name}))
    measures = analyse([tmp_path / "a.json", tmp_path / "b.json"]).measures
    assert len(measures.gpus) == 4


def test_gather_alone_tells_them_apart_too() -> None:
    assert len(gather([read(MADE / "k_merged0.json.gz")])) == 2
