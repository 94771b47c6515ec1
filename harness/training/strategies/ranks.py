"""One process per GPU: `horovod`, `sharded`, and `independent`, the same without an all-reduce."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from profiles.runs.records import Cell
from ringscope import ring
from ringscope.ring.feed import as_feed
from ringscope.ring.models import kept

from ..feeds import FEEDS
from ..feeds.generated import Generated
from ..feeds.sources import POOL_BATCHES, Source, Synthetic, TFRecords
from ..models import MODELS, build, compile_model
from . import Trainer

RATE_WARM_UP_STEPS = 100  # until the rate of all ranks is reached


def trainer(cell: Cell, device: str) -> Trainer:
    """The cell's model, distributed by `ring`, and its feed to this device ("/GPU:0" or "/CPU:0")."""
    entry = MODELS[cell.model]
    options = dict(cell.options)
    model = build(cell.model, input_dtype=cell.input_dtype, precision=cell.precision, seed=cell.seed)
    compile_model(model, entry.spec, optimizer=optimizer(cell))
    ring.distribute(
        model,
        step=cell.step,
        compression=cell.compression,
        aggregate=cell.aggregate,
        groups=int(options.get("groups", 1)),
        scale_learning_rate=cell.rate_rule == "warm-up" or options.get("scale_learning_rate") == "yes",
        warmup_steps=int(options.get("warmup_steps", RATE_WARM_UP_STEPS if cell.rate_rule == "warm-up" else 0)),
        op=cell.op,
        reduce=cell.strategy != "independent",
        sharded=cell.strategy == "sharded",
    )
    source = make_source(cell, cell.per_rank_batch, rank=ring.rank(), size=ring.size(), threads=ring.threads())
    batches = as_feed(FEEDS[cell.feed](source, device))
    return Trainer(model, lambda: kept(model).loop.turn(batches), cell.per_rank_batch, source=source)


def optimizer(cell: Cell) -> Any:
    """The cell's: `sgd` with momentum, `adam` with an epsilon that does not blow up rounding where gradients are near
    0, or `lamb`, at a rate for one rank and by its rule for more (`warm-up` is ring's)."""
    import keras

    factor = {"linear": cell.ranks, "sqrt": math.sqrt(cell.ranks)}.get(cell.rate_rule, 1)
    name = dict(cell.options).get("optimizer", cell.optimizer)
    if name == "adam":
        return keras.optimizers.Adam(1e-3 * factor, epsilon=1e-3)
    if name == "lamb":
        return keras.optimizers.Lamb(1e-3 * factor)
    return keras.optimizers.SGD(0.01 * factor, momentum=0.9)


def make_source(cell: Cell, batch: int, *, rank: int, size: int, threads: int) -> Source:
    """The source of the cell's samples. batch: samples of this rank per step."""
    spec = MODELS[cell.model].spec
    common: dict[str, Any] = {"rank": rank, "size": size, "dtype": cell.input_dtype, "threads": threads}
    if cell.data == "generated":
        return Generated(spec, batch, seed=cell.seed, count=cell.epoch_samples, **common)
    if cell.data == "synthetic":
        batches = 1 if cell.feed == "resident" else POOL_BATCHES
        return Synthetic(spec, batch, seed=cell.seed, batches=batches, **common)
    return TFRecords(Path(cell.data), spec, batch, **common)
