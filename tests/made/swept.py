"""A run directory as `ringscope bench` writes it: two cells of two launches each, of which the first were recorded."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from profiles.model import measures_json
from profiles.runs.rank_records import RankRecord, write_rank
from profiles.runs.records import Cell, RunRecord, SweepRecord

from . import hand

MS = 1_000_000
ONE = Cell("resnet50", 1, 64)
TWO = replace(ONE, ranks=2)
MACHINE = {"host": "a", "gpus": [{"name": "NVIDIA H200"}], "packages": {"tensorflow": "2.21"}, "cpu": {"usable": 2}}
SWEEP, RECORD, RANK = "sweep.json", f"{TWO.id}/0/record.json", f"{TWO.id}/0/rank1.jsonl"
MEASURES = f"{TWO.id}/0/measures.json"


def swept(folder: Path) -> Path:
    """Makes the folder."""
    folder.mkdir()
    sweep = SweepRecord([ONE, TWO], 2, "horovodrun", created_utc_ns=1, machine=MACHINE)
    (folder / SWEEP).write_text(json.dumps(sweep.to_json()))
    for cell in (ONE, TWO):
        for launch in range(2):
            of_launch = folder / cell.id / str(launch)
            of_launch.mkdir(parents=True)
            record = RunRecord(cell, launch, "ok", "", launch, 10**9, ["x"], "horovodrun", MACHINE)
            (of_launch / "record.json").write_text(json.dumps(record.to_json()))
            for k in range(cell.ranks):
                facts = {"size": cell.ranks, "local_rank": k, "host": "a", "device": f"GPU-{k}", "samples": 640}
                times = {"window_start_ns": 0, "window_end_ns": 1000 * MS, "step_ns": [100 * MS] * 10}
                write_rank(of_launch / f"rank{k}.jsonl", RankRecord(k, **facts, **times, input_wait_ns=[MS] * 10))
        measures = hand.measures([hand.gpu(rank=k) for k in range(cell.ranks)])
        (folder / cell.id / "0" / "measures.json").write_text(measures_json.dumps(measures))
    return folder
