"""Strategies beside each other: what stands in the terminal's table, and what is held against horovod."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

from rich.console import Console

from profiles.runs.cell import Cell, setting
from profiles.runs.rank_records import RankRecord
from profiles.runs.records import Run, RunRecord, SweepRecord
from profiles.scaling.measure import Scaling, measure
from profiles.scaling.rows import columns
from profiles.views.tables import sweep_cells
from profiles.views.terminal import strategies, sweep

CELL = Cell("mlp", ranks=2, per_rank_batch=8, steps=2)
BESIDE = {
    "horovod": (CELL, 100, {}),
    "compiled": (replace(CELL, step="compiled"), 50, {"memory_peak_bytes": [3 * 10**9]}),
    "split": (
        replace(CELL, strategy="split", micro_batches=2),
        200,
        {"memory_peak_bytes": [10**9, 2 * 10**9], "pipeline": {"micro_batches": 2, "stage_ns": [40, 20]}},
    ),
    "parameter_server": (
        replace(CELL, strategy="parameter_server"),
        125,
        {"staleness": [0, 1, 1, 4], "logs": {"loss": 2.5}, "input_wait_unknown": "why"},
    ),
}

PLAIN = {"logs": {"loss": 2.0}}


def scaling(**failed: str) -> Scaling:
    """A launch of each cell, all of 2 steps; `failed`: those that ended otherwise, and why."""
    runs = []
    for name, (cell, step_ns, extra) in BESIDE.items():
        record = RunRecord(cell, 0, "failed" if name in failed else "ok", failed.get(name, ""), 0, 0, [], "x", {})
        ranks = [
            RankRecord(
                k, 1, k, "h", None, 0, 2 * step_ns, 16, [step_ns] * 2, [1, 1], 0, {"logs": {"loss": 2.0}} | extra
            )
            for k in range(cell.processes)
        ]
        runs.append(Run(record, [] if name in failed else ranks, None))  # type: ignore[arg-type]
    return measure(SweepRecord([cell for cell, _, _ in BESIDE.values()], 1, "x"), runs)


def row(found: Scaling, name: str) -> dict[str, Any]:
    return columns(next(row for row in found.cells if row.cell == BESIDE[name][0]))


def test_each_strategy_is_held_against_horovod_with_its_own_step_or_the_fastest() -> None:
    found = scaling()
    rates = {name: row(found, name)["samples_per_s_global"] for name in BESIDE}
    assert row(found, "horovod")["of_horovod"] == row(found, "compiled")["of_horovod"] == 1
    assert row(found, "split")["of_horovod"] == rates["split"] / rates["horovod"]
    without = scaling(horovod="it fell")
    assert row(without, "split")["of_horovod"] == rates["split"] / rates["compiled"]
    assert row(without, "horovod")["of_horovod"] is None


def test_what_ranks_tell_of_themselves_is_a_column() -> None:
    found = scaling()
    assert row(found, "split")["memory_peak_gb"] == 2.0
    assert row(found, "split")["bubble_share"] == 1 - 2 * 60 / (2 * 200)
    told = row(found, "parameter_server")
    assert (told["staleness_p50"], told["staleness_max"], told["loss"]) == (1, 4, 2.5)
    assert told["input_wait_share"] is told["step_ms_p50"] is None and told["samples_per_s_global"] > 0
    assert row(found, "horovod")["memory_peak_gb"] is None and row(found, "horovod")["loss"] == 2.0


def test_the_terminal_has_one_table_of_the_same_work() -> None:
    out = io.StringIO()
    sweep.show(scaling(compiled="it fell"), "runs/x", Console(file=out, width=130))
    lines = out.getvalue().splitlines()
    first = [line.split()[0] for line in lines if line.startswith(tuple(BESIDE))]
    assert first == ["horovod,", "parameter_server,", "split,", "horovod,", "horovod:"]
    assert "efficiency" not in out.getvalue()  # no cell of one rank, and nothing left to scale
    assert "horovod: failed: it fell" in lines
    (split,) = (line for line in lines if line.startswith("split"))
    assert "2 micro-batches" in split and "0.25 x" in split and "2.00 GB" in split and "70.0 %" in split


def test_in_a_narrow_terminal_names_and_numbers_are_whole_all_the_same() -> None:
    out = io.StringIO()
    sweep.show(scaling(), "runs/x", Console(file=out, width=80))
    shown = out.getvalue().splitlines()
    first, *_, second = (number for number, line in enumerate(shown) if line.startswith("strategy"))
    assert "samples/s" in shown[first] and "horovod" in shown[first] and "bubble" not in shown[first]
    assert "staleness" in shown[second] and "bubble" in shown[second]
    for begin in (first, second):
        names = [line.split()[0] for line in shown[begin : begin + 12] if line.startswith(tuple(BESIDE))]
        assert {name.rstrip(",") for name in names} >= {"horovod", "parameter_server", "split"}
    assert not any("…" in line for line in shown[first : second + 8])


def test_cells_of_one_strategy_have_no_such_table() -> None:
    found = scaling()
    assert strategies.compared([one for one in found.cells if one.cell.strategy == "horovod"]) == []


def test_the_pages_table_has_the_columns_that_any_row_has() -> None:
    titles = sweep_cells.cells(list(map(columns, scaling().cells))).columns
    assert {"strategy", "of horovod", "GPU memory", "loss", "staleness p50", "bubble"} <= set(titles)
    alone = sweep_cells.cells([row(scaling(), "horovod")]).columns
    assert not {"of horovod", "GPU memory", "loss", "staleness p50", "bubble"} & set(alone)


def test_one_rank_is_said_as_people_say_it() -> None:
    assert [setting("ranks").said(count) for count in (1, 2)] == ["one rank", "2 ranks"]
