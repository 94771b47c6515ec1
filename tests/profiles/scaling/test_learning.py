"""When an accuracy is reached: columns, speed-up and table, from made launches whose answers are worked out by hand."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from profiles.runs.records import Cell, SweepRecord
from profiles.scaling.measure import Scaling, measure
from profiles.scaling.rows import columns
from profiles.views.tables import sweep_cells
from profiles.views.terminal import sweep as view
from tests.figures import figures
from tests.profiles.scaling.test_scaling import rank, run

ONE = Cell("gru", 1, 64, until="accuracy=0.95", data="generated")
TWO = replace(ONE, ranks=2)


def learnt(seconds: float, epochs: int, *, reached: bool = True) -> dict[str, Any]:
    """Of a rank whose last epoch ended after so many seconds of training."""
    last = {
        "training_ns": int(seconds * 1e9),
        "samples": 4096 * epochs,
        "accuracy": 0.97,
        "validation_accuracy": 0.955 if reached else 0.6,
    }
    return {
        "convergence": {"wanted": 0.95, "reached": reached, "epochs": epochs, "best_accuracy": 0.98, "history": [last]}
    }


def launch(cell: Cell, number: int, *facts: dict[str, Any]) -> Any:
    ranks = [
        rank(k, end_ms=1000, extra=one | {"host_memory_peak_bytes": 10**9 * (k + 1)}) for k, one in enumerate(facts)
    ]
    return run(cell, number, ranks)


def scaling(*launches: Any) -> Scaling:
    cells = list(dict.fromkeys(one.record.cell for one in launches))
    return measure(SweepRecord(cells, 2, "x"), list(launches))


def test_the_slowest_rank_tells_when_and_the_speed_up_is_against_one_rank() -> None:
    found = scaling(
        launch(ONE, 0, learnt(8.0, 4)),
        launch(ONE, 1, learnt(10.0, 5)),
        launch(TWO, 0, learnt(4.9, 6), learnt(5.0, 6)),
        launch(TWO, 1, learnt(7.0, 6), learnt(6.9, 6)),
    )
    one, two = found.cells
    assert (one.seconds_to_accuracy, one.epochs, one.samples_to_accuracy) == (9.0, 4.5, 4.5 * 4096)
    assert (two.seconds_to_accuracy, two.reached, two.validation_accuracy) == (6.0, 2, 0.955)
    assert two.speedup_to_accuracy == pytest.approx(1.5) and one.speedup_to_accuracy == 1.0
    assert [line.host_memory_peak_gb for line in found.launches] == [1, 1, 2, 2]
    assert two.host_memory_peak_gb == two.memory_gb == 2 and two.memory_peak_gb is None


def test_a_launch_that_never_reaches_it_leaves_no_time() -> None:
    found = scaling(launch(ONE, 0, learnt(8.0, 4)), launch(ONE, 1, learnt(40.0, 20, reached=False)))
    (row,) = found.cells
    assert (row.reached, row.ok, row.seconds_to_accuracy, row.samples_to_accuracy) == (1, 2, None, None)
    assert [line.seconds_to_accuracy for line in found.launches] == [8.0, None]
    shown = sweep_cells.learning([columns(row)])
    assert "n/a (1 of 2 launches reach the accuracy)" in [cell.text for cell in shown.rows[0]]


def test_cells_without_an_accuracy_have_no_such_table_and_empty_columns() -> None:
    (row,) = scaling(launch(replace(ONE, until=""), 0, {})).cells
    assert (row.reached, row.epochs, row.speedup_to_accuracy) == (None, None, None)
    assert not sweep_cells.learning([columns(row)]).rows


@pytest.mark.parametrize("width", [80, 100])
def test_the_terminal_shows_batches_and_ranks_with_what_they_reach(width: int) -> None:
    cells = [replace(ONE, ranks=ranks, per_rank_batch=batch) for batch in (64, 256) for ranks in (1, 2)]
    found = scaling(*(launch(cell, 0, *[learnt(8.0 / cell.ranks, 4)] * cell.ranks) for cell in cells))
    out = io.StringIO()
    view.show(found, "runs/x", Console(file=out, width=width))
    said = out.getvalue()
    assert max(map(len, said.splitlines())) <= width
    table = said.partition("Until accuracy=0.95")[2]
    assert table.count("2.00 x") == 2 and "16,384" in table and "97.0 %" in table


def batches(*reached: tuple[int, float, float | None], ranks: int = 1) -> list[str]:
    """The looks of (batch, samples/s, seconds to the accuracy or None), three launches each."""
    launches = []
    for batch, per_s, seconds in reached:
        cell = replace(ONE, ranks=ranks, per_rank_batch=batch)
        told = learnt(seconds or 40.0, 4 if seconds else 15, reached=seconds is not None)
        for number in range(3):
            one = [replace(rank(k, end_ms=1000, extra=told), samples=round(per_s / ranks)) for k in range(ranks)]
            launches.append(run(cell, number, one))
    return [f"{look.code}: {look.text}" for look in scaling(*launches).looks if "batch" in look.code]


def test_a_larger_batch_that_is_faster_and_does_not_learn_is_told_so() -> None:
    (found,) = batches((64, 10_000, 1.2), (512, 75_000, None))
    assert found.startswith("larger-batch-learns-later: gru ")
    assert figures(found) == ["512", "7.50 x", "64", "0.95", "15", "64", "1.2 s"]
    (found,) = batches((64, 10_000, 4.0), (256, 30_000, 6.0), (512, 40_000, 9.0), ranks=2)
    assert figures(found)[-7:] == ["512", "4.00 x", "64", "0.95", "9 s", "64", "4 s"]


def test_a_larger_batch_that_is_faster_and_learns_as_well_is_worth_a_larger_one() -> None:
    (found,) = batches((64, 10_000, 4.0), (512, 30_000, 2.0))
    assert found.startswith("larger-batch: gru ") and figures(found)[:2] == ["512", "3.00 x"]
    # Where none reaches it, nobody knows which learns better.
    assert not batches((64, 10_000, None), (512, 30_000, None))
