"""Divide a GPU's time by operator and layer (docs/reference/measures.md, "Operators and layers").

A kernel belongs to the operator that the recording itself names, else to the innermost range that was open on the
thread of its launch call when the call began. Idle time belongs to the operator of the operation that ended it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..gpus.operations import KERNELS, Gpu, Operations
from ..ground import intervals
from ..ground.groups import by_value, rows_by_value
from ..ground.intervals import Nested
from ..ledger.account import Account
from ..ledger.ownership import is_idle
from ..model import paths
from ..model.analysed import Ownership
from ..model.operations import NamedOperator, Operators
from ..model.timeline import Timeline
from ..model.xla_names import COMMAND_BUFFER, compiled
from . import command_buffers, operator_names
from .operator_names import Texts
from .owned import owned_ns

if TYPE_CHECKING:
    import pandas as pd

Int64s = NDArray[np.int64]
# For each operation of a GPU the index of its operator's name in the list, -1 for none; None if none has a name.
Found: TypeAlias = "tuple[Int64s | None, list[str]]"
SHOWN = 100
_ALL = slice(None)
_NONE = np.empty(0, np.int64)
_BLOCK = 1 << 17  # operations processed at a time, so that they fit into the CPU's cache
# Ranges of PyTorch that are listed as layers although they are not modules.
_BESIDE_MODULES = r"Optimizer\.(?:step|zero_grad)#.*"


@dataclass(frozen=True, slots=True)
class Ranges:
    """Ranges of one process's threads, int64[n] ns on its recording's clock; name: index in a list of names."""

    start_ns: Int64s
    end_ns: Int64s
    tid: Int64s
    name: Int64s


def measure(
    timelines: Sequence[Timeline], gpu: Gpu, books: Account
) -> tuple[Operators | None, Operators | None, dict[str, str]]:
    """Operators, layers, and the path of the operator for each kernel name that XLA made.

    Operators are None if no operation was launched under a named operator; layers likewise."""
    if any(source.operators for source in gpu.operations.sources):
        source, operators = "kernels", _of_kernels(gpu.operations)
        hidden = _in_graphs(gpu.operations, operators)
    else:
        source = "operators" if any(len(timelines[index].operators) for index, _ in gpu.processes) else "ranges"
        operators, hidden = _opened(timelines, gpu, _named(timelines, gpu, _ranges))
    layers = _named(timelines, gpu, _module_ranges) if source == "operators" else _renamed(operators, paths.layer)
    by_operator, by_layer = (_summed(source, gpu, books, named, hidden) for named in (operators, layers))
    return by_operator, by_layer, _paths(gpu, operators)


def _paths(gpu: Gpu, named: Found) -> dict[str, str]:
    """Kernel name -> the path that takes most of the kernel's time, for kernels that XLA compiled."""
    found, names = named
    is_path = np.array(["/" in name for name in names] + [False])
    if found is None or not is_path.any():
        return {}
    rows = np.flatnonzero((gpu.operations.table == KERNELS) & is_path[found])
    pairs, place = np.unique(gpu.operations.name[rows].astype(np.int64) * len(names) + found[rows], return_inverse=True)
    total = _sums(place, gpu.operations.end_ns[rows] - gpu.operations.start_ns[rows], max(1, len(pairs)))
    told: dict[str, str] = {}
    for at in np.argsort(-total, kind="stable").tolist() if len(pairs) else ():
        kernel, path = divmod(int(pairs[at]), len(names))
        if compiled(str(gpu.names[kernel])):
            told.setdefault(str(gpu.names[kernel]), names[path])
    return told


def _named(timelines: Sequence[Timeline], gpu: Gpu, ranges: Callable[[Timeline, int, Texts], Ranges | None]) -> Found:
    texts = Texts()
    by_process = [ranges(timelines[index], pid, texts) for index, pid in gpu.processes]
    return under(timelines, gpu, by_process), list(texts)


def _opened(timelines: Sequence[Timeline], gpu: Gpu, named: Found) -> tuple[Found, Int64s]:
    """`named` completed by the operators of kernels in XLA's CUDA graphs, and the rows of kernels in them whose
    operator is unknown."""
    found, names = named
    if found is None or COMMAND_BUFFER not in names:
        return named, _NONE
    texts = Texts({name: number for number, name in enumerate(names)})
    inside = np.flatnonzero(found == texts[COMMAND_BUFFER])
    found[inside], told = command_buffers.operators(timelines, gpu, inside, texts)
    return (found, list(texts)), inside[~told]


def _in_graphs(operations: Operations, named: Found) -> Int64s:
    """Kernels of CUDA graphs for which the recording has no path of an operator, int64[n] rows."""
    found, names = named
    has_path = np.array(["/" in name for name in names] + [False])
    return _NONE if found is None else np.flatnonzero(operations.are_nodes(_ALL) & ~has_path[found])


def under(timelines: Sequence[Timeline], gpu: Gpu, ranges: Sequence[Ranges | None]) -> Int64s | None:
    """For each operation of the GPU the `name` of the innermost range in which it was launched, -1 for none.

    `ranges`: one entry per process of the GPU. Returns None if there are no ranges at all."""
    if not any(one is not None and len(one.start_ns) for one in ranges):
        return None
    operations = gpu.operations
    found = np.full(len(operations), -1, np.int64)
    for process, ((index, _), of_process) in enumerate(zip(gpu.processes, ranges, strict=True)):
        if of_process is None or process in gpu.off_clock:
            continue
        called_ns, called_by = (timelines[index].api[column].to_numpy() for column in ("start_ns", "tid"))
        threads = dict(by_value(of_process.tid))
        nested = {tid: Nested(of_process.start_ns[rows], of_process.end_ns[rows]) for tid, rows in threads.items()}
        for first in range(0, len(operations), _BLOCK):
            block = slice(first, first + _BLOCK)
            mine = first + np.flatnonzero(operations.launched[block] & (operations.process[block] == process))
            call = operations.call_row[mine]
            for one, rows in by_value(called_by[call]):
                if one in threads:
                    at = nested[one].innermost(called_ns[call[rows]])
                    inside = at >= 0
                    found[mine[rows[inside]]] = of_process.name[threads[one][at[inside]]]
    return found


def _of_kernels(operations: Operations) -> Found:
    """Operators of kernels for which the recording itself holds the operator."""
    texts = Texts()
    found = np.full(len(operations), -1, np.int64)
    for place, source in enumerate(operations.sources):
        number = [texts[operator_names.of_kernel(text)] if text else -1 for text in source.operators]
        mine = np.flatnonzero((operations.place == place) & (operations.table == KERNELS))
        if number:
            found[mine] = np.array([*number, -1])[source.operator_of[operations.row[mine]]]
    return found, list(texts)


def _ranges(timeline: Timeline, pid: int, texts: Texts) -> Ranges | None:
    """The operators of a process, modules left out, and its marked ranges whose names are those of operators."""
    marks = timeline.marks
    rows = np.flatnonzero(marks["pid"].to_numpy() == pid)
    names, domains = (marks[column].cat.categories.tolist() for column in ("name", "domain"))
    pairs = marks["domain"].cat.codes.to_numpy(np.int64)[rows] * (len(names) + 1)
    pairs += marks["name"].cat.codes.to_numpy()[rows]
    used, place = np.unique(pairs, return_inverse=True)
    told = [
        operator_names.of_range(_text(names, pair % (len(names) + 1)), _text(domains, pair // (len(names) + 1)))
        for pair in used.tolist()
    ]
    number = np.array([texts[text] if text else -1 for text in told] or [-1])
    named = number[place] if len(rows) else np.empty(0, np.int64)
    own = timeline.operators
    mine = np.flatnonzero((own["pid"].to_numpy() == pid) & ~own["module"].to_numpy())
    own_names = np.array([texts[str(text)] for text in own["name"].cat.categories] or [-1])
    called = own_names[own["name"].cat.codes.to_numpy()[mine]]
    return _together((marks, rows[named >= 0], named[named >= 0]), (own, mine, called))


def _text(texts: list[str], place: int) -> str:
    return texts[place] if 0 <= place < len(texts) else ""


def _together(*parts: tuple[pd.DataFrame, Int64s | slice, Int64s]) -> Ranges | None:
    """One set of ranges from these rows of several tables, with their names; None if there are no rows."""
    if not any(len(names) for _, _, names in parts):
        return None
    start, end, tid = (
        np.concatenate([table[column].to_numpy()[rows] for table, rows, _ in parts])
        for column in ("start_ns", "end_ns", "tid")
    )
    return Ranges(start, end, tid, np.concatenate([names for _, _, names in parts]))


def _module_ranges(timeline: Timeline, pid: int, texts: Texts) -> Ranges | None:
    """Ranges of modules and optimisers, and backward operators under the name of the module of their forward operator.
    Autograd gives a backward operator the sequence number of its forward operator."""
    operators = timeline.operators[(timeline.operators["pid"] == pid).to_numpy()]
    modules = operators[operators["module"].to_numpy()]
    if not len(modules):
        return None
    names = np.array([texts[str(text)] for text in modules["name"].cat.categories])[modules["name"].cat.codes]
    beside = timeline.marks[(timeline.marks["pid"] == pid).to_numpy()]
    beside = beside[beside["name"].astype(str).str.fullmatch(_BESIDE_MODULES).to_numpy(bool)]
    back, layer = _backward(operators[~operators["module"].to_numpy()], modules, names)
    steps = np.array([texts[text] for text in beside["name"].astype(str)], np.int64)
    return _together((modules, _ALL, names), (back, _ALL, layer), (beside, _ALL, steps))


def _backward(operators: pd.DataFrame, modules: pd.DataFrame, names: Int64s) -> tuple[pd.DataFrame, Int64s]:
    """Backward operators, and for each the module in which the last forward operator with its sequence number ran."""
    numbered = operators[operators["sequence"].to_numpy() >= 0]
    back = numbered[numbered["backward"].to_numpy()]
    forth = numbered[~numbered["backward"].to_numpy()].sort_values("start_ns").drop_duplicates("sequence", keep="last")
    layer = np.full(len(forth), -1)
    modules_of = rows_by_value(modules["tid"].to_numpy())
    for tid, rows in by_value(forth["tid"].to_numpy()):
        inside = modules_of[tid]
        around = Nested(modules["start_ns"].to_numpy()[inside], modules["end_ns"].to_numpy()[inside])
        found = around.innermost(forth["start_ns"].to_numpy()[rows])
        layer[rows[found >= 0]] = names[inside[found[found >= 0]]]
    order = np.argsort(forth["sequence"].to_numpy())
    numbers = forth["sequence"].to_numpy()[order]
    place = np.minimum(np.searchsorted(numbers, back["sequence"].to_numpy()), max(len(numbers) - 1, 0))
    if not len(numbers):
        return back[:0], layer[:0]
    of_back = np.where(numbers[place] == back["sequence"].to_numpy(), layer[order][place], -1)
    return back[of_back >= 0], of_back[of_back >= 0]


def _renamed(named: Found, rename: Callable[[str], str | None]) -> Found:
    found, names = named
    texts = Texts()
    number = np.array([texts[new] if (new := rename(name)) else -1 for name in names] + [-1])
    return (None if found is None or not texts else number[found]), list(texts)


def _summed(source: str, gpu: Gpu, books: Account, named: Found, hidden: Int64s) -> Operators | None:
    """Sum time and kernels by name; operations without a name go to the last bin. None if none has a name. hidden: rows
    of operations whose operator is not known because they ran in a CUDA graph."""
    found, names = named
    if found is None or not (found >= 0).any():
        return None
    bins = len(names) + 1
    kernels = np.flatnonzero(gpu.operations.table == KERNELS)
    kernels = kernels[books.window.places(gpu.operations.start_ns[kernels])]
    lasted = gpu.operations.end_ns[kernels] - gpu.operations.start_ns[kernels]
    count, total = np.bincount(found[kernels] % bins, minlength=bins), _sums(found[kernels], lasted, bins)
    owned = np.zeros(bins, np.int64)
    in_graphs = np.zeros(len(gpu.operations), np.bool_)
    in_graphs[hidden] = True
    hidden_ns = 0
    for rows, ns in owned_ns(gpu.operations, books.ownership, books.window):
        owned += _sums(found[rows], ns, bins)
        hidden_ns += int(ns[in_graphs[rows]].sum())
    idle = _idle(gpu.operations, books.ownership, found, bins)
    if int(idle.sum()) != _idle_total(books.ownership):
        raise AssertionError("the idle time of the operators does not sum to the ledger's")
    order = np.argsort(-(owned + idle)[:-1], kind="stable").tolist()
    order = [at for at in order if count[at] or owned[at] or idle[at]]

    def row(name: str, places: list[int]) -> NamedOperator:
        return NamedOperator(name, *(int(values[places].sum()) for values in (count, total, owned, idle)))

    return Operators(
        source=source,
        rows=[row(names[at], [at]) for at in order[:SHOWN]],
        distinct=len(order),
        others=row("", order[SHOWN:]),
        unknown=row("", [bins - 1]),
        in_graphs_ns=hidden_ns,
    )


def _idle(operations: Operations, ownership: Ownership, found: Int64s, bins: int) -> Int64s:
    """ns of idle time by the name of the operation that ended it, int64[bins]."""
    lasting = np.flatnonzero(operations.end_ns > operations.start_ns)
    start = operations.start_ns[lasting]
    ns = np.zeros(bins, np.int64)
    for first in range(0, len(ownership.owner), _BLOCK):
        block = slice(first, first + _BLOCK)
        idle = np.flatnonzero(is_idle(ownership.owner[block])) + first
        ender = np.searchsorted(start, ownership.start_ns[idle], side="right")
        name = np.where(ender < len(lasting), found[lasting[np.minimum(ender, len(lasting) - 1)]], -1)
        ns += _sums(name, ownership.end_ns[idle] - ownership.start_ns[idle], bins)
    return ns


def _idle_total(ownership: Ownership) -> int:
    idle = is_idle(ownership.owner)
    return int((ownership.end_ns[idle] - ownership.start_ns[idle]).sum())


def _sums(name: Int64s, values: Int64s, bins: int) -> Int64s:
    """ns per name, int64[bins]; -1, no name, is the last bin."""
    return intervals.summed(values, name % bins, bins)
