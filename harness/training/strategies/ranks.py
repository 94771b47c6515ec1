"""One process per GPU: `horovod`, and `independent`, the same without an all-reduce."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from profiles.records import Cell

from ... import ring
from ...ring.feed import as_feed
from ..feeds import FEEDS
from ..feeds.sources import Source, Synthetic, TFRecords
from ..models import MODELS, build, compile_model
from . import Trainer


def trainer(cell: Cell, device: str) -> Trainer:
    """The cell's model, distributed by `ring`, and its feed to this device ("/GPU:0" or "/CPU:0")."""
    entry = MODELS[cell.model]
    options = dict(cell.options)
    model = build(cell.model, input_dtype=cell.input_dtype, precision=cell.precision, seed=cell.seed)
    compile_model(model, entry.spec, optimizer=optimizer(options.get("optimizer", "sgd")))
    ring.distribute(
        model,
        step=cell.step,
        compression=cell.compression,
        aggregate=cell.aggregate,
        groups=int(options.get("groups", 1)),
        scale_learning_rate=options.get("scale_learning_rate") == "yes",
        warmup_steps=int(options.get("warmup_steps", 0)),
        op=cell.op,
        reduce=cell.strategy == "horovod",
    )
    source = make_source(cell, cell.per_rank_batch, rank=ring.rank(), size=ring.size(), threads=ring.threads())
    batches = as_feed(FEEDS[cell.feed](source, device))
    return Trainer(model, lambda: model.loop_by_ring.turn(batches), cell.per_rank_batch)


def optimizer(name: str) -> Any:
    """`sgd` with momentum, or `adam` with an epsilon that does not blow up rounding where gradients are near 0."""
    import keras

    return keras.optimizers.Adam(1e-3, epsilon=1e-3) if name == "adam" else keras.optimizers.SGD(0.01, momentum=0.9)


def make_source(cell: Cell, batch: int, *, rank: int, size: int, threads: int) -> Source:
    """Where the cell's samples come from. batch: samples of this rank per step."""
    spec = MODELS[cell.model].spec
    if cell.data == "synthetic":
        return Synthetic(spec, batch, rank=rank, size=size, dtype=cell.input_dtype, seed=cell.seed, threads=threads)
    return TFRecords(Path(cell.data), spec, batch, rank=rank, size=size, dtype=cell.input_dtype, threads=threads)
