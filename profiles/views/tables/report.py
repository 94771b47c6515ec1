"""Tables of recordings, doubts and a sweep's cells, and the list of all tables that a report can show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...ground import numbers
from ...model.measures import Trust
from ...runs.cell import TELLING
from .. import spoken
from . import busy, gpu_metrics, operations, places, ranks, time
from .table import Cell, Document, Format, Json, Table, words

PERCENTILES = ("p50", "p95", "min", "median", "max")
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
    ("staleness_p50", "staleness p50", numbers.median),
    ("bubble_share", "bubble", numbers.share),
)
OF_STRATEGIES = ("of_horovod", "limited_by", "limited_share", "loss")  # shown only if the cells differ in strategy


def of_recordings(document: Document) -> list[Table]:
    """The tables of measured recordings, in reading order, without empty tables. If the document holds a summary of
    many GPUs, the summary's tables come first, and the other tables show some of the GPUs."""
    makers = {**MAKERS, "doubts": ranks.doubts if document.told_at else doubts}
    together = ranks.of_summary(document) if document.told_at else []
    return together + [table for make in makers.values() if (table := make(document)).rows]


def recordings(document: Document) -> Table:
    rows = []
    for one in document.json["recordings"]:
        tool = f"{one['tool']} {one['tool_version'] or ''}".strip()
        schema = one["schema_version"]
        rows.append(
            (words(one["path"], code=True), words(one["rank"]), words(one["format"]), words(tool), words(schema))
        )
    return Table(
        "recordings",
        "Recordings",
        "The files that were read.",
        ("file", "rank", "format", "tool", "schema"),
        tuple(rows),
    )


def trusted(trust: Trust) -> str:
    """The verdict in a line, such as `trusted: with care (launches-lost); ringscope check says why`."""
    why = f" ({', '.join(trust.because)}); ringscope check says why" if trust.because else ""
    return f"trusted: {trust.verdict}{why}"


def doubts(document: Document) -> Table:
    rows = [
        (words(one["code"], code=True), words(one["text"]), words(one["next"]), words(touched(one["where"], document)))
        for one in document.json["doubts"]
    ]
    return Table(
        "doubts",
        "Doubts",
        "Reasons why these numbers are less than certain, and what to do.",
        ("code", "doubt", "do", "touches"),
        tuple(rows),
    )


# The keys are the names that `timeline --show` takes; a report shows the tables in this order.
MAKERS: Mapping[str, Callable[[Document], Table]] = {
    "gpus": time.summary,
    "ledger": time.ledger,
    "busy": busy.busy,
    "bound-by": gpu_metrics.bound,
    "gpu-metrics": gpu_metrics.means,
    "what-if": time.what_if,
    "steps": time.steps,
    "feed": time.feed,
    "inputs": time.inputs,
    "batch-gaps": time.batch_gaps,
    "places": places.places,
    "idle-gaps": time.idle_gaps,
    "host": time.host,
    "copies": operations.copies,
    "collectives": operations.collectives,
    "collective-sizes": operations.collective_sizes,
    "all-kernels": busy.kernels,
    "kernels": operations.kernels,
    "groups": operations.groups,
    "operators": operations.operators,
    "layers": operations.layers,
    "arithmetic": operations.arithmetic,
    "recordings": recordings,
    "doubts": doubts,
}


def touched(where: Sequence[str], document: Document) -> str:
    """JSON pointers in words, such as `ledger, idle feed (rank 0, GPU 0)`; for a pointer to a whole GPU the GPU's
    title."""
    gpus: dict[str, list[int]] = {}
    others = []
    for pointer in where:
        first, *path = pointer.split("/")[1:]
        if first == "gpus" and path and path[0].isdigit():
            gpus.setdefault(", ".join(map(_plainly, path[1:])), []).append(int(path[0]))
        else:
            others.append(", ".join(map(_plainly, (first, *path))))
    count = len(document.json.get("gpus", ()))
    told = [(what, "" if len(set(some)) == count else _titles(some, document)) for what, some in gpus.items()]
    said = [f"{what} ({whose})" if what and whose else what or whose or "all" for what, whose in told]
    return "; ".join([*others, *said]) or "all"


def _titles(gpus: Sequence[int], document: Document) -> str:
    return ", ".join(document.titles[gpu] if gpu < len(document.titles) else f"GPU {gpu}" for gpu in gpus)


def _plainly(key: str) -> str:
    return key.removesuffix("_ns").replace("_", " ")


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
                Cell(_milliseconds(row["step_ms_p50"]), row["step_ms_p50"]),
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
                Cell(f"{row['epochs']:g}" if row["epochs"] is not None else numbers.UNKNOWN, row["epochs"]),
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


def machine(described: Json) -> list[tuple[str, str]]:
    """The known facts of the machine in a run's record, as (title, text)."""
    cpu, gpus = described.get("cpu") or {}, described.get("gpus") or []
    versions = described.get("packages") or {}
    build = described.get("horovod") or {}
    pairs = [
        ("host", described.get("host")),
        ("system", ", ".join(filter(None, (described.get("os"), described.get("kernel"))))),
        ("CPU", cpu.get("model") and f"{cpu['model']}, {cpu.get('usable') or cpu.get('logical')} cores"),
        ("memory", described.get("memory_bytes") and numbers.size(described["memory_bytes"])),
        ("GPUs", ", ".join(sorted({f"{_same(gpus, gpu)} x {gpu.get('name')}" for gpu in gpus}))),
        ("driver", described.get("driver")),
        ("CUDA", described.get("cuda_runtime") or described.get("cuda_driver")),
        ("cuDNN", described.get("cudnn")),
        ("NCCL", described.get("nccl")),
        ("Python", described.get("python")),
        ("packages", ", ".join(f"{name} {version}" for name, version in versions.items() if version)),
        ("Horovod built with", ", ".join(name for name, value in build.items() if value is True)),
        ("MPI", described.get("mpi")),
    ]
    return [(what, str(value)) for what, value in pairs if value]


def _same(gpus: Sequence[Json], like: Json) -> int:
    return sum(gpu.get("name") == like.get("name") for gpu in gpus)


def _interval(row: Json, name: str, form: Format) -> str:
    """The text `low to high`, with the unit once if both numbers have the same unit."""
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    if low is None or high is None:
        return numbers.UNKNOWN
    if row.get("ok") == 1:
        return numbers.unknown("one launch")
    (first, unit), last = form(low).split(" ", 1), form(high)
    return f"{first} to {last}" if last.endswith(unit) else f"{form(low)} to {last}"


def _milliseconds(value: float | None) -> str:
    return numbers.duration(None if value is None else value * 1e6)


def clock(document: Document) -> str:
    """Words for the method that aligned the ranks' clocks, and for the residual error; "" for one recording."""
    told = document.json["clock"]
    if not told:
        return ""
    residual = told.get("residual_ns")
    method = {"utc": "session starts in UTC", "collectives": "common ends of collectives"}.get(told.get("method"))
    return f"{method or told.get('method', numbers.UNKNOWN)}, good to {numbers.duration(residual)}"


def straggler(document: Document) -> str:
    """A sentence on the GPU that the others wait for; "" if there is none."""
    found = document.json.get("straggler")
    if not found:
        return ""
    gpu = document.titles[found["gpu"]]
    share, since = numbers.share(found["arrived_last_share"]), numbers.duration(found["since_ns"])
    return f"The others wait for {gpu}: from {since} on it arrives last at {share} of {found['calls']:,} collectives."


def evidence(finding: Json) -> Sequence[tuple[str, str]]:
    """A finding's evidence as (title, text); the unit in a key, such as `_ns`, says how the value is formatted."""
    return [
        (key.replace("_ns", "").replace("_", " "), _evidence(key, value)) for key, value in finding["evidence"].items()
    ]


def _evidence(key: str, value: Any) -> str:
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return numbers.UNKNOWN if value is None else spoken.name(str(value))
    if isinstance(value, (list, tuple)):
        return ", ".join(_evidence(key, one) for one in value)
    if isinstance(value, Mapping):
        # A percentile has the unit of the measure around it: `p50` in `step_ns` is a duration.
        return ", ".join(
            f"{name} {_evidence(key if name in PERCENTILES else name, one)}" for name, one in value.items()
        )
    if key == "ns" or key.endswith("_ns") or "_ns_" in key:
        return numbers.duration(value)
    if "share" in key or key == "overlap":
        return numbers.share(value)
    if key.endswith("gb_per_s"):
        return numbers.gb_per_s(value)
    if "bytes" in key:
        return numbers.size(value)
    return numbers.count(value) if isinstance(value, int) else f"{value:.3g}"
