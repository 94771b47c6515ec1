"""One process per GPU: `horovod`, `sharded`, and `independent`, which is `horovod` without the all-reduce."""

from __future__ import annotations

from profiles.runs.records import Cell
from ringscope import ring
from ringscope.ring.feed import as_feed
from ringscope.ring.models import kept

from ..feeds import FEEDS, make_source
from ..models import of_cell
from .trainers import Trainer

RATE_WARM_UP_STEPS = 100  # steps of warm-up, until the learning rate for all ranks is reached


def trainer(cell: Cell, device: str) -> Trainer:
    """The cell's model, distributed by `ring`, and its feed to this device ("/GPU:0" or "/CPU:0")."""
    options = dict(cell.options)
    model = of_cell(cell)
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
