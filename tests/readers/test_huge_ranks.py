"""Numbers of ranks and steps that no run has are none, wherever a recording tells them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from profiles.model import marks
from profiles.readers import read
from tests.fuzz import verbs
from tests.made.build import Build

KERNELS = [
    {"ph": "X", "cat": "kernel", "name": "k", "ts": 100 * at, "dur": 50, "args": {"device": 0, "stream": 7}}
    for at in range(5)
]


@pytest.mark.parametrize("digits", [10, 400])
def test_a_trace_of_a_rank_beyond_all_goes_through_every_view(digits: int, tmp_path: Path) -> None:
    path = tmp_path / f"rank{'7' * min(digits, 200)}.json"
    told = {"schemaVersion": 1, "distributedInfo": {"rank": 10**digits}, "traceEvents": KERNELS}
    path.write_text(json.dumps(told))
    (out := tmp_path / "out").mkdir()
    said = verbs.put_through(path, out)
    assert not said["timeline"] and not said["partial"]


@pytest.mark.parametrize(("told", "rank"), [(3, 3), ("3", 3), ("three", None), (True, None), (-1, None), ([3], None)])
def test_a_rank_may_be_written_as_text(told: object, rank: int | None, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "distributedInfo": {"rank": told}, "traceEvents": KERNELS}))
    assert read(path).recording.rank == rank


@pytest.mark.parametrize(
    ("rank", "told", "ranks"),
    [(3, 8, 8), ("3", "8", 8), (3, 3, None), (3, 0, None), (None, 8, None), (3, None, None), (3, 10**400, None)]
    + [(3, "eight", None), (3, True, None), (3, [8], None), (3, 10**9, None)],
)
def test_the_number_of_ranks_may_be_written_as_text(
    rank: object, told: object, ranks: int | None, tmp_path: Path
) -> None:
    path = tmp_path / "trace.json"
    about = {"rank": rank, "world_size": told}
    path.write_text(json.dumps({"schemaVersion": 1, "distributedInfo": about, "traceEvents": KERNELS}))
    assert read(path).recording.ranks == ranks


def test_marks_with_more_digits_than_a_number_may_have_are_passed_over() -> None:
    made, many = Build(), "9" * 5000
    for name in (f"rank {many} of 2", f"rank 1 of {many}", f"step {many}", f"batch {many}", "step 3"):
        made.mark(name, 0, 10)
    assert marks.ranks(made.timeline()) == {}
    assert marks.numbers(made.timeline()) == (3, 3)
