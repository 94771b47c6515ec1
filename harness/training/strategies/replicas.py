"""One process and one set of weights, like `make_parallel` and `keras.utils.multi_gpu_model`. The weights are on the
first GPU. The batch is cut into a part per GPU, each GPU calls the model on its part, and the first GPU joins the
outputs."""

from __future__ import annotations

import tensorflow as tf

from profiles.runs.records import Cell
from ringscope import ring
from ringscope.ring.feed import as_feed
from ringscope.ring.fit.loop import Turns

from ..feeds import FEEDS, make_source
from ..models import MODELS, loss_for, of_cell
from . import devices
from .parts import Plan, train_step
from .trainers import Trainer


def trainer(cell: Cell, device: str) -> Trainer:
    places = devices.take(device, cell.ranks)
    with tf.device(places[0]):
        model = of_cell(cell)
        model.optimizer.build(model.trainable_variables)
    batch = cell.per_rank_batch * cell.ranks
    source = make_source(cell, batch, rank=0, size=1, threads=ring.threads())
    turns = Turns(train_step(model, Plan([model], [[place] for place in places]), loss_for(MODELS[cell.model])))
    feed = as_feed(FEEDS[cell.feed](source, places[0]))
    return Trainer(model, lambda: turns.turn(feed), batch)
