"""The grid: lists of choices -> cells (profiles.runs.cell.Cell), with defaults that fit the machine."""

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
    """The values that a model's settings have by default."""

    gpu_batch: int
    cpu_batch: int
    gpu_step: str = "compiled"
    gpu_input: str = "float32"
    cpu_feeds: tuple[str, ...] = ("prefetch",)


# These GPU batches keep an 80 GB GPU busy, but do not fill its memory.
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
ALL = "all"  # names all models of the list GPU_ALL or CPU_ALL
# one with convolutions and one with attention; each of their scaling curves takes less than three minutes
GPU_MODELS = ("resnet50", "transformer")
GPU_ALL = (*GPU_MODELS, "inception3", "vgg16", "lstm", "gru", "dense41m", "cnn_cifar", "mlp")
GPU_PRECISION = "mixed_bfloat16"
GPU_FEEDS = ("pinned",)
CPU_MODELS = ("cnn_cifar", "mlp")
CPU_ALL = (*CPU_MODELS, "lstm", "gru", "dense2")
CPU_RANKS = (1, 2)
LAUNCHES = 3  # launches of each cell
# Minutes within which launches are repeated. On two cores, four cells launched once each take 1 min, and explaining
# them takes 1 min.
GPU_MINUTES, CPU_MINUTES = 12, 4


@dataclass(frozen=True, slots=True)
class Choices:
    """The values that the command line lists for each setting. A missing setting gets a default that fits the
    machine."""

    values: Mapping[str, tuple[Any, ...]] = field(default_factory=lambda: MappingProxyType({}))
    scaling: str = "weak"


# The grid is sorted by these settings: first the model, innermost the number of ranks.
_ORDER = sorted((one for one in SETTINGS if not one.derived), key=lambda one: one.name == "ranks")


def grid(choices: Choices, *, gpus: int) -> list[Cell]:
    """Every combination of the choices once: by model, then by its settings, then by growing ranks.

    Weak scaling: `per_rank_batch` is the batch of each rank. Strong scaling: it is the batch of all ranks together,
    divided equally among them; the cells keep it as `global_batch`.
    """
    cells = []
    for model in models(choices, gpus):
        values = {**suits(model, gpus), **choices.values, "model": (model,)}
        values["ranks"] = sorted(values["ranks"])
        several = len(values.get("strategy", ())) > 1
        if several and "feed" not in choices.values:  # strategies can only be compared with the same feed
            values["feed"] = values["feed"][:1]
        for chosen in itertools.product(*(values.get(one.name) or (one.default,) for one in _ORDER)):
            cell = Cell(**dict(zip((one.name for one in _ORDER), chosen, strict=True)))
            if several and cell.ranks % cell.gpus_per_process and any(n % cell.stages == 0 for n in values["ranks"]):
                continue  # leave out this cell alone; other numbers of ranks may divide by its stages
            cell = _as_its_strategy_can(cell, choices.values)
            cells.append(share(cell, cell.per_rank_batch) if choices.scaling == "strong" else cell)
    return list(dict.fromkeys(cells))


def models(choices: Choices, gpus: int) -> tuple[str, ...]:
    """The models that the command line names, all models for `all`, or by default models that fit the machine."""
    named = choices.values.get("model") or (GPU_MODELS if gpus else CPU_MODELS)
    return (GPU_ALL if gpus else CPU_ALL) if ALL in named else tuple(named)


def suits(model: str, gpus: int) -> dict[str, Any]:
    """The model's default values for settings that depend on the machine, on a host with `gpus` GPUs."""
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
    """The cell with every setting that the command line leaves open changed to a value that the cell's strategy
    supports.

    With several strategies, a setting that a strategy ignores gets its default, so that equal cells are measured once.
    A value given for a single strategy stays; it is refused later if the strategy does not support it.
    """
    spread = cell.spread
    # Keras's fit chooses these two settings there
    if spread.backend != TENSORFLOW and len(given.get("strategy", ())) > 1:
        cell = replace(cell, feed=spread.feeds[0], step=spread.steps[0])
    # a training on one repeated batch reaches no accuracy
    if "feed" not in given and cell.until and cell.feed == "resident":
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
    """The cell for strong scaling: the global batch divided by the ranks, rounded down if it does not divide."""
    return replace(cell, per_rank_batch=global_batch // cell.ranks, global_batch=global_batch)


def default_ranks(gpus: int) -> tuple[int, ...]:
    """1, 2, 4, ... and the number of GPUs."""
    powers = (2**i for i in range(gpus.bit_length()))
    return tuple(dict.fromkeys((*(n for n in powers if n <= gpus), gpus)))


def indivisible(cell: Cell) -> str | None:
    """The reason why the cell's batch or ranks do not divide evenly; None if they do."""
    if cell.global_batch is not None and cell.global_batch % cell.ranks:
        return f"a batch of {cell.global_batch} over all ranks does not divide by {cell.ranks}"
    if cell.ranks % cell.gpus_per_process:
        return f"{cell.ranks} ranks do not divide by {cell.gpus_per_process} stages"
    if (cell.per_rank_batch * cell.gpus_per_process) % cell.micro_batches:
        batch = cell.per_rank_batch * cell.gpus_per_process
        return f"a batch of {batch} does not divide into {cell.micro_batches} micro-batches"
    return None
