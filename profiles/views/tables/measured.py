"""The page's tables of `infer` and `rules`, made from JSON: each number carries its JSON pointer."""

from __future__ import annotations

from typing import Any

from ...ground import numbers
from .table import Document, Field, Table, titles, words

CALLS: tuple[Field, ...] = (
    ("batch", "batch", numbers.count),
    ("parameters", "parameters", numbers.count),
    ("call, median", "call_ns", numbers.duration),
    ("call, p95", "p95_ns", numbers.duration),
    ("throughput", "samples_per_s", numbers.per_s),
)
PARTS: tuple[Field, ...] = tuple((name, f"{name}_ns", numbers.duration) for name in ("launches", "copies", "compute"))
TOGETHER: tuple[Field, ...] = (
    ("processes", "processes", numbers.count),
    ("devices of each", "devices", numbers.count),
    ("batch per device", "batch", numbers.count),
    ("throughput", "samples_per_s", numbers.per_s),
    ("p50", "p50_ns", numbers.duration),
    ("p99", "p99_ns", numbers.duration),
)
LIMITS: tuple[Field, ...] = tuple(
    (title, key, lambda value: numbers.UNKNOWN if value is None else f"{value:g}")
    for title, key in (("asked per s", "asked_per_s"), ("batch at most", "most"), ("waits, ms", "wait_ms"))
)
SERVED: tuple[Field, ...] = (
    *LIMITS,
    ("requests", "requests", numbers.count),
    ("answered per s", "answered_per_s", numbers.figure),
    ("p50", "p50_ns", numbers.duration),
    ("p99", "p99_ns", numbers.duration),
    ("longest", "max_ns", numbers.duration),
    ("batch, mean", "mean_batch", numbers.figure),
    ("p99 alone", "simulated_p99_ns", numbers.duration),
    ("lost", "lost", numbers.count),
    ("wrong", "wrong", numbers.count),
)


def calls(document: Document) -> Table:
    shown = (*CALLS, *(PARTS if any(row["launches_ns"] is not None for row in document["/calls"]) else ()))
    rows = [
        (words(row["model"]), words(row["device"]), *document.numbers(at, shown))
        for at, row in _rows(document, "calls")
    ]
    text = "A call is timed from samples in host memory to outputs in host memory."
    return Table("calls", "CPU and GPU", text, ("model", "on", *titles(shown)), tuple(rows), keys=3)


def together(document: Document) -> Table:
    rows = [
        (words(row["model"]), words(row["way"]), *document.numbers(at, TOGETHER))
        for at, row in _rows(document, "together")
    ]
    text = "One process per GPU, compared with one model that splits its batch over GPUs; the latency of a call."
    columns = ("model", "way", *titles(TOGETHER))
    return Table("together", "Replicas against one synchronous model", text, columns, tuple(rows), keys=2)


def served(document: Document) -> Table:
    rows = [
        (
            words(", ".join(filter(None, (row["model"], row["server"])))),
            *document.numbers(at, SERVED),
            words("yes" if row["keeps_up"] else "no"),
        )
        for at, row in _rows(document, "served")
    ]
    text = (
        "Latency of good answers, from the planned arrival of the request. 'p99 alone' is simulated with the model's "
        "own times, without HTTP, JSON and other processes. Unknown limits are the server's defaults."
    )
    return Table("served", "Requests in batches", text, ("server", *titles(SERVED), "keeps up"), tuple(rows), keys=4)


def failures(document: Document) -> Table:
    rows = [(words(one["what"]), words(one["why"])) for one in document["/failures"]]
    return Table(
        "failures",
        "What failed",
        "Measurements that failed; the other tables leave them out.",
        ("what", "why"),
        tuple(rows),
    )


def rules(document: Document) -> Table:
    rows = [
        (
            words(one["rule"], code=True),
            words(one["advice"]),
            words(one["text"]),
            document.number(f"{at}/ratio/median", numbers.factor),
            document.number(f"{at}/ratio/low", numbers.factor),
            document.number(f"{at}/ratio/high", numbers.factor),
            document.number(f"{at}/against_samples_per_s", numbers.per_s),
            words(one["against"]),
            document.number(f"{at}/advised_samples_per_s", numbers.per_s),
            words(one["advised"]),
            words(one["what"]),
        )
        for at, one in _rows(document, "rules")
    ]
    text = (
        "The ratio is samples per second with the advice divided by samples per second without it: the median, with "
        "its interval, over pairs of turns in one process."
    )
    titles = ("rule", "advice", "what that says", "ratio", "from", "to", "without it", "that is", "with it")
    return Table("rules", "Rules of thumb", text, (*titles, "that is", "trained"), tuple(rows))


def _rows(document: Document, key: str) -> list[tuple[str, Any]]:
    return [(f"/{key}/{place}", row) for place, row in enumerate(document[f"/{key}"])]
