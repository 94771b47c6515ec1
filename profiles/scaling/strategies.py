"""Advice from strategies measured side by side: a strategy that is faster than Horovod, the cost of exchanging
gradients, and whether another backend of Keras is faster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..ground.stats import Ratio, Spread, ratio
from ..runs.cell import Cell
from ..runs.strategies import TENSORFLOW
from .alike import same_but_ranks, same_work
from .look import WORTH_A_LOOK, Look, least, ranks

BACKENDS = {"jax": "JAX", "torch": "PyTorch"}


def looks(cells: Sequence[Cell], spreads: dict[str, Spread]) -> list[Look]:
    """Advice, for each code at most one: the one with the largest gain."""
    measured = [cell for cell in cells if cell.id in spreads]
    found = [*_faster(measured, spreads), *_bounds(measured, spreads)]
    best: dict[str, Look] = {}
    for look in found:
        if look.code not in best or look.worth > best[look.code].worth:
            best[look.code] = look
    return list(best.values())


def answers(cells: Sequence[Cell], spreads: dict[str, Spread], *, where: str) -> list[Look]:
    """Compare other backends of Keras with TensorFlow: each cell of theirs, on the largest number of ranks that
    TensorFlow has too, with TensorFlow's fastest cell for the same work.

    where: words for the machine, such as `these GPUs`. A cell with a single launch is left out, because its error is
    unknown."""
    measured = sorted((cell for cell in cells if cell.id in spreads), key=lambda cell: -cell.ranks)
    answered: list[Cell] = []
    found = []
    for cell in filter(_elsewhere, measured):
        here = [one for one in measured if not _elsewhere(one) and _is_a_choice(one) and same_work(cell, one)]
        if not here or any(same_but_ranks(cell, other) for other in answered):
            continue
        answered.append(cell)
        best = max(here, key=lambda one: spreads[one.id].median)
        gain = ratio(spreads[cell.id], spreads[best.id])
        if gain.error is not None:
            found.append(_answer(cell, best, gain, where))
    return found


def _elsewhere(cell: Cell) -> bool:
    return cell.spread.backend != TENSORFLOW


def _is_a_choice(cell: Cell) -> bool:
    """False for cells that only show bounds, because they leave out the exchange or the feed."""
    return cell.spread.synchronous and cell.feed != "resident"


def _answer(cell: Cell, best: Cell, gain: Ratio, where: str) -> Look:
    """The comparison in words. It says faster or slower only if the interval of the ratio excludes 1."""
    backend, way = cell.spread.backend, best.strategy
    name, what = BACKENDS[backend], f"on {where} {cell.model} on {ranks(cell.ranks)}"
    if gain.low > 1:
        said = f"{gain.value:.2f} x as fast under {name} as with {way} (at least {gain.low:.2f} x)"
        then = f"try your script with KERAS_BACKEND={backend}, and compare what it learns"
    elif gain.high < 1:
        said = f"{1 / gain.value:.2f} x as fast with {way} as under {name} (at least {1 / gain.high:.2f} x)"
        then = "stay with TensorFlow for this model"
    else:
        said = f"as fast under {name} as with {way}, within the error of both ({gain.low:.2f} to {gain.high:.2f} x)"
        then = "to tell them apart, launch more often: ringscope bench --resume --launches 10"
    return Look(f"under-{backend}", f"{what} trains {said}", then, max(0.0, gain.value - 1), cell.model)


def _faster(cells: Sequence[Cell], spreads: dict[str, Spread]) -> Iterator[Look]:
    """Strategies that train the same as Horovod, but faster than its fastest cell by more than both intervals."""
    for cell in cells:
        beside = [one for one in cells if one.strategy == "horovod" and same_work(cell, one)]
        if not beside or cell.strategy == "horovod" or not cell.spread.synchronous or _elsewhere(cell):
            continue
        gain = min((ratio(spreads[cell.id], spreads[one.id]) for one in beside), key=lambda gain: gain.value)
        if gain.low > 1 + WORTH_A_LOOK:
            yield Look(
                "better-strategy",
                f"{cell.model} on {cell.ranks} GPUs: strategy {cell.strategy} is {gain.value:.2f} x as fast as horovod "
                f"({least(gain)}), and trains the same",
                _larger_batch(cell, cells, spreads)
                or f"train with --strategy {cell.strategy}; record both strategies to see what horovod waits for",
                gain.value - 1,
            )


def _larger_batch(cell: Cell, cells: Sequence[Cell], spreads: dict[str, Spread]) -> str | None:
    """Advice to measure a larger batch if a split model, whose GPUs each compute some layers for the whole batch, is
    faster than trainings on parts of the batch that exchange nothing; else None."""
    free = [one for one in cells if one.strategy == "independent" and same_work(cell, one)]
    if not cell.spread.splits or not free or any(ratio(spreads[cell.id], spreads[one.id]).value <= 1 for one in free):
        return None
    whole = cell.per_rank_batch * cell.gpus_per_process
    return (
        f"measure --per-rank-batch {cell.per_rank_batch},{whole}: training with {whole} samples on each GPU is faster "
        f"than with {cell.per_rank_batch} and no exchange, so {cell.per_rank_batch} samples do not keep a GPU busy"
    )


def _bounds(cells: Sequence[Cell], spreads: dict[str, Spread]) -> Iterator[Look]:
    """Advice that bounds the cost of Horovod's exchange by the same cell with the strategy `independent`, which
    exchanges nothing."""
    for free in (cell for cell in cells if cell.strategy == "independent" and cell.ranks > 1):
        beside = (one for one in cells if one.strategy == "horovod" and same_work(free, one))
        for one in beside:
            if (one.step, one.feed) != (free.step, free.feed):
                continue
            gain = ratio(spreads[free.id], spreads[one.id])
            if gain.low > 1 + WORTH_A_LOOK:
                yield Look(
                    "exchange-cost",
                    f"{one.model} on {one.ranks} GPUs: without any exchange (strategy independent) training is "
                    f"{gain.value:.2f} x as fast: no strategy that divides the batch among GPUs can be faster",
                    "record the training with horovod: the findings say how much of the exchange is waiting for "
                    "ranks, and how much is transfer",
                    gain.value - 1,
                )
