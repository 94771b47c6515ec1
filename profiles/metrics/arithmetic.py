"""FLOP/s of a GPU and the share of its peak that they are (docs/reference/measures.md, "FLOP/s and MFU")."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..gpus.operations import KERNELS, Gpu, Operations
from ..ground import intervals
from ..ground.groups import by_value
from ..ledger.account import Account
from ..model.operations import Arithmetic, Computed, Kernels
from ..model.timeline import Timeline
from . import flop_counts, kernels, operator_names, peaks
from .flop_counts import Work
from .operators import Ranges, under

Int64s = NDArray[np.int64]
SHOWN = 30
# Kernel names that show that float32 operands are rounded to tf32 for the matrix units; the shapes do not show it.
_TF32 = r"(?i)tf32|s1688(?!_f16)|xf32"


def measure(timelines: Sequence[Timeline], gpu: Gpu, books: Account, counted: Kernels) -> Arithmetic | None:
    """FLOP/s, MFU and related measures of the window; None if no kernel belongs to an operator with recorded shapes or
    to an XLA instruction whose work is known."""
    works: list[Work | None] = []
    ranges: list[Ranges | None] = []
    names: list[str] = []
    for index, pid in gpu.processes:
        found, of_calls = _calls(timelines[index], pid, len(works))
        ranges.append(found)
        works += [work for _, work in of_calls]
        names += [name for name, _ in of_calls]
    call = under(timelines, gpu, ranges)
    launched, of_launches = _launches(gpu, len(works))
    works += [work for _, work in of_launches]
    names += [name for name, _ in of_launches]
    if not works:
        return None
    call = launched if call is None else np.where(launched >= 0, launched, call)
    rows = np.flatnonzero((gpu.operations.table == KERNELS) & (call >= 0))
    rows = rows[books.window.holds(gpu.operations.start_ns[rows])]
    if not len(rows):
        return None
    lasted = gpu.operations.end_ns[rows] - gpu.operations.start_ns[rows]
    code = gpu.operations.name[rows]
    used, place = np.unique(call[rows], return_inverse=True)
    kernel_ns = intervals.summed(lasted, place, len(used))
    rounded = np.asarray(gpu.names.str.contains(_TF32, regex=True), dtype=bool)[code]
    rounds = np.bincount(place[rounded], minlength=len(used)) > 0
    peak = peaks.of(gpu.name)
    sums: dict[tuple[str, Work, str], list[int]] = {}
    for one, ns, is_rounded in zip(used.tolist(), kernel_ns.tolist(), rounds.tolist(), strict=True):
        work = works[one]
        assert work is not None
        dtype = work.dtype
        if dtype == "tf32" and (peak is None or "tf32" not in peak.flops_per_s):
            dtype = "float32"  # the compiler may allow tf32, but this GPU does not support it
        if dtype == "float32" and is_rounded:
            dtype = "tf32"
        into = sums.setdefault((names[one], work, dtype), [0, 0])
        into[0] += 1
        into[1] += ns
    rows_of = [_row(*key, calls=values[0], kernel_ns=values[1], peak=peak) for key, values in sums.items()]
    rows_of.sort(key=lambda row: (-row.kernel_ns, row.name, row.shapes))
    matrix = kernels.of_group(gpu.names, "convolution_matmul")[code]
    whole = counted.groups["convolution_matmul"]["total_ns"]
    return _summed(rows_of, books, peak, gpu.name, int(lasted[matrix].sum()) / whole if whole else None)


def _summed(
    rows: list[Computed], books: Account, peak: peaks.Peak | None, name: str | None, told: float | None
) -> Arithmetic:
    span_ns = books.window.span_ns
    by_dtype: dict[str, int] = {}
    for row in rows:
        by_dtype[row.dtype] = by_dtype.get(row.dtype, 0) + row.flops
    unknown = [dtype for dtype in by_dtype if peak is None or dtype not in peak.flops_per_s]
    reason = f"no peak FLOP/s of {name or 'a GPU without a name'} is known" if peak is None else None
    if peak is not None and unknown:
        reason = f"no peak FLOP/s of {name} is known for {', '.join(unknown)}"
    mfu = None
    if peak is not None and not unknown:
        mfu = sum(flops / peak.flops_per_s[dtype] for dtype, flops in by_dtype.items()) / (span_ns / 1e9)
    return Arithmetic(
        flops=sum(by_dtype.values()),
        flops_by_dtype=by_dtype,
        flops_per_s=sum(by_dtype.values()) / (span_ns / 1e9),
        mfu=mfu,
        mfu_unknown=reason,
        kernel_ns=sum(row.kernel_ns for row in rows),
        matrix_share=told,
        peak_flops_per_s=None if peak is None else {one: peak.flops_per_s.get(one) for one in by_dtype},
        peak_bytes_per_s=None if peak is None else peak.bytes_per_s,
        peak_source=None if peak is None else peak.source,
        rows=rows[:SHOWN],
        distinct=len(rows),
    )


def _row(name: str, work: Work, dtype: str, *, calls: int, kernel_ns: int, peak: peaks.Peak | None) -> Computed:
    seconds = kernel_ns / 1e9
    top = peak.flops_per_s.get(dtype) if peak else None
    moves = peak.bytes_per_s if peak else None
    computing, moving = (calls * work.flops / top if top else None), (calls * work.bytes / moves if moves else None)
    bound = None
    if computing is not None and moving is not None:
        bound = "compute" if computing >= moving else "memory"
    least = max(computing, moving) if computing is not None and moving is not None else None
    return Computed(
        name=name,
        shapes=work.shapes,
        dtype=dtype,
        calls=calls,
        flops=calls * work.flops,
        bytes=calls * work.bytes,
        kernel_ns=kernel_ns,
        flops_per_s=calls * work.flops / seconds if kernel_ns else None,
        of_peak=computing / seconds if computing is not None and kernel_ns else None,
        bound=bound,
        of_roof=least / seconds if least is not None and kernel_ns else None,
    )


def _launches(gpu: Gpu, first: int) -> tuple[Int64s, list[tuple[str, Work | None]]]:
    """For each operation, the number of the execution of an XLA instruction that it belongs to, from `first` on; -1:
    none. Consecutive kernels of an instruction on a stream are one execution until a kernel name repeats. In a CUDA
    graph, all kernels of an instruction in one launch of the graph are one execution."""
    operations = gpu.operations
    call = np.full(len(operations), -1, np.int64)
    told: list[tuple[str, Work | None]] = []
    for place, source in enumerate(operations.sources):
        works = [flop_counts.of_program(text) for text in source.works]
        known = np.array([*(work is not None for work in works), False])
        mine = np.flatnonzero((operations.place == place) & (operations.table == KERNELS))
        if not known.any() or not len(mine):
            continue
        rows = operations.row[mine]
        # Two instructions may have equal texts, so the operator's name tells them apart.
        text, operator = source.work_of[rows].astype(np.int64), source.operator_of[rows].astype(np.int64)
        instruction = text * (len(source.operators) + 1) + operator
        execution = _executions(operations, mine, instruction, operations.are_nodes(mine))
        execution[~known[text]] = -1
        used, at, number = np.unique(execution, return_index=True, return_inverse=True)
        call[mine] = np.where(execution >= 0, first + len(told) + number - (used[0] < 0), -1)
        for row in at[used >= 0].tolist():
            path = source.operators[operator[row]] if operator[row] >= 0 else ""
            told.append((operator_names.of_kernel(path), works[text[row]]))
    return call, told


def _executions(
    operations: Operations, mine: Int64s, instruction: Int64s, in_graph: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """A number for each kernel, the same for all kernels of one execution of an instruction; -1: not known."""
    stream, name = operations.stream[mine].astype(np.int64), operations.name[mine].astype(np.int64)
    order = np.lexsort((np.arange(len(mine)), stream))
    changes = np.diff(stream[order]).astype(bool) | np.diff(instruction[order]).astype(bool)
    run = np.empty(len(mine), np.int64)
    run[order] = np.concatenate([[0], np.cumsum(changes)])
    # `again`: the number of kernels of the same name before this one in its run.
    by_name = np.lexsort((np.arange(len(mine)), name, run))
    first = np.append(True, np.diff(run[by_name]).astype(bool) | np.diff(name[by_name]).astype(bool))
    begins = np.maximum.accumulate(np.where(first, np.arange(len(mine)), 0))
    again = np.empty(len(mine), np.int64)
    again[by_name] = np.arange(len(mine)) - begins
    launch = operations.call_row[mine].astype(np.int64)
    # In a graph the launch and the instruction identify an execution, elsewhere the run and the repetition in it.
    pairs = np.column_stack([np.where(in_graph, launch, run), np.where(in_graph, instruction, again), in_graph])
    execution = np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
    execution[in_graph & (launch < 0)] = -1
    return execution


def _calls(timeline: Timeline, pid: int, first: int) -> tuple[Ranges | None, list[tuple[str, Work | None]]]:
    """Calls of operators whose work is known, numbered from `first` on; calls inside another such call are left out."""
    table = timeline.operators[((timeline.operators["pid"] == pid) & ~timeline.operators["module"]).to_numpy()]
    if not len(table):
        return None, []
    names, inputs = (table[column].cat.categories.tolist() for column in ("name", "inputs"))
    codes = [table[column].cat.codes.to_numpy(np.int64) for column in ("name", "inputs")]
    used, place = np.unique(codes[0] * (len(inputs) + 1) + codes[1], return_inverse=True)
    told: list[tuple[str, Work | None]] = []
    for pair in used.tolist():
        of_name, of_inputs = divmod(pair, len(inputs) + 1)
        called = names[of_name] if of_name >= 0 else ""
        text = inputs[of_inputs] if of_inputs < len(inputs) else ""
        told.append((called, flop_counts.of_call(called, text)))
    known = np.flatnonzero(np.array([work is not None for _, work in told])[place])
    start, end, tid = (table[column].to_numpy()[known] for column in ("start_ns", "end_ns", "tid"))
    order = np.lexsort((-end, start, tid))
    known, start, end, tid = known[order], start[order], end[order], tid[order]
    outermost = np.ones(len(known), bool)
    for _, mine in by_value(tid):
        outermost[mine[1:]] = start[mine[1:]] >= np.maximum.accumulate(end[mine])[:-1]
    known, start, end, tid = known[outermost], start[outermost], end[outermost], tid[outermost]
    return Ranges(start, end, tid, first + np.arange(len(known))), [told[at] for at in place[known].tolist()]
