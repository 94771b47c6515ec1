"""Tables of recordings and doubts, and the list of all tables that a report can show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...ground import numbers
from ...model.measures import Trust
from .. import spoken
from . import busy, gpu_metrics, operations, places, ranks, time
from .table import Document, Json, Table, words

PERCENTILES = ("p50", "p95", "min", "median", "max")


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
