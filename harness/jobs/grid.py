"""The grid: lists of choices -> cells, with defaults that fit the machine. A cell is a profiles.runs.cell.Cell."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from profiles.runs.cell import SETTINGS, Cell, setting
from profiles.runs.strategies import OWN_SETTINGS, TENSORFLOW


@dataclass(frozen=True, slots=True)
class Fit:
    """Settings that suit a model where the command line does not say."""

    gpu_batch: int
    cpu_batch: int
    gpu_step: str = "compiled"
    gpu_input: str = "float32"
    cpu_feeds: tuple[str, ...] = ("prefetch",)


# Batches that fill an 80 GB GPU's time, not its memory.
FITS = {
    "resnet50": Fit(256, 4, gpu_input="uint8"),
    "inception3": Fit(128, 4, gpu_input="uint8"),
    "vgg16": Fit(128, 2, gpu_input="uint8"),
    "transformer": Fit(64, 1),
    "lstm": Fit(256, 16),
    "gru": Fit(256, 16),
    "lstm_generic": Fit(256, 16),
    "gru_generic": Fit(256, 16),
    "dense41m": Fit(1024, 32),
    "cnn_cifar": Fit(512, 16, gpu_input="uint8"),
    "dense2": Fit(4096, 256),
    "mlp": Fit(4096, 256, cpu_feeds=("prefetch", "resident")),
}
ALL = "all"  # in place of models: GPU_ALL, or CPU_ALL
GPU_MODELS = ("resnet50", "transformer")  # convolutions, and attention: each a curve within three minutes
GPU_ALL = (*GPU_MODELS, "inception3", "vgg16", "lstm", "gru", "dense41m", "cnn_cifar", "mlp")
GPU_PRECISION = "mixed_bfloat16"
GPU_FEEDS = ("pinned",)
CPU_MODELS = ("cnn_cifar", "mlp")
CPU_ALL = (*CPU_MODELS, "lstm", "gru", "dense2")
CPU_RANKS = (1, 2)
LAUNCHES = 3  # of a cell
# Within which cells are launched again. On two cores four cells take 1 min once, and 1 min what explains them.
GPU_MINUTES, CPU_MINUTES = 12, 4


@dataclass(frozen=True, slots=True)
class Choices:
    """The values that the command line lists for each setting. A setting that is not there fits the machine."""

    values: Mapping[str, tuple[Any, ...]] = field(default_factory=lambda: MappingProxyType({}))
    scaling: str = "weak"


# The order of reading: a model, its settings, and innermost the ranks that it grows over.
_ORDER = sorted((one for one in SETTINGS if not one.derived), key=lambda one: one.name == "ranks")


def grid(choices: Choices, *, gpus: int) -> list[Cell]:
    """Every combination once, in reading order: model, then its settings, then growing ranks.

    Weak scaling: `per_rank_batch` is every rank's. Strong: it is the batch of all ranks together, which each then
    shares equally; the cells keep it as `global_batch`.
    """
    cells = []
    for model in models(choices, gpus):
        values = {**suits(model, gpus), **choices.values, "model": (model,)}
        values["ranks"] = sorted(values["ranks"])
        several = len(values.get("strategy", ())) > 1
        if several and "feed" not in choices.values:  # beside each other they are fed alike
            values["feed"] = values["feed"][:1]
        for chosen in itertools.product(*(values.get(one.name) or (one.default,) for one in _ORDER)):
            cell = Cell(**dict(zip((one.name for one in _ORDER), chosen, strict=True)))
            if several and cell.ranks % cell.gpus_per_process and any(n % cell.stages == 0 for n in values["ranks"]):
                continue  # its stages divide others of the ranks
            cell = _as_its_strategy_can(cell, choices.values)
            cells.append(share(cell, cell.per_rank_batch) if choices.scaling == "strong" else cell)
    return list(dict.fromkeys(cells))


def models(choices: Choices, gpus: int) -> tuple[str, ...]:
    """The models that the command line names, `all` of them, or those that fit the machine."""
    named = choices.values.get("model") or (GPU_MODELS if gpus else CPU_MODELS)
    return (GPU_ALL if gpus else CPU_ALL) if ALL in named else tuple(named)


def suits(model: str, gpus: int) -> dict[str, Any]:
    """The values that fit a model on a host with `gpus`, for the settings that depend on these."""
    fit = FITS.get(model, Fit(64, 16, gpu_step="fit"))
    if not gpus:
        return {"ranks": CPU_RANKS, "per_rank_batch": (fit.cpu_batch,), "feed": fit.cpu_feeds}
    return {
        "ranks": default_ranks(gpus),
        "per_rank_batch": (fit.gpu_batch,),
        "feed": GPU_FEEDS,
        "input_dtype": (fit.gpu_input,),
        "step": (fit.gpu_step,),
        "precision": (GPU_PRECISION,),
    }


def _as_its_strategy_can(cell: Cell, given: Mapping[str, tuple[Any, ...]]) -> Cell:
    """A setting that the command line leaves open takes a value that the strategy can do. If several strategies are
    asked for, one that does not heed a setting is measured once. A value asked of one strategy alone stays, and is
    refused if it cannot be."""
    spread = cell.spread
    if spread.backend != TENSORFLOW and len(given.get("strategy", ())) > 1:  # Keras's fit chooses both
        cell = replace(cell, feed=spread.feeds[0], step=spread.steps[0])
    if "feed" not in given and cell.until and cell.feed == "resident":  # one batch teaches nothing
        cell = replace(cell, feed="prefetch")
    if "feed" not in given and cell.feed not in spread.feeds:
        ahead = "device" if cell.feed == "pinned" else "prefetch"
        cell = replace(cell, feed=ahead if ahead in spread.feeds else "prefetch")
    if "step" not in given and cell.step not in spread.steps:
        cell = replace(cell, step=spread.steps[0])
    if len(given.get("strategy", ())) > 1:
        unheeded = [name for name in OWN_SETTINGS if name not in spread.heeds]
        cell = replace(cell, **{name: setting(name).default for name in unheeded})
    return cell


def share(cell: Cell, global_batch: int) -> Cell:
    """The cell of strong scaling: the global batch divided by the ranks (rounded down where it does not divide)."""
    return replace(cell, per_rank_batch=global_batch // cell.ranks, global_batch=global_batch)


def default_ranks(gpus: int) -> tuple[int, ...]:
    """1, 2, 4, ... and all of the GPUs."""
    powers = (2**i for i in range(gpus.bit_length()))
    return tuple(dict.fromkeys((*(n for n in powers if n <= gpus), gpus)))


def indivisible(cell: Cell) -> str | None:
    """The reason that the cell's batch cannot be shared by its ranks, or these by its stages; None where they can."""
    if cell.global_batch is not None and cell.global_batch % cell.ranks:
        return f"a batch of {cell.global_batch} over all ranks does not divide by {cell.ranks}"
    if cell.ranks % cell.gpus_per_process:
        return f"{cell.ranks} ranks do not divide by {cell.gpus_per_process} stages"
    if (cell.per_rank_batch * cell.gpus_per_process) % cell.micro_batches:
        batch = cell.per_rank_batch * cell.gpus_per_process
        return f"a batch of {batch} does not divide into {cell.micro_batches} micro-batches"
    return None
