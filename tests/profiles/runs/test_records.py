"""Rank records: what is written is what is read, and half a file is refused."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from profiles.ground.errors import RingscopeError
from profiles.runs.rank_records import Damaged, RankRecord, host_beside, read_rank, write_rank
from profiles.runs.records import COMMAND, Cell, RunRecord, SweepRecord, read_run, read_sweep
from profiles.scaling.run_directory import newest
from profiles.verbs import report
from tests.fuzz import verbs
from tests.made.swept import swept


def record() -> RankRecord:
    return RankRecord(
        rank=1,
        size=2,
        local_rank=1,
        host="a",
        device=None,
        window_start_ns=1_700_000_000_000_000_000,
        window_end_ns=1_700_000_000_000_000_030,
        samples=64,
        step_ns=[10, 20],
        input_wait_ns=[1, 2],
        clock_offset_ns=-5,
        extra={"loss": 0.5},
    )


def test_a_rank_record_reads_back_as_written(tmp_path: Path) -> None:
    write_rank(tmp_path / "rank1.jsonl", record())
    assert read_rank(tmp_path / "rank1.jsonl") == record()
    assert [path.name for path in tmp_path.iterdir()] == ["rank1.jsonl"]


@pytest.mark.parametrize("lines", [0, 1, 2, 3])
def test_a_rank_record_cut_short_is_refused_by_name(tmp_path: Path, lines: int) -> None:
    path = tmp_path / "rank1.jsonl"
    write_rank(path, record())
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:lines]))
    with pytest.raises(RingscopeError, match="rank1.jsonl: not a whole rank record"):
        read_rank(path)


def test_a_rank_record_of_another_schema_says_so(tmp_path: Path) -> None:
    path = tmp_path / "rank1.jsonl"
    write_rank(path, record())
    path.write_text(path.read_text().replace("ringscope.rank/1", "ringscope.rank/9"))
    with pytest.raises(RingscopeError, match="ringscope.rank/9"):
        read_rank(path)


def test_records_of_a_version_with_more_entries_are_read_and_damaged_ones_are_refused(tmp_path: Path) -> None:
    sweep = SweepRecord([Cell(model="mlp", ranks=1, per_rank_batch=8)], 1, "horovodrun")
    data = sweep.to_json() | {"of_tomorrow": 1}
    data["cells"][0]["of_tomorrow"] = 2
    (tmp_path / "sweep.json").write_text(json.dumps(data))
    assert read_sweep(tmp_path) == sweep
    del data["cells"][0]["model"]
    (tmp_path / "sweep.json").write_text(json.dumps(data))
    with pytest.raises(RingscopeError, match="name a directory that `ringscope bench` wrote"):
        read_sweep(tmp_path)


def test_a_folder_of_a_recorded_command_is_no_sweep_and_the_verb_that_shows_it_is_named(tmp_path: Path) -> None:
    launch = tmp_path / "runs" / "one" / COMMAND / "0"
    launch.mkdir(parents=True)
    for path in (launch, launch.parent.parent):
        with pytest.raises(RingscopeError, match=f"not a sweep; show them: ringscope timeline {path}$"):
            read_sweep(path)
    with pytest.raises(RingscopeError, match="has no sweep; .*, or show recordings with: ringscope timeline PATH"):
        newest(tmp_path / "runs")


def test_the_ids_of_cells_are_those_of_recordings_made_before() -> None:
    assert Cell("mlp", 2, 8, steps=3).id == "mlp-n2-b8-prefetch-float32-fit-float32-17188e2f"
    other = Cell("gru", 4, 256, step="compiled", global_batch=1024, options=(("a", "b"),))
    assert other.id == "gru-n4-b256-prefetch-float32-compiled-float32-56d143be"


@pytest.mark.parametrize("text", ["[]", "3", "null", '"sweep"'])
def test_a_record_that_is_no_object_is_said_to_be_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "sweep.json").write_text(text)
    with pytest.raises(RingscopeError, match=r"not a JSON record of ringscope \(it is no JSON object\)"):
        read_sweep(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"), [("ranks", "two"), ("ranks", 2.0), ("ranks", None), ("feed", 3), ("global_batch", "8")]
)
def test_a_cell_with_a_field_of_another_type_is_refused_in_one_line(tmp_path: Path, name: str, value: object) -> None:
    sweep = SweepRecord([Cell(model="mlp", ranks=1, per_rank_batch=8)], 1, "horovodrun")
    data = sweep.to_json()
    data["cells"][0][name] = value
    (tmp_path / "sweep.json").write_text(json.dumps(data))
    with pytest.raises(
        RingscopeError, match=rf"sweep.json: not a JSON record of ringscope \({name} is {value!r}, not "
    ):
        read_sweep(tmp_path)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"rank": 0}, "the record is of rank 0"),
        ({"window_end_ns": 5}, "its time window ends before it begins"),
        ({"samples": float("nan")}, "NaN is no number"),
        ({"samples": 0}, "it counts 0 samples and 2 ranks"),
        ({"samples": "many"}, "samples is 'many', not a whole number"),
        ({"step_ns": [10, 10]}, "the times of the steps do not add up to the time measured; the file was changed"),
        ({"step_ns": [10, -1, 10]}, "a step's time is below 0"),
    ],
)
def test_a_rank_record_that_cannot_be_true_is_damaged(tmp_path: Path, changed: dict[str, object], says: str) -> None:
    path = tmp_path / "rank1.jsonl"
    made = replace(record(), **changed)
    write_rank(path, replace(made, input_wait_ns=[0] * len(made.step_ns)))
    with pytest.raises(Damaged, match=rf"rank1.jsonl: not a whole rank record \({says}\); run that cell again"):
        read_rank(path)


def test_a_rank_of_a_launch_of_another_size_is_a_damaged_launch(tmp_path: Path) -> None:
    cell = Cell("mlp", 2, 8)
    launch = RunRecord(cell, 0, "ok", "", 0, 1, [], "horovodrun", {})
    (tmp_path / "record.json").write_text(json.dumps(launch.to_json()))
    for rank, size in ((0, 2), (1, 4)):
        write_rank(tmp_path / f"rank{rank}.jsonl", replace(record(), rank=rank, size=size))
    run = read_run(tmp_path)
    assert run.record.status == "damaged" and "launches with 2 and with 4 ranks" in run.record.reason


@pytest.mark.parametrize("launches", [None, -3, 0, "2", True])
def test_a_sweep_of_no_count_of_launches_is_refused(tmp_path: Path, launches: object) -> None:
    sweep = SweepRecord([Cell(model="mlp", ranks=1, per_rank_batch=8)], 1, "horovodrun")
    (tmp_path / "sweep.json").write_text(json.dumps(sweep.to_json() | {"launches": launches}))
    with pytest.raises(RingscopeError, match=rf"launches is {launches!r}, not (a number from 1 to|a whole number)"):
        read_sweep(tmp_path)


def test_a_pipe_and_lists_without_end_are_no_records_and_nobody_waits(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "sweep.json")
    with pytest.raises(Damaged, match="not a file"):
        read_sweep(tmp_path)
    (tmp_path / "sweep.json").unlink()
    (tmp_path / "sweep.json").write_text("[" * 100_000)
    with pytest.raises(Damaged, match="nested too deep"):
        read_sweep(tmp_path)


@pytest.mark.parametrize(
    ("machine", "what"),
    [
        ({"cpu": {"usable": "x"}}, "cpu's usable"),
        ({"cpu": {"usable": [[]]}}, "cpu's usable"),
        ({"cpu": {"logical": -1}}, "cpu's logical"),
        ({"cpu": [1]}, "machine's cpu"),
        ({"driver": ["580"]}, "machine's driver"),
        ({"memory_bytes": "64 GB"}, "machine's memory_bytes"),
        ({"os": 7}, "machine's os"),
        ({"horovod": [1]}, "machine's horovod"),
        ({"gpus": [{"name": "H200", "memory_bytes": {}}]}, "gpu's memory_bytes"),
    ],
)
def test_a_machine_whose_facts_are_of_other_types_makes_its_record_damaged(
    tmp_path: Path, machine: dict[str, Any], what: str
) -> None:
    run = swept(tmp_path / "run")
    (path, *_) = sorted(run.glob("*/*/record.json"))
    data = json.loads(path.read_text())
    path.write_text(json.dumps(data | {"machine": data["machine"] | machine}))
    assert what in read_run(path.parent).record.reason
    assert not verbs.run(report.command, [str(run)])
    sweep = json.loads((run / "sweep.json").read_text())
    (run / "sweep.json").write_text(json.dumps(sweep | {"machine": machine}))
    assert what in verbs.run(report.command, [str(run)])


def test_a_launch_of_more_ranks_than_any_machine_has_is_damaged_at_its_first_missing_one(tmp_path: Path) -> None:
    launch = RunRecord(Cell("mlp", 1 << 40, 8), 0, "ok", "", 0, 1, [], "horovodrun", {})
    (tmp_path / "record.json").write_text(json.dumps(launch.to_json()))
    run = read_run(tmp_path)
    assert run.record.status == "damaged" and "rank0.jsonl" in run.record.reason


def test_of_a_record_without_an_end_no_more_is_read_than_a_header_has(tmp_path: Path) -> None:
    with (tmp_path / "rank0.jsonl").open("wb") as file:
        file.truncate(1 << 40)
    assert host_beside(tmp_path / "rank0.sqlite") is None


def test_records_of_more_values_than_any_has_are_refused_and_not_decoded(tmp_path: Path) -> None:
    """Each value would take some hundred bytes of memory."""
    many = 12 << 20
    for name, text in (("sweep.json", "[" + "[]," * (many // 2) + "[]]"), ("rank1.jsonl", "1\n" * (many + 1))):
        (tmp_path / name).write_text(text)
    with pytest.raises(Damaged, match="values"):
        read_sweep(tmp_path)
    with pytest.raises(Damaged, match="values"):
        read_rank(tmp_path / "rank1.jsonl")
