"""The tables of `infer` and of `rules`, from their JSON, for the page: each number with the place that it shows."""

from __future__ import annotations

from typing import Any

from ...ground import numbers
from .table import Document, Format, Table, words


def calls(document: Document) -> Table:
    told = any(row["launches_ns"] is not None for row in document["/calls"])
    parts = ("launches_ns", "copies_ns", "compute_ns") if told else ()
    forms: list[tuple[str, Format]] = [("batch", numbers.count), ("call_ns", numbers.duration)]
    forms += [("p95_ns", numbers.duration), ("samples_per_s", numbers.per_s)]
    forms += [(name, numbers.duration) for name in parts]
    rows = [
        (words(row["model"]), words(row["device"]), *(document.number(f"{at}/{name}", form) for name, form in forms))
        for at, row in _rows(document, "calls")
    ]
    titles = ("batch", "call, median", "call, p95", "throughput", *(part.removesuffix("_ns") for part in parts))
    text = "A call goes from samples in host memory to answers in host memory."
    return Table("calls", "CPU and GPU", text, ("model", "on", *titles), tuple(rows))


def together(document: Document) -> Table:
    forms: tuple[tuple[str, Format], ...] = (
        ("processes", numbers.count),
        ("devices", numbers.count),
        ("batch", numbers.count),
        ("samples_per_s", numbers.per_s),
        ("p50_ns", numbers.duration),
        ("p99_ns", numbers.duration),
    )
    rows = [
        (words(row["model"]), words(row["way"]), *(document.number(f"{at}/{name}", form) for name, form in forms))
        for at, row in _rows(document, "together")
    ]
    text = "Independent processes, compared with one model that splits its batch; the latency of a call."
    titles = ("model", "way", "processes", "devices of each", "batch per device", "throughput", "p50", "p99")
    return Table("together", "Replicas against one synchronous model", text, titles, tuple(rows))


def served(document: Document) -> Table:
    forms: tuple[tuple[str, str, Format], ...] = (
        ("asked_per_s", "asked per s", _plain),
        ("most", "batch at most", _plain),
        ("wait_ms", "waits, ms", _plain),
        ("requests", "requests", numbers.count),
        ("answered_per_s", "answered per s", numbers.figure),
        ("p50_ns", "p50", numbers.duration),
        ("p99_ns", "p99", numbers.duration),
        ("max_ns", "longest", numbers.duration),
        ("mean_batch", "batch, mean", numbers.figure),
        ("simulated_p99_ns", "p99 alone", numbers.duration),
        ("lost", "lost", numbers.count),
        ("wrong", "wrong", numbers.count),
    )
    rows = [
        (
            words(", ".join(filter(None, (row["model"], row["server"])))),
            *(document.number(f"{at}/{name}", form) for name, _, form in forms),
            words("yes" if row["keeps_up"] else "no"),
        )
        for at, row in _rows(document, "served")
    ]
    text = (
        "Latency of good answers from the planned arrival. p99 alone is simulated, with the model's own times and no "
        "HTTP, JSON and processes. A limit that is not known is the server's own."
    )
    titles = ("server", *(title for _, title, _ in forms), "keeps up")
    return Table("served", "Requests in batches", text, titles, tuple(rows))


def failures(document: Document) -> Table:
    rows = [(words(one["what"]), words(one["why"])) for one in document["/failures"]]
    return Table("failures", "What failed", "These are not in the other tables.", ("what", "why"), tuple(rows))


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
        "The ratio is samples per second with the advice divided by samples per second without it: the median over "
        "pairs of turns in one process, and its interval."
    )
    titles = ("rule", "advice", "what that says", "ratio", "from", "to", "without it", "that is", "with it")
    return Table("rules", "Rules of thumb", text, (*titles, "that is", "trained"), tuple(rows))


def _rows(document: Document, key: str) -> list[tuple[str, Any]]:
    return [(f"/{key}/{place}", row) for place, row in enumerate(document[f"/{key}"])]


def _plain(value: float | None) -> str:
    return numbers.UNKNOWN if value is None else f"{value:g}"
