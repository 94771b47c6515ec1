"""The grid: lists of choices -> cells, with defaults that fit the machine. The cell itself is profiles.records.Cell."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from profiles.errors import RingscopeError
from profiles.records import Cell


@dataclass(frozen=True, slots=True)
class Fit:
    """What suits a model where the command line does not say."""

    gpu_batch: int
    cpu_batch: int
    gpu_step: str = "compiled"
    gpu_input: str = "float32"
    cpu_feeds: tuple[str, ...] = ("prefetch",)


# Batches that fill an 80 GB GPU's time, not its memory. cuDNN's recurrent cells cannot be compiled by XLA.
FITS = {
    "resnet50": Fit(256, 4, gpu_input="uint8"),
    "inception3": Fit(128, 4, gpu_input="uint8"),
    "vgg16": Fit(128, 2, gpu_input="uint8"),
    "lstm": Fit(256, 16, gpu_step="fit"),
    "gru": Fit(256, 16, gpu_step="fit"),
    "lstm_generic": Fit(256, 16),
    "gru_generic": Fit(256, 16),
    "dense41m": Fit(1024, 32),
    "cnn_cifar": Fit(512, 16, gpu_input="uint8"),
    "mlp": Fit(4096, 256, cpu_feeds=("prefetch", "resident")),
}
GPU_MODELS = ("resnet50", "inception3", "vgg16", "lstm", "gru", "dense41m", "cnn_cifar", "mlp")
GPU_PRECISION = "mixed_bfloat16"
GPU_FEEDS = ("pinned",)
GPU_LAUNCHES = 3
# Without a GPU: 6 cells x 3 launches within five minutes on two cores, most of it TensorFlow's import.
CPU_MODELS = ("cnn_cifar", "mlp")
CPU_RANKS = (1, 2)
CPU_LAUNCHES = 3


@dataclass(frozen=True, slots=True)
class Choices:
    """What the command line lists; an empty list is left to the machine."""

    ranks: tuple[int, ...] = ()
    models: tuple[str, ...] = ()
    per_rank_batch: tuple[int, ...] = ()
    feeds: tuple[str, ...] = ()
    input_dtype: tuple[str, ...] = ()
    step: tuple[str, ...] = ()
    precision: tuple[str, ...] = ()
    strategy: tuple[str, ...] = ("horovod",)
    compression: tuple[str, ...] = ("none",)
    aggregate: tuple[int, ...] = (1,)
    steps: int = 40
    warmup: int = 10
    scaling: str = "weak"
    data: str = "synthetic"
    seed: int = 0


def grid(choices: Choices, *, gpus: int) -> list[Cell]:
    """Every combination once, in reading order: model, then its settings, then growing ranks.

    Weak scaling: `per_rank_batch` is every rank's. Strong: it is the batch of all ranks together, which each then
    shares equally; the cells keep it as `global_batch`.
    """
    models = choices.models or (GPU_MODELS if gpus else CPU_MODELS)
    cells = []
    for model in models:
        fit = FITS.get(model, Fit(64, 16, gpu_step="fit"))
        settings = itertools.product(
            choices.per_rank_batch or (fit.gpu_batch if gpus else fit.cpu_batch,),
            choices.feeds or (GPU_FEEDS if gpus else fit.cpu_feeds),
            choices.input_dtype or (fit.gpu_input if gpus else "float32",),
            choices.step or (fit.gpu_step if gpus else "fit",),
            choices.precision or (GPU_PRECISION if gpus else "float32",),
            choices.strategy,
            choices.compression,
            choices.aggregate,
            sorted(choices.ranks or default_ranks(gpus)),
        )
        for batch, feed, dtype, step, precision, strategy, compression, aggregate, ranks in settings:
            cell = Cell(
                model=model,
                ranks=ranks,
                per_rank_batch=batch,
                feed=feed,
                input_dtype=dtype,
                step=step,
                precision=precision,
                strategy=strategy,
                compression=compression,
                aggregate=aggregate,
                steps=choices.steps,
                warmup=choices.warmup,
                data=choices.data,
                seed=choices.seed,
            )
            cells.append(share(cell, batch) if choices.scaling == "strong" else cell)
    return list(dict.fromkeys(cells))


def share(cell: Cell, global_batch: int) -> Cell:
    """The cell of strong scaling: the global batch divided by the ranks (rounded down where it does not divide)."""
    return replace(cell, per_rank_batch=global_batch // cell.ranks, global_batch=global_batch)


def default_ranks(gpus: int) -> tuple[int, ...]:
    """1, 2, 4, ... and all of the GPUs; without any, 1 and 2."""
    if not gpus:
        return CPU_RANKS
    powers = (2**i for i in range(gpus.bit_length()))
    return tuple(dict.fromkeys((*(n for n in powers if n <= gpus), gpus)))


def indivisible(cell: Cell) -> str | None:
    """Why the cell's batch cannot be shared by its ranks, None where it can."""
    if cell.global_batch is not None and cell.global_batch % cell.ranks:
        return f"a batch of {cell.global_batch} over all ranks does not divide by {cell.ranks}"
    return None


def numbers(text: str, option: str) -> tuple[int, ...]:
    """`1,2,4` -> (1, 2, 4). Raises RingscopeError."""
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 1:
        raise RingscopeError(f"{option}: {text!r} is no list of counts; write it as 1,2,4")
    return found


def names(text: str, option: str, known: Sequence[str]) -> tuple[str, ...]:
    """`a,b` -> ("a", "b"), each one of `known`. Raises RingscopeError."""
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    for name in found:
        if name not in known:
            raise RingscopeError(f"{option}: there is no {name!r}; take some of {', '.join(known)}")
    if not found:
        raise RingscopeError(f"{option}: {text!r} names none; take some of {', '.join(known)}")
    return found
