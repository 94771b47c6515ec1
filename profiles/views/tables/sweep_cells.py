"""Tables of a sweep's cells: their throughput, and the time in which they learned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ground import numbers
from ...runs.cell import TELLING
from .table import Cell, Format, Json, Table, words

KEYS = ("model", "ranks", "per_rank_batch")  # settings that have a column even if all cells agree
# Further columns (key in summary.csv, title, format). A column is shown if any cell has a value.
TOLD: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("of_horovod", "of horovod", numbers.factor),
    ("limited_by", "limited by", lambda what: what or numbers.UNKNOWN),
    ("limited_share", "of the step", numbers.share),
    ("memory_peak_gb", "GPU memory", numbers.gigabytes),
    ("host_memory_peak_gb", "host memory", numbers.gigabytes),
    ("tuned_fusion_mib", "autotune: fusion", lambda mib: "" if mib is None else f"{mib:.2f} MiB"),
    ("tuned_cycle_ms", "autotune: cycle", lambda ms: "" if ms is None else f"{ms:.2f} ms"),
    ("loss", "loss", numbers.figure),
    ("staleness_p50", "staleness p50", numbers.plain),
    ("bubble_share", "bubble", numbers.share),
)
OF_STRATEGIES = ("of_horovod", "limited_by", "limited_share", "loss")  # shown only if the cells differ in strategy


def cells(rows: Sequence[Json]) -> Table:
    """The table of a sweep's cells, from rows of summary.csv. The caption names settings that all cells share."""
    differs = [one for one in TELLING if one.name in KEYS or len({row.get(one.name) for row in rows}) > 1]
    alike = (one for one in TELLING if rows and one not in differs)
    common = list(filter(None, (one.said(rows[0].get(one.name, one.default)) for one in alike)))
    strategies = any(one.name == "strategy" for one in differs)
    told = [one for one in TOLD if any(row.get(one[0]) is not None for row in rows)]
    told = [one for one in told if one[0] not in OF_STRATEGIES or strategies]
    shown = []
    for row in rows:
        shown.append(
            (
                *(_setting(row.get(one.name, one.default)) for one in differs),
                Cell(numbers.per_s(row["samples_per_s_global"]), row["samples_per_s_global"]),
                Cell(_interval(row, "samples_per_s", numbers.per_s)),
                Cell(numbers.factor(row["speedup"]), row["speedup"]),
                Cell(numbers.share(row["efficiency"]), row["efficiency"]),
                Cell(_interval(row, "efficiency", numbers.share)),
                Cell(milliseconds(row["step_ms_p50"]), row["step_ms_p50"]),
                Cell(numbers.share(row["input_wait_share"]), row["input_wait_share"]),
                *(Cell(text(row.get(name)), row.get(name)) for name, _, text in told),
                words(row["status"] if not (said := row["reason"] or row.get("note")) else f"{row['status']}: {said}"),
            )
        )
    columns = ("throughput", "interval", "speed-up", "efficiency", "interval of it", "step p50", "input wait")
    return Table(
        "cells",
        "Cells",
        "A cell's numbers are medians over its launches, with the interval over launches. Throughput is the sum over "
        "all ranks; efficiency is the throughput of N ranks divided by N times the throughput of one rank."
        + (f" In all cells: {', '.join(common)}." if common else ""),
        (
            *(one.title or one.name.replace("_", " ") for one in differs),
            *columns,
            *(title for _, title, _ in told),
            "status",
        ),
        tuple(shown),
        keys=len(differs),
    )


def learning(rows: Sequence[Json]) -> Table:
    """The table of the time in which each cell trained to the accuracy of --until; empty without --until. rows: of
    summary.csv."""
    told = [row for row in rows if row.get("until")]
    differs = [one for one in TELLING if one.name in KEYS or len({row.get(one.name) for row in told}) > 1]
    shown = []
    for row in told:
        missed = row["reached"] is not None and row["reached"] < row["ok"]
        seconds = row["seconds_to_accuracy"]
        why = f"{row['reached']} of {row['ok']} launches reach the accuracy" if missed else ""
        shown.append(
            (
                *(_setting(row.get(one.name, one.default)) for one in differs),
                Cell(numbers.plain(row["epochs"]), row["epochs"]),
                Cell(numbers.share(row["accuracy"]), row["accuracy"]),
                Cell(numbers.share(row["validation_accuracy"]), row["validation_accuracy"]),
                Cell(numbers.duration(None if seconds is None else seconds * 1e9, why), seconds),
                Cell(numbers.factor(row["speedup_to_accuracy"]), row["speedup_to_accuracy"]),
                Cell(_whole(row["samples_to_accuracy"]), row["samples_to_accuracy"]),
                Cell(
                    numbers.per_s(row["samples_per_s_global"]).removesuffix(" samples/s"), row["samples_per_s_global"]
                ),
            )
        )
    wanted = ", ".join(dict.fromkeys(str(row["until"]) for row in told))
    return Table(
        "learning",
        f"Until {wanted}",
        "Epochs until the validation accuracy is reached, or the largest number allowed; medians over launches. Time "
        "counts the training steps alone; the speed-up compares with the same training on one rank.",
        (
            *(one.title or one.name.replace("_", " ") for one in differs),
            *("epochs", "accuracy", "validation", "time to it", "speed-up", "samples to it", "samples/s"),
        ),
        tuple(shown),
        keys=len(differs),
    )


def _whole(value: float | None) -> str:
    return numbers.count(None if value is None else round(value))


def _setting(value: Any) -> Cell:
    return Cell(str(value), value) if isinstance(value, int) else words(value)


def _interval(row: Json, name: str, form: Format) -> str:
    """The text `low to high`, with the unit once if both numbers have the same unit."""
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    if low is None or high is None:
        return numbers.UNKNOWN
    if row.get("ok") == 1:
        return numbers.unknown("one launch")
    (first, unit), last = form(low).split(" ", 1), form(high)
    return f"{first} to {last}" if last.endswith(unit) else f"{form(low)} to {last}"


def milliseconds(value: float | None) -> str:
    return numbers.duration(None if value is None else value * 1e6)
