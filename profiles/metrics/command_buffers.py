"""Find the operators of kernels in XLA's CUDA graphs (docs/reference/measures.md, "XLA's CUDA graphs").

XLA launches a graph under a range, `command_buffer`, that does not name the operators in it. Before the launch it
updates the graph's commands, each under the range of its operator. XLA makes one node per command, and CUDA numbers
nodes in the order in which they are made, so node n belongs to command n. A call of a library becomes a graph inside
one node, and that node has no row in the recording. The library's operations have numbers above the last command's, and
run between the operations of the nodes before and after that node. Kernel names verify the match: XLA names a kernel
like the instruction that it was compiled from, except for the number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..gpus.operations import KERNELS, Gpu, Ints, distinct
from ..ground.groups import by_value
from ..model.timeline import Timeline
from ..model.xla_names import compiled
from .operator_names import Texts, Thunk, thunk

Int64s = NDArray[np.int64]
# Nodes are matched with commands only if this share of XLA's kernels has the name of its command's instruction.
_AGREE: Final = 0.9
# Number of launches of a graph that are searched for its commands, since XLA does not update commands at each launch.
_LAUNCHES: Final = 16
_GRAPH_BITS: Final = 32  # number of low bits of a node id that number the node; the higher bits number its graph


@dataclass(frozen=True, slots=True)
class _Thunks:
    """Ranges of XLA's executor on one thread, in order of start; an outer range comes before the ranges in it."""

    start_ns: Int64s
    end_ns: Int64s
    thunks: list[Thunk]

    def before_launch(self, called_ns: int) -> list[Thunk]:
        """The commands, in order, that were updated in the graph's range before the graph was launched at this time."""
        last = int(np.searchsorted(self.start_ns, called_ns, side="right"))
        around = last - 1
        while around >= 0 and not (self.end_ns[around] > called_ns and self.thunks[around].launches_graph):
            around -= 1
        found, until = [], 0
        for at in range(around + 1, last) if around >= 0 else ():
            if self.start_ns[at] >= until:
                found.append(self.thunks[at])
                until = int(self.end_ns[at])
        return found


def operators(timelines: Sequence[Timeline], gpu: Gpu, rows: Int64s, texts: Texts) -> tuple[Int64s, NDArray[np.bool_]]:
    """For each operation that XLA launched in a graph, its operator as an index into `texts` (-1: none), and True if a
    command named the operator, False if the kernel's name did."""
    found = _by_kernel(gpu, rows, texts)
    told = np.zeros(len(rows), np.bool_)
    nodes = gpu.operations.nodes(rows)
    for process, (index, pid) in enumerate(gpu.processes):
        mine = np.flatnonzero((gpu.operations.process[rows] == process) & (nodes != 0))
        if not len(mine):
            continue
        threads = _threads(timelines[index], pid)
        graph = nodes[mine] >> _GRAPH_BITS
        for _, of_one in by_value(graph):
            places = mine[of_one]
            commands = _of_graph(timelines[index], gpu, rows[places], nodes[places], threads)
            number = np.array([texts[commands[node]] if node in commands else -1 for node in nodes[places].tolist()])
            told[places] = number >= 0
            found[places] = np.where(number >= 0, number, found[places])
    return found, told


def _by_kernel(gpu: Gpu, rows: Int64s, texts: Texts) -> Int64s:
    """For each kernel the instruction that its name shows, as an index into `texts`; -1: none."""
    names = np.where(gpu.operations.table[rows] == KERNELS, gpu.operations.name[rows], -1)
    used, place = np.unique(names, return_inverse=True)
    said = [compiled(str(gpu.names[name])) if name >= 0 else "" for name in used.tolist()]
    return np.array([texts[one] if one else -1 for one in said], np.int64)[place]


def _threads(timeline: Timeline, pid: int) -> dict[int, _Thunks]:
    marks = timeline.marks
    said = [thunk(str(name)) for name in marks["name"].cat.categories] + [None]
    is_thunk = np.array([one is not None for one in said])
    code = marks["name"].cat.codes.to_numpy()
    rows = np.flatnonzero((marks["pid"].to_numpy() == pid) & is_thunk[code])
    start, end, tid = (marks[column].to_numpy()[rows] for column in ("start_ns", "end_ns", "tid"))
    order = np.lexsort((-end, start))
    found = {}
    for one, of_thread in by_value(tid[order]):
        mine = order[of_thread]
        thunks = [told for place in code[rows[mine]].tolist() if (told := said[place])]
        found[one] = _Thunks(start[mine], end[mine], thunks)
    return found


def _of_graph(timeline: Timeline, gpu: Gpu, rows: Int64s, nodes: Int64s, threads: dict[int, _Thunks]) -> dict[int, str]:
    """The operators of a graph's nodes, by node, from the first launch whose commands match them; {} if none does."""
    calls: Ints = gpu.operations.call_row[rows]
    called_ns, called_by = (timeline.api[column].to_numpy() for column in ("start_ns", "tid"))
    for call in distinct(calls)[:_LAUNCHES].tolist():
        thread = threads.get(int(called_by[call]))
        commands = thread.before_launch(int(called_ns[call])) if thread else []
        if commands:
            of_call = calls == call
            if found := _matched(gpu, rows[of_call], nodes[of_call], commands):
                return found
    return {}


def _matched(gpu: Gpu, rows: Int64s, nodes: Int64s, commands: list[Thunk]) -> dict[int, str]:
    """The operators of the nodes of one launch, by node; {} if too many kernel names differ from their commands'. rows,
    nodes: the launch's operations in order of start, and their nodes."""
    number = nodes & ((1 << _GRAPH_BITS) - 1)
    is_kernel = gpu.operations.table[rows] == KERNELS
    own = np.flatnonzero(number < len(commands))
    found: dict[int, str] = {}
    alike = compared = 0
    for at in own.tolist():
        command = commands[number[at]]
        said = compiled(str(gpu.names[gpu.operations.name[rows[at]]])) if is_kernel[at] else command.kernel
        compared += bool(is_kernel[at] and (said or command.kernel))
        alike += bool(is_kernel[at] and said and said == command.kernel)
        if said == command.kernel:
            found[int(nodes[at])] = command.operator
    if alike < max(1, _AGREE * compared):
        return {}
    in_order = bool((np.diff(number[own]) > 0).all()) and len(distinct(gpu.operations.stream[rows])) == 1
    return found | (_of_libraries(nodes, number, own, commands) if in_order else {})


def _of_libraries(nodes: Int64s, number: Int64s, own: Int64s, commands: list[Thunk]) -> dict[int, str]:
    """The operators of operations that library calls launched, by node. An operation belongs to one of the commands
    between those of the nodes before and after it; the operation is left out if these commands have several
    operators."""
    found = {}
    around = np.concatenate([[-1], number[own], [len(commands)]]).tolist()
    for at in np.flatnonzero(number >= len(commands)).tolist():
        before = int(np.searchsorted(own, at))
        possible = {command.operator for command in commands[around[before] + 1 : around[before + 1]]}
        if len(possible) == 1:
            found[int(nodes[at])] = possible.pop()
    return found
