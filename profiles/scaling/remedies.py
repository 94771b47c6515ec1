"""Name changes that make a batch fit into memory, and estimate the bytes that each would save on a rank.

The estimates use recorded facts of the model: its parameters, the optimizer's state, and the slope of measured memory
over the batch, which is the memory of activations, their gradients and the input per sample. Each estimate is for one
change alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..runs.cell import Cell
from ..runs.records import Run
from .search import Line, Try, long_line

PARTS = 2  # least number of GPUs of a split or sharded model
LEAST_SHARE = 0.001  # share of the memory that the batch needs; smaller savings are left out
HALF = 0.5  # size of float16 and bfloat16 relative to float32
BYTES_OF_HALF = 2


@dataclass(frozen=True, slots=True)
class Known:
    """Facts of a model on one rank; None if no run recorded them."""

    line: Line | None = None  # memory as a line over batch
    parameters: int | None = None
    trainable_bytes: int | None = None
    optimizer_bytes: int | None = None
    layers: int | None = None

    @property
    def weights_bytes(self) -> int | None:
        """Bytes of weights, their gradients and the optimizer's state; None if not known."""
        if self.trainable_bytes is None or self.optimizer_bytes is None:
            return None
        return 2 * self.trainable_bytes + self.optimizer_bytes


@dataclass(frozen=True, slots=True)
class Remedy:
    """One change. saves_bytes: memory saved on a rank; None if not known, with the reason in `how`."""

    code: str
    option: str  # ringscope's options, or code to write
    how: str  # what the change saves, in words
    saves_bytes: int | None
    needs_bytes: int | None  # memory of the batch after the change
    enough: bool | None  # True if the batch then fits; None: not known


def memory_of(run: Run) -> int | None:
    """Largest memory peak of a launch's ranks, in bytes: of the GPU or, without a GPU, of the host; None if no peak was
    recorded."""
    peaks = [peak for rank in run.ranks for peak in rank.extra.get("memory_peak_bytes") or ()]
    peaks = peaks or [
        rank.extra["host_memory_peak_bytes"] for rank in run.ranks if "host_memory_peak_bytes" in rank.extra
    ]
    return max(peaks, default=None)


def alike(cell: Cell, other: Cell) -> bool:
    """True if two cells differ only in batch, number of steps, warm-up, memory limit or seed."""
    same = ("per_rank_batch", "global_batch", "steps", "warmup", "memory_limit_mb", "seed")
    return replace(other, **{name: getattr(cell, name) for name in same}) == cell


def known(cell: Cell, runs: Sequence[Run]) -> Known:
    """Collect facts about a cell's model: the memory line from successful launches that differ only in batch, the
    optimizer's state from launches with the same optimizer and strategy, other facts from any launch of the model."""
    ok = [run for run in runs if run.record.status == "ok" and run.ranks and run.record.cell.model == cell.model]
    near = [run for run in ok if alike(cell, run.record.cell)]
    tries = [Try(run.record.cell.per_rank_batch, memory_of(run)) for run in near]
    told = {name: value for run in [*ok, *near] for name, value in run.ranks[0].extra.items()}
    slots = [run for run in ok if run.record.cell.optimizer == cell.optimizer]
    state = [run.ranks[0].extra.get("optimizer_bytes") for run in slots if run.record.cell.strategy == cell.strategy]
    return Known(
        line=long_line(tries),
        parameters=sum(counts)
        if isinstance(counts := told.get("parameters"), list)
        else counts,  # a split model has one number per stage
        trainable_bytes=told.get("trainable_bytes"),
        optimizer_bytes=state[-1] if state else None,
        layers=told.get("layers"),
    )


def remedies(cell: Cell, about: Known, *, capacity_bytes: int | None, fits: int = 0) -> list[Remedy]:
    """Changes that could make a cell's batch fit, the largest saving first, unknown savings last.

    Changes that save next to nothing are left out, unless they are certainly enough. If smaller batches predict wrongly
    that this batch fits, no small saving is certainly enough. fits: the largest batch that is known to fit; 0: none."""
    needs = needed(cell, about, capacity_bytes)
    found = [
        *_smaller_batch(cell, about, capacity_bytes, fits),
        *_aggregation(cell, about, capacity_bytes),
        *_mixed_precision(cell, about),
        *_recomputation(cell, about),
        *_sharded(cell, about),
        *_split(cell, about),
    ]
    made = [_judged(*one, needs, capacity_bytes) for one in found]
    least_bytes = LEAST_SHARE * (needs or capacity_bytes or 0)
    if needs == capacity_bytes:  # a lower bound: the batch needs more than this, by an unknown amount
        made = [replace(one, enough=None) if (one.saves_bytes or 0) <= least_bytes else one for one in made]
    if fits:  # this batch was run, and fits
        made = [replace(one, enough=True) if one.code == "smaller-batch" else one for one in made]
    made = [one for one in made if one.enough or one.saves_bytes is None or one.saves_bytes > least_bytes]
    return sorted(made, key=lambda one: -(one.saves_bytes if one.saves_bytes is not None else -1))


def needed(cell: Cell, about: Known, capacity_bytes: int | None) -> float | None:
    """Bytes that the batch needs by the line through smaller batches; at least the capacity, since the batch did not
    fit."""
    return max(about.line.bytes_of(cell.per_rank_batch), capacity_bytes or 0) if about.line else None


_Change = tuple[str, str, str, float | None]  # code, option, how, bytes


def _judged(
    code: str, option: str, how: str, saves: float | None, needs: float | None, capacity_bytes: int | None
) -> Remedy:
    if saves is None:
        return Remedy(code, option, how, None, None, None)
    then = None if needs is None else round(needs - saves)
    enough = None if then is None or capacity_bytes is None else then <= capacity_bytes
    return Remedy(code, option, how, round(saves), then, enough)


def _grown(cell: Cell, about: Known) -> float | None:
    """The part of the memory that grows with the batch, in bytes for the cell's batch; None if unknown."""
    return about.line.per_sample_bytes * cell.per_rank_batch if about.line else None


_NO_SLOPE = "unknown: measure two batches of this cell that fit"
_NO_WEIGHTS = "unknown: no run of this model that fits recorded the size of its weights"


def _smaller_batch(cell: Cell, about: Known, capacity_bytes: int | None, fits: int) -> list[_Change]:
    batch = fits or (about.line.largest(capacity_bytes) if about.line and capacity_bytes is not None else None)
    if cell.per_rank_batch == 1 or batch == 0:
        return []
    if batch is None or batch >= cell.per_rank_batch:
        batch = cell.per_rank_batch // 2
    saves = None if about.line is None else about.line.per_sample_bytes * (cell.per_rank_batch - batch)
    how = _NO_SLOPE if saves is None else f"the memory of {cell.per_rank_batch - batch:,} samples"
    return [("smaller-batch", f"--per-rank-batch {batch}", how, saves)]


def _aggregation(cell: Cell, about: Known, capacity_bytes: int | None) -> list[_Change]:
    """The change to gradient accumulation: smaller batches, whose gradients are summed in a buffer of the weights'
    size."""
    if "aggregate" not in cell.spread.heeds or cell.per_rank_batch == 1:
        return []
    sums = (about.trainable_bytes or 0) if cell.aggregate == 1 else 0
    parts = 2
    if about.line and capacity_bytes is not None:
        room = about.line.largest(capacity_bytes - sums) or 1
        parts = max(2, math.ceil(cell.per_rank_batch / room))
    batch = math.ceil(cell.per_rank_batch / parts)
    option = f"--per-rank-batch {batch} --aggregate {parts * cell.aggregate}"
    if about.line is None or about.trainable_bytes is None:
        return [("aggregation", option, _NO_SLOPE if about.line is None else _NO_WEIGHTS, None)]
    saves = about.line.per_sample_bytes * (cell.per_rank_batch - batch) - sums
    return [
        (
            "aggregation",
            option,
            "the memory of the samples that the GPU no longer holds at once, minus the summed gradients",
            saves,
        )
    ]


def _mixed_precision(cell: Cell, about: Known) -> list[_Change]:
    """The change to mixed precision: activations of half the size, and a half-size copy of the weights (Micikevicius et
    al., arXiv:1710.03740)."""
    if cell.precision != "float32":
        return []
    option, grown = "--precision mixed_bfloat16", _grown(cell, about)
    if grown is None or about.parameters is None:
        return [("mixed-precision", option, _NO_SLOPE if grown is None else _NO_WEIGHTS, None)]
    how = "about half of the memory that grows with the batch, minus a half-size copy of the weights"
    return [("mixed-precision", option, how, grown * (1 - HALF) - BYTES_OF_HALF * about.parameters)]


def _recomputation(cell: Cell, about: Known) -> list[_Change]:
    """The change to recomputation (gradient checkpointing): with L equal layers, keep every sqrt(L)-th output and
    recompute one segment at a time: 2 sqrt(L) outputs are held instead of L (Chen et al. 2016, arXiv:1604.06174)."""
    option, grown = "keras.RematScope around the layers (more computing)", _grown(cell, about)
    if grown is None or not about.layers:
        return [("recomputation", option, _NO_SLOPE if grown is None else _NO_WEIGHTS, None)]
    kept = min(1.0, 2 / math.sqrt(about.layers))
    how = f"at most, of {about.layers} layers: 2 sqrt({about.layers}) outputs are kept instead of all"
    return [("recomputation", option, how, grown * (1 - kept))]


def _sharded(cell: Cell, about: Known) -> list[_Change]:
    """The change to ZeRO-1: each of N ranks keeps 1/N of the optimizer's state, and an extra copy of 1/N of the
    weights."""
    if cell.strategy not in ("horovod", "independent"):
        return []
    ranks = max(PARTS, cell.ranks)
    option = f"--strategy sharded --ranks {ranks}"
    if about.optimizer_bytes is None or about.trainable_bytes is None:
        return [("sharded-optimizer", option, _NO_WEIGHTS, None)]
    saves = about.optimizer_bytes * (1 - 1 / ranks) - about.trainable_bytes / ranks
    how = (
        "at most the part of the optimizer's state that other ranks then keep, minus this rank's copy of a part of "
        "the weights"
    )
    return [("sharded-optimizer", option, how, saves)]


def _split(cell: Cell, about: Known) -> list[_Change]:
    """The change to a model split over two GPUs, which each hold half of everything, if it can be cut in halves."""
    if cell.spread.splits:
        return []
    option, grown = f"--strategy split --ranks {PARTS}", _grown(cell, about)
    if grown is None or about.weights_bytes is None:
        return [("split", option, _NO_SLOPE if grown is None else _NO_WEIGHTS, None)]
    # Each GPU holds the activations of half of the layers for the samples of both GPUs: as many bytes as before. Only a
    # smaller batch makes them fewer; weights take half in any case.
    batch = math.ceil(cell.per_rank_batch / PARTS)
    fewer = grown * (1 - batch / cell.per_rank_batch)
    how = "each GPU holds half of the weights, gradients and optimizer's state; the batch is that of both GPUs"
    return [("split", f"{option} --per-rank-batch {batch}", how, fewer + about.weights_bytes * (1 - 1 / PARTS))]
