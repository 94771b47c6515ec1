"""The tables of a report, once for the page and the Markdown: each number with the place in the JSON that it shows.

Built from the JSON document (`ringscope timeline --json`), so that what is shown is what is written there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..measures import OWNERS, Measures
from . import numbers
from .json import to_json
from .palette import OWNERS as LOOKS

Json = Mapping[str, Any]
Format = Callable[[Any], str]
PERCENTILES = ("p50", "p95", "max")
MOST_STEPS = 200  # rows a reader still scrolls; more are all in the JSON and the Parquet file


@dataclass(frozen=True, slots=True)
class Cell:
    """`text` as shown; `at` the JSON pointer of the number shown, divided by the one at `of` where there is one."""

    text: str
    value: float | int | str | None = None
    at: str = ""
    of: str = ""
    look: str = ""  # an owner: views put its colour beside the text
    code: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    id: str
    title: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def numeric(self, column: int) -> bool:
        """Whether a column holds numbers, which stand to the right in every view."""
        return any(isinstance(row[column].value, int | float) for row in self.rows)


@dataclass(frozen=True, slots=True)
class Document:
    """The JSON of a report, read by pointer."""

    json: Json

    def __getitem__(self, pointer: str) -> Any:
        """The value at a JSON pointer without escapes; None where a part of the way is null. KeyError: no such key."""
        value: Any = self.json
        for key in pointer.split("/")[1:]:
            if value is None:
                return None
            value = value[int(key)] if isinstance(value, list) else value[key]
        return value

    def number(self, at: str, form: Format, *, of: str = "") -> Cell:
        """The number at `at` (by the one at `of`), formatted."""
        value = self[at]
        if of:
            whole = self[of]
            value = value / whole if value is not None and whole else None
        return Cell(form(value), value, at, of)


def document_of(measures: Measures) -> Document:
    return Document(to_json(measures))


def words(text: object, **more: Any) -> Cell:
    shown = numbers.UNKNOWN if text is None or text == "" else str(text)
    return Cell(shown, shown, **more)


def gpu_title(gpu: Json) -> str:
    """How every view calls a GPU: by rank where it is known."""
    return f"rank {gpu['rank']}, GPU {gpu['device']}" if gpu["rank"] is not None else f"GPU {gpu['device']}"


def of_recordings(document: Document) -> list[Table]:
    """The tables of measured recordings, in the order a reader wants them; those without a row are left out."""
    makers = (summary, ledger, steps, feed, batch_gaps, host, copies, collectives, kernels, groups, recordings, doubts)
    return [table for table in (make(document) for make in makers) if table.rows]


def _gpus(document: Document) -> Iterator[tuple[str, Json, Cell]]:
    for index, gpu in enumerate(document.json["gpus"]):
        yield f"/gpus/{index}", gpu, words(gpu_title(gpu))


def summary(document: Document) -> Table:
    rows = []
    for at, gpu, name in _gpus(document):
        span = f"{at}/span_ns"
        rows.append(
            (
                name,
                document.number(span, numbers.duration),
                document.number(f"{at}/steps/count", numbers.count),
                document.number(f"{at}/steps/period_ns/p50", numbers.duration),
                document.number(f"{at}/steps/period_ns/p95", numbers.duration),
                document.number(f"{at}/steps/period_ns/max", numbers.duration),
                document.number(f"{at}/ledger_ns/compute", numbers.share, of=span),
                document.number(f"{at}/feed_gaps/p50_ns", numbers.duration),
                document.number(f"{at}/feed_gaps/p95_ns", numbers.duration),
                document.number(f"{at}/input_stall_share", numbers.share),
                document.number(f"{at}/kernels/per_step", numbers.count),
                words(gpu["steps"]["source"] or gpu["steps"]["refused"]),
            )
        )
    columns = (
        "GPU",
        "window",
        "steps",
        "step p50",
        "step p95",
        "step max",
        "computing",
        "feed gap p50",
        "feed gap p95",
    )
    return Table(
        "gpus",
        "GPUs",
        "Each GPU over its window. The feed gap is the time of a step that the GPU waits for a batch not yet sent; "
        "the input stall adds the exposed input copies.",
        (*columns, "input stall", "kernels a step", "steps from"),
        tuple(rows),
    )


def ledger(document: Document) -> Table:
    """Rows are owners, two columns a GPU; owners that own nothing on any GPU are left out."""
    gpus = list(_gpus(document))
    rows = []
    for owner in OWNERS:
        if all(gpu["ledger_ns"][owner] == 0 for _, gpu, _ in gpus):
            continue
        cells = [Cell(LOOKS[owner].label, owner, look=owner)]
        for at, _, _ in gpus:
            cells.append(document.number(f"{at}/ledger_ns/{owner}", numbers.duration))
            cells.append(document.number(f"{at}/ledger_ns/{owner}", numbers.share, of=f"{at}/span_ns"))
        rows.append(tuple(cells))
    columns = [column for _, _, name in gpus for column in (name.text, f"{name.text}, share")]
    return Table(
        "ledger",
        "Ledger",
        "Every nanosecond of the window has one owner, so a column adds up to the window. "
        "Collectives and copies own only the time that nothing before them in this list hides.",
        ("owner", *columns),
        tuple(rows),
    )


def steps(document: Document) -> Table:
    found = [
        (at, name, place) for at, gpu, name in _gpus(document) for place in range(len(gpu["steps"].get("rows") or []))
    ]
    pointers = [(f"{at}/steps/rows/{place}", name) for at, name, place in found]
    left_out = ""
    if len(pointers) > MOST_STEPS:
        longest = sorted(pointers, key=lambda one: document[f"{one[0]}/start_ns"] - document[f"{one[0]}/end_ns"])
        left_out = f" The {MOST_STEPS} longest of {len(pointers)}; --json and --parquet have all."
        pointers = longest[:MOST_STEPS]
    shown = [
        owner
        for owner in OWNERS
        if any(document[f"{at}/ledger_ns/{owner}"] for at, _ in pointers) and owner != "memset"
    ]
    rows = []
    for at, name in pointers:
        length = document[f"{at}/end_ns"] - document[f"{at}/start_ns"]
        rows.append(
            (
                name,
                document.number(f"{at}/step", numbers.count),
                Cell(numbers.duration(length), length),
                document.number(f"{at}/feed_gap_ns", numbers.duration),
                document.number(f"{at}/batch_gap_ns", numbers.duration),
                document.number(f"{at}/kernels", numbers.count),
                *(document.number(f"{at}/ledger_ns/{owner}", numbers.duration) for owner in shown),
            )
        )
    return Table(
        "steps",
        "Steps",
        "Each measured step of each GPU and where its time went." + left_out,
        ("GPU", "step", "time", "feed gap", "batch gap", "kernels", *(LOOKS[owner].label for owner in shown)),
        tuple(rows),
    )


def feed(document: Document) -> Table:
    """Batches on their way: the gaps they leave and the copies that bring them."""
    rows = []
    for at, gpu, name in _gpus(document):
        if gpu["batch_gaps"] is None and gpu["feed_gaps"] is None and not gpu["input_copies"]:
            continue
        gaps = [
            document.number(f"{at}/{which}/{key}", numbers.duration)
            for which in ("batch_gaps", "feed_gaps")
            for key in ("p50_ns", "p95_ns", "max_ns", "total_ns")
        ]
        copied = gpu["input_copies"] and [
            document.number(f"{at}/input_copies/count", numbers.count),
            document.number(f"{at}/input_copies/bytes", numbers.size),
            document.number(f"{at}/input_copies/exposed_this_step_ns", numbers.duration),
            document.number(f"{at}/input_copies/exposed_later_step_ns", numbers.duration),
            document.number(f"{at}/input_copies/overlap", numbers.share),
        ]
        rows.append((name, *gaps, *(copied or [words(None)] * 5)))
    gap = ("p50", "p95", "max", "total")
    return Table(
        "feed",
        "Feed",
        "A batch gap runs from a step's last kernel to the next one's first; the feed gap is that part of a step in "
        "which the GPU waits for a batch not yet sent. Exposed input copies stand beside it: those of the step's own "
        "batch, and those of a later step's, prefetched and yet not hidden.",
        (
            "GPU",
            *(f"batch gap {one}" for one in gap),
            *(f"feed gap {one}" for one in gap),
            *("input copies", "moved", "exposed, own step", "exposed, later step", "hidden"),
        ),
        tuple(rows),
    )


def batch_gaps(document: Document) -> Table:
    """What the batch gaps consist of. Rows are owners, a column a GPU."""
    gpus = [(at, gpu, name) for at, gpu, name in _gpus(document) if gpu["batch_gap_ledger_ns"]]
    owners = [one for one in OWNERS if any(gpu["batch_gap_ledger_ns"].get(one) for _, gpu, _ in gpus)]
    rows = [
        (
            Cell(LOOKS[owner].label, owner, look=owner),
            *(document.number(f"{at}/batch_gap_ledger_ns/{owner}", numbers.duration) for at, _, _ in gpus),
        )
        for owner in owners
    ]
    return Table(
        "batch-gaps",
        "Batch gaps",
        "Who owned the time of all batch gaps together.",
        ("owner", *(name.text for _, _, name in gpus)),
        tuple(rows),
    )


def host(document: Document) -> Table:
    """What the host's threads were in while the GPU was idle."""
    rows = []
    for gpu_at, gpu, name in _gpus(document):
        for place, one in enumerate(gpu["host_while_idle"]):
            at = f"{gpu_at}/host_while_idle/{place}"
            rows.append(
                (
                    Cell(one["name"], one["name"], code=True),
                    words({"api": "CUDA call", "range": "NVTX range"}.get(one["kind"], one["kind"])),
                    name,
                    document.number(f"{at}/ns", numbers.duration),
                    document.number(f"{at}/share", numbers.share),
                )
            )
    return Table(
        "host",
        "The host while the GPU idles",
        "Calls and ranges that were open on any thread while the GPU was idle, as shares of the idle time. Threads run "
        "side by side, so shares may add up to more than 100 %.",
        ("what", "kind", "GPU", "time", "of the idle"),
        tuple(rows),
    )


def copies(document: Document) -> Table:
    rows = []
    for gpu_at, gpu, name in _gpus(document):
        for kind, copy in gpu["copies"].items():
            if not copy or not copy["count"]:
                continue
            at = f"{gpu_at}/copies/{kind}"
            rows.append(
                (
                    name,
                    Cell(LOOKS[kind].label, kind, look=kind),
                    document.number(f"{at}/count", numbers.count),
                    document.number(f"{at}/bytes", numbers.size),
                    document.number(f"{at}/busy_ns", numbers.duration),
                    document.number(f"{at}/exposed_ns", numbers.duration),
                    document.number(f"{at}/overlap", numbers.share),
                    document.number(f"{at}/gb_per_s", numbers.gb_per_s),
                    document.number(f"{at}/pageable_share", numbers.share),
                    document.number(f"{at}/under_64kib", numbers.count),
                    document.number(f"{at}/synchronous", numbers.count),
                )
            )
    columns = ("GPU", "direction", "copies", "moved", "time", "exposed", "hidden", "bandwidth", "pageable")
    return Table(
        "copies",
        "Copies",
        "Exposed is the time that no compute or collective hides; hidden is 1 - exposed / time. "
        "Pageable memory, counted by bytes, is copied at a fraction of what pinned memory gives.",
        (*columns, "under 64 KiB", "synchronous"),
        tuple(rows),
    )


def collectives(document: Document) -> Table:
    rows = []
    for gpu_at, gpu, name in _gpus(document):
        if not gpu["collectives"] or not gpu["collectives"]["count"]:
            continue
        at = f"{gpu_at}/collectives"
        rows.append(
            (
                name,
                document.number(f"{at}/count", numbers.count),
                document.number(f"{at}/bytes_per_step", numbers.size),
                document.number(f"{at}/busy_ns", numbers.duration),
                document.number(f"{at}/exposed_ns", numbers.duration),
                document.number(f"{at}/overlap", numbers.share),
                document.number(f"{at}/waiting_ns", numbers.duration),
                document.number(f"{at}/transfer_ns", numbers.duration),
                document.number(f"{at}/skew_ns/p50", numbers.duration),
                document.number(f"{at}/skew_ns/max", numbers.duration),
                document.number(f"{at}/arrived_last_share", numbers.share),
                document.number(f"{at}/bus_gb_per_s", numbers.gb_per_s),
            )
        )
    columns = ("GPU", "calls", "a step", "time", "exposed", "hidden", "waiting", "transfer", "skew p50", "skew max")
    return Table(
        "collectives",
        "Collectives",
        "Waiting lasts until the last rank has arrived, transfer from then on; a rank that arrives last often is the "
        "straggler that the others wait for.",
        (*columns, "arrived last", "bus bandwidth"),
        tuple(rows),
    )


def kernels(document: Document) -> Table:
    rows = []
    for gpu_at, gpu, name in _gpus(document):
        for place, kernel in enumerate(gpu["kernels"]["top"]):
            at = f"{gpu_at}/kernels/top/{place}"
            total = f"{at}/total_ns"
            rows.append(
                (
                    Cell(kernel["name"], kernel["name"], code=True),
                    name,
                    document.number(f"{at}/count", numbers.count),
                    document.number(total, numbers.duration),
                    document.number(total, numbers.share, of=f"{gpu_at}/span_ns"),
                    document.number(total, numbers.duration, of=f"{at}/count"),
                )
            )
    return Table(
        "kernels",
        "Kernels",
        "The kernels that take most time on each GPU. Shares are of the window; kernels of several streams may "
        "overlap.",
        ("kernel", "GPU", "launches", "time", "share", "mean"),
        tuple(rows),
    )


def groups(document: Document) -> Table:
    rows = []
    for gpu_at, gpu, name in _gpus(document):
        for group in gpu["kernels"]["groups"]:
            at = f"{gpu_at}/kernels/groups"
            # A group's name may hold the slash that parts a JSON pointer: it is escaped as the standard says.
            total = _Part(document, at, group)
            rows.append((words(group), name, total("count", numbers.count), total("total_ns", numbers.duration)))
    return Table(
        "groups", "Kernel groups", "Kernels by what they do.", ("group", "GPU", "launches", "time"), tuple(rows)
    )


@dataclass(frozen=True, slots=True)
class _Part:
    document: Document
    at: str
    key: str

    def __call__(self, name: str, form: Format) -> Cell:
        value = self.document[self.at][self.key].get(name)
        return Cell(form(value), value, f"{self.at}/{self.key.replace('~', '~0').replace('/', '~1')}/{name}")


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
        "What this was read from.",
        ("file", "rank", "format", "tool", "schema"),
        tuple(rows),
    )


def doubts(document: Document) -> Table:
    rows = [
        (words(one["code"], code=True), words(one["text"]), words(one["next"]), words(", ".join(one["where"]) or "all"))
        for one in document.json["doubts"]
    ]
    return Table(
        "doubts",
        "Doubts",
        "What makes these numbers less than certain, and what to do about it.",
        ("code", "doubt", "do", "touches"),
        tuple(rows),
    )


def cells(rows: Sequence[Json]) -> Table:
    """The cells of a sweep: rows of summary.csv."""
    told = ("model", "ranks", "per_rank_batch", "feed", "step", "precision", "strategy", "input_dtype")
    shown = []
    for row in rows:
        shown.append(
            (
                *(words(row[key]) if isinstance(row[key], str) else Cell(str(row[key]), row[key]) for key in told),
                Cell(numbers.per_s(row["samples_per_s_global"]), row["samples_per_s_global"]),
                Cell(_interval(row["samples_per_s_low"], row["samples_per_s_high"], numbers.per_s)),
                Cell(numbers.factor(row["speedup"]), row["speedup"]),
                Cell(numbers.share(row["efficiency"]), row["efficiency"]),
                Cell(_interval(row["efficiency_low"], row["efficiency_high"], numbers.share)),
                Cell(_milliseconds(row["step_ms_p50"]), row["step_ms_p50"]),
                Cell(numbers.share(row["input_wait_share"]), row["input_wait_share"]),
                words(row["status"] if not row["reason"] else f"{row['status']}: {row['reason']}"),
            )
        )
    columns = ("throughput", "interval", "speed-up", "efficiency", "interval of it", "step p50", "input wait", "status")
    return Table(
        "cells",
        "Cells",
        "Each cell over its launches: medians, and the interval over launches. Throughput is of all ranks together; "
        "efficiency is that of N ranks by N times that of one.",
        (*(name.replace("per_rank_batch", "batch a rank").replace("_", " ") for name in told), *columns),
        tuple(shown),
    )


def _interval(low: float | None, high: float | None, form: Format) -> str:
    return numbers.UNKNOWN if low is None or high is None else f"{form(low)} to {form(high)}"


def _milliseconds(value: float | None) -> str:
    return numbers.duration(None if value is None else value * 1e6)


def clock(document: Document) -> str:
    """How ranks were brought on one clock, in words; "" for one recording."""
    told = document.json["clock"]
    if not told:
        return ""
    residual = told.get("residual_ns")
    method = {"utc": "session starts in UTC", "collectives": "common ends of collectives"}.get(told.get("method"))
    return f"{method or told.get('method', numbers.UNKNOWN)}, good to {numbers.duration(residual)}"


def straggler(document: Document) -> str:
    """Which GPU the others wait for, in words; "" where there is none."""
    found = document.json.get("straggler")
    if not found:
        return ""
    gpu = gpu_title(document.json["gpus"][found["gpu"]])
    share, since = numbers.share(found["arrived_last_share"]), numbers.duration(found["since_ns"])
    return f"The others wait for {gpu}: from {since} on it arrives last at {share} of {found['calls']:,} collectives."


def evidence(finding: Json) -> Sequence[tuple[str, str]]:
    """A finding's evidence as words and numbers, formatted by the unit that its key names."""
    return [(key.replace("_", " "), _evidence(key, value)) for key, value in finding["evidence"].items()]


def _evidence(key: str, value: Any) -> str:
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return numbers.UNKNOWN if value is None else str(value)
    if isinstance(value, (list, tuple)):
        return ", ".join(_evidence(key, one) for one in value)
    if isinstance(value, Mapping):
        # Percentiles are in the unit of what they are of.
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
