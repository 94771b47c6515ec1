"""One program recorded twice, its CUDA graphs as a whole and node by node; each beside plain SQL and a bitmap.

The two are runs of their own, so times differ; what the program did does not: counts, bytes and steps are equal.
"""

from __future__ import annotations

import bisect
from functools import cache

import numpy as np
import pytest

from profiles import measure, read
from profiles.model.measures import CLASSES
from tests.recordings import DATA, rows

KINDS = ("graph", "node")
COPY_KIND = {1: "h2d", 2: "d2h", 8: "d2d", 10: "p2p"}
STEPS = "NVTX_EVENTS n JOIN StringIds s ON s.id = n.textId WHERE s.value LIKE 'step %'"
IN_GRAPH = "graphNodeId IS NOT NULL AND graphNodeId != 0"


def path(kind: str):
    return DATA / f"cnn-1gpu-{kind}.rank0.sqlite.xz"


@cache
def measured(kind: str, window: str):
    return measure(read(path(kind)), window=window)


def table(kind: str, name: str) -> list[tuple]:
    """start, end, correlation, of kernels or graphs; none where the recording has no such table."""
    there = rows(path(kind), f"SELECT 1 FROM sqlite_master WHERE name = 'CUPTI_ACTIVITY_KIND_{name}'")
    return rows(path(kind), f"SELECT start, end, correlationId FROM CUPTI_ACTIVITY_KIND_{name}") if there else []


def spans(kind: str) -> dict[str, list[tuple[int, int]]]:
    """class -> (start, end) of its operations, as the file's rows tell; the program has no collectives."""
    found = {name: [] for name in CLASSES}
    found["compute"] = [row[:2] for name in ("KERNEL", "GRAPH_TRACE") for row in table(kind, name)]
    found["memset"] = [row[:2] for row in table(kind, "MEMSET")]
    for start, end, copied in rows(path(kind), "SELECT start, end, copyKind FROM CUPTI_ACTIVITY_KIND_MEMCPY"):
        found[COPY_KIND[copied]].append((start, end))
    return found


def painted(kind: str, window: tuple[int, int]) -> dict[str, int]:
    """ns of the window by class, one entry of a bitmap a nanosecond, the classes painted over each other."""
    owner = np.full(window[1] - window[0], len(CLASSES), np.int8)
    for number, name in reversed(list(enumerate(CLASSES))):
        for start, end in spans(kind)[name]:
            owner[max(start - window[0], 0) : max(end - window[0], 0)] = number
    counts = np.bincount(owner, minlength=len(CLASSES) + 1).tolist()
    return dict(zip((*CLASSES, "idle"), counts, strict=True))


def first_kernels(kind: str) -> list[int]:
    """When the first kernel or graph of each marked step started, by the last mark before its launch call."""
    begun = [start for (start,) in rows(path(kind), f"SELECT start FROM {STEPS} ORDER BY start")]
    calls = dict(rows(path(kind), "SELECT correlationId, start FROM CUPTI_ACTIVITY_KIND_RUNTIME ORDER BY start DESC"))
    first: dict[int, int] = {}
    for start, _, correlation in sorted(table(kind, "KERNEL") + table(kind, "GRAPH_TRACE")):
        first.setdefault(bisect.bisect_left(begun, calls[correlation]) - 1, start)
    return [first[number] for number in range(len(begun))]


@pytest.mark.parametrize("window", ["capture", "steps"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_ledger_is_that_of_a_bitmap_painted_from_the_rows(kind: str, window: str):
    (gpu,) = measured(kind, window).gpus
    everything = [span for of_class in spans(kind).values() for span in of_class]
    if window == "capture":
        assert gpu.window_ns == [min(start for start, _ in everything), max(end for _, end in everything)]
    expected = painted(kind, (gpu.window_ns[0], gpu.window_ns[1]))
    assert {name: gpu.ledger_ns[name] for name in CLASSES} == {name: expected[name] for name in CLASSES}
    idle = [ns for name, ns in gpu.ledger_ns.items() if name.startswith("idle")]
    assert sum(ns for ns in idle if ns is not None) == expected["idle"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_steps_are_those_of_the_marks(kind: str):
    (gpu,) = measured(kind, "steps").gpus
    ((last_end,),) = rows(path(kind), f"SELECT MAX(end) FROM {STEPS}")
    starts = first_kernels(kind)
    assert [row.start_ns for row in gpu.steps.rows] == starts
    assert [row.end_ns for row in gpu.steps.rows] == [*starts[1:], last_end]
    assert [row.step for row in gpu.steps.rows] == list(range(10, 22))
    assert (gpu.steps.source, gpu.steps.count, gpu.steps.warm_up, gpu.steps.partial) == ("marks", 12, 0, 0)


def test_both_ways_tell_of_one_program():
    graph, node = (measured(kind, "capture").gpus[0] for kind in KINDS)
    assert graph.kernels.graph_nodes == 0 and node.kernels.graph_launches == 0
    # A launch of a graph is one row of the one and one launch call of all its nodes in the other.
    nodes = f"FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE {IN_GRAPH}"
    ((launches,),) = rows(path("node"), f"SELECT COUNT(DISTINCT correlationId) {nodes}")
    assert graph.kernels.graph_launches == launches > 0
    # Kernels outside of graphs are the same, inside they are told by node only.
    assert node.kernels.count - node.kernels.graph_nodes == graph.kernels.count
    assert node.kernels.graph_nodes > 3 * graph.kernels.count
    for name in ("count", "bytes", "pageable_share"):
        assert getattr(graph.copies["h2d"], name) == getattr(node.copies["h2d"], name)
    assert graph.busy_ns["d2h"] == node.busy_ns["d2h"] == graph.busy_ns["collective"] == 0


def test_a_graph_as_a_whole_is_compute_with_all_that_is_in_it():
    """Copies inside a graph are d2d by node and compute by graph; the gaps between nodes go the same way."""
    graph, node = (measured(kind, "capture").gpus[0] for kind in KINDS)
    d2d = "FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE copyKind = 8"
    ((outside,),) = rows(path("node"), f"SELECT COUNT(*) {d2d} AND COALESCE(graphNodeId, 0) = 0")
    assert graph.copies["d2d"].count == outside < node.copies["d2d"].count
    within = {"compute", "d2d", "memset"}
    by_graph, by_node = (sum(gpu.ledger_ns[name] for name in within) for gpu in (graph, node))
    launched: dict[int, list[int]] = {}
    for name in ("KERNEL", "MEMCPY", "MEMSET"):
        sql = f"SELECT correlationId, start, end FROM CUPTI_ACTIVITY_KIND_{name} WHERE {IN_GRAPH}"
        for correlation, start, end in rows(path("node"), sql):
            launched.setdefault(correlation, []).extend((start, end))
    reach = sorted((min(times), max(times)) for times in launched.values())
    alone = [row[:2] for row in table("node", "KERNEL") + table("node", "MEMSET")]
    owner = np.zeros(node.span_ns, bool)
    for start, end in reach + alone:
        owner[start - node.window_ns[0] : end - node.window_ns[0]] = True
    as_wholes = int(owner.sum())
    assert by_node < as_wholes
    assert abs(as_wholes - by_graph) < 0.1 * by_graph  # two runs


def test_the_doubt_of_graphs_as_wholes_is_raised_on_that_recording_only():
    raised = {kind: {doubt.code: doubt for doubt in measured(kind, "steps").doubts} for kind in KINDS}
    assert "graph-level-recording" not in raised["node"]
    doubt = raised["graph"]["graph-level-recording"]
    assert doubt.text.startswith("156 CUDA graph launches") and "--cuda-graph-trace=node" in doubt.next
    assert {"/gpus/0/ledger_ns/d2d", "/gpus/0/ledger_ns/memset", "/gpus/0/ledger_ns/compute"} <= set(doubt.where)
