"""Tables of where the time went: GPUs, ledger, steps, feed, gaps, and host activity in idle time."""

from __future__ import annotations

from ...ground import numbers
from ...model.measures import OWNERS
from .. import spoken
from ..palette import OWNERS as LOOKS
from .table import Cell, Document, Field, Json, Table, each_gpu, titles, words

GAPS: tuple[Field, ...] = (
    ("steps with one", "count", numbers.count),
    ("p50", "p50_ns", numbers.duration),
    ("p95", "p95_ns", numbers.duration),
    ("max", "max_ns", numbers.duration),
    ("total", "total_ns", numbers.duration),
)
MOST_GAPS = 20
MOST_STEPS = 200  # if there are more steps, the longest are shown; the JSON and the Parquet file hold all


def what_if(document: Document) -> Table:
    rows = []
    for at, gpu, name in each_gpu(document):
        for place, one in enumerate(gpu["what_if"]):
            look = LOOKS.get(one["owner"])
            here = f"{at}/what_if/{place}"
            rows.append(
                (
                    name,
                    words(look.label, look=one["owner"]) if look else words("all of these"),
                    document.number(f"{here}/span_ns", numbers.duration),
                    document.number(f"{here}/at_most_gain", numbers.gain),
                )
            )
    return Table(
        "what-if",
        "What if this time were gone",
        "The shortest that the window could be without one kind of time (copies, idle, ...), and without all these "
        "kinds. The window cannot be shorter than the work of the busiest resource that remains, so each gain is an "
        "upper bound.",
        ("GPU", "without", "window", "throughput, at most"),
        tuple(rows),
    )


OF_STEPS: tuple[Field, ...] = (
    ("window", "span_ns", numbers.duration),
    ("steps", "steps/count", numbers.count),
    ("step p50", "steps/period_ns/p50", numbers.duration),
    ("step p95", "steps/period_ns/p95", numbers.duration),
    ("step max", "steps/period_ns/max", numbers.duration),
)
OF_FEEDS: tuple[Field, ...] = (
    ("feed gap p50", "feed_gaps/p50_ns", numbers.duration),
    ("feed gap p95", "feed_gaps/p95_ns", numbers.duration),
    ("input stall", "input_stall_share", numbers.share),
    ("kernels per step", "kernels/per_step", numbers.count),
)


def summary(document: Document) -> Table:
    rows = []
    for at, gpu, name in each_gpu(document):
        computing = document.number(f"{at}/ledger_ns/compute", numbers.share, of=f"{at}/span_ns")
        cells = (*document.numbers(at, OF_STEPS), computing, *document.numbers(at, OF_FEEDS))
        rows.append((name, *cells, words(_source(gpu["steps"])), words(_left_out(gpu["steps"]))))
    refused = dict.fromkeys(reason for _, gpu, _ in each_gpu(document) if (reason := gpu["steps"]["refused"]))
    return Table(
        "gpus",
        "GPUs",
        "Each GPU over its window. The feed gap is the time in which the GPU waits for a batch that the host has not "
        "sent yet. The input stall is the sum of feed gap and exposed input copies."
        + "".join(f" No steps were found: {reason}." for reason in refused),
        ("GPU", *titles(OF_STEPS), "computing", *titles(OF_FEEDS), "steps from", "left out"),
        tuple(rows),
    )


def _source(steps: Json) -> str:
    repeats = steps["repeats"]
    none = f"none; kernels repeat every {numbers.duration(repeats['period_ns'])}" if repeats else "none"
    return steps["source"] or none


def _left_out(steps: Json) -> str:
    """The steps that are not measured, such as `2 warm-up, 1 partial`."""
    kinds = (("warm_up", "warm-up"), ("partial", "partial"), ("breaks", "breaks"))
    return ", ".join(f"{steps[key]} {what}" for key, what in kinds if steps[key]) or "none"


def ledger(document: Document) -> Table:
    """The table with a row per owner and two columns (time, share) per GPU. Owners without time on any GPU are left
    out."""
    gpus = list(each_gpu(document))
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
        "Every nanosecond of the window has one owner, so a column adds up to the window. While several kinds of work "
        "run at once, the highest in this list is the owner.",
        ("owner", *columns),
        tuple(rows),
    )


def steps(document: Document) -> Table:
    pointers = [
        (f"{at}/steps/rows/{place}", name)
        for at, gpu, name in each_gpu(document)
        for place in range(len(gpu["steps"].get("rows") or []))
    ]
    left_out = ""
    if len(pointers) > MOST_STEPS:
        longest = sorted(pointers, key=lambda one: document[f"{one[0]}/start_ns"] - document[f"{one[0]}/end_ns"])
        left_out = f" Shown are the {MOST_STEPS} longest of {len(pointers)} steps; --json and --parquet have all."
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
    """The table of each GPU's batch gaps and feed gaps: number of steps with a gap, percentiles and total."""
    rows = []
    for at, gpu, name in each_gpu(document):
        for kind in ("batch_gaps", "feed_gaps"):
            if gpu[kind] is not None:
                rows.append((name, words(kind.replace("_gaps", " gap")), *document.numbers(f"{at}/{kind}", GAPS)))
    return Table(
        "feed",
        "Feed gaps",
        "A batch gap lasts from the last kernel of a step to the first kernel of the next step. The feed gap is the "
        "part of a step in which the GPU waits for a batch that the host has not sent yet. Percentiles include steps "
        "without a gap.",
        ("GPU", "gap", *titles(GAPS)),
        tuple(rows),
    )


INPUTS: tuple[Field, ...] = (
    ("copies", "count", numbers.count),
    ("moved", "bytes", numbers.size),
    ("time", "busy_ns", numbers.duration),
    ("exposed, own step", "exposed_this_step_ns", numbers.duration),
    ("exposed, later step", "exposed_later_step_ns", numbers.duration),
    ("hidden", "overlap", numbers.share),
)


def inputs(document: Document) -> Table:
    """The table of the copies that bring batches to each GPU."""
    rows = [
        (name, *document.numbers(f"{at}/input_copies", INPUTS))
        for at, gpu, name in each_gpu(document)
        if gpu["input_copies"]
    ]
    return Table(
        "inputs",
        "Input copies",
        "Exposed copies are split by batch: the batch that the step waits for, and a later batch, which was "
        "prefetched but not while other work ran.",
        ("GPU", *titles(INPUTS)),
        tuple(rows),
    )


def batch_gaps(document: Document) -> Table:
    """The table of the owners' time in all batch gaps: a row per owner, a column per GPU."""
    gpus = [(at, gpu, name) for at, gpu, name in each_gpu(document) if gpu["batch_gap_ledger_ns"]]
    owners = [one for one in OWNERS if any(gpu["batch_gap_ledger_ns"].get(one) for _, gpu, _ in gpus)]
    rows = [
        (
            Cell(LOOKS[owner].label, owner, look=owner),
            *(
                document.number(f"{at}/batch_gap_ledger_ns/{owner}", numbers.duration)
                if owner in gpu["batch_gap_ledger_ns"]  # None if the recording does not show who owned the time
                else Cell(numbers.duration(None))
                for at, gpu, _ in gpus
            ),
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


def idle_gaps(document: Document) -> Table:
    """The table of the longest idle gaps over all GPUs: their causes, the operation that ended each gap, and what the
    host did meanwhile."""
    found = [
        (f"{at}/idle_gaps/{place}", index, gap, name)
        for index, (at, gpu, name) in enumerate(each_gpu(document))
        for place, gap in enumerate(gpu["idle_gaps"])
    ]
    found.sort(key=lambda one: -one[2]["ns"])
    rows = []
    for at, index, gap, name in found[:MOST_GAPS]:
        window = document.json["gpus"][index]["window_ns"]
        start, cause = gap["start_ns"] - window[0], next(iter(gap["causes_ns"]), "idle_unknown")
        ended = _ender(gap)
        size = f", {numbers.size(gap['bytes'])}" if gap["bytes"] else ""
        rows.append(
            (
                Cell(numbers.duration(start), start, when=(index, gap["start_ns"], gap["start_ns"] + gap["ns"])),
                document.number(f"{at}/ns", numbers.duration),
                name,
                words("" if gap["step"] is None else gap["step"]),
                Cell(LOOKS[cause].label, cause, look=cause),
                Cell(ended + size, ended, code=True),
                Cell(gap["call"] or numbers.UNKNOWN, gap["call"], code=bool(gap["call"])),
                words(_meanwhile(gap)),
            )
        )
    return Table(
        "idle-gaps",
        "The longest gaps",
        "Times in which nothing ran on a GPU. When: time since the window's start; click it to see the gap in the "
        "timeline. The host: calls, ranges and operators that were under way, each with its share of the gap.",
        ("when", "how long", "GPU", "step", "cause", "ended by", "launched by", "the host meanwhile"),
        tuple(rows),
    )


def _ender(gap: Json) -> str:
    if gap["name"]:
        return spoken.name(gap["name"])
    return LOOKS[gap["ended_by"]].label if gap["ended_by"] else "the window's end"


def _meanwhile(gap: Json) -> str:
    return "; ".join(f"{spoken.name(one['name'])} {numbers.share_of(one['ns'], gap['ns'])}" for one in gap["host"])


def host(document: Document) -> Table:
    """The table of ranges and calls that the host's threads were in while the GPU was idle."""
    rows = []
    for gpu_at, gpu, name in each_gpu(document):
        for place, one in enumerate(gpu["host_while_idle"]):
            at = f"{gpu_at}/host_while_idle/{place}"
            rows.append(
                (
                    Cell(spoken.name(one["name"]), one["name"], code=True),
                    words({"api": "CUDA call", "range": "NVTX range"}.get(one["kind"], one["kind"])),
                    name,
                    document.number(f"{at}/ns", numbers.duration),
                    document.number(f"{at}/share", numbers.share),
                )
            )
    return Table(
        "host",
        "The host while the GPU idles",
        "Calls and ranges that were open on any thread while the GPU was idle, as shares of the idle time. Several "
        "may be open at once, so shares may add up to more than 100 %.",
        ("what", "kind", "GPU", "time", "of the idle"),
        tuple(rows),
    )
