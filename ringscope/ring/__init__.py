"""Keras 3 models that really train together under Horovod 0.28.1.

    from ringscope import ring; ring.init()   # first, before TensorFlow touches a GPU
    model.compile(...)
    ring.distribute(model)                    # then model.fit(...) as before, under horovodrun or mpirun

Horovod's own `horovod.keras` wraps methods that Keras 3 no longer calls, so training goes on without an error, and
gradients are never averaged (horovod#4290). Ring averages them in the optimizer's `apply`. In a compiled step they are
averaged by Horovod's calls inside the XLA program, or between two programs.
"""

from __future__ import annotations

from typing import Any

from .alike import statistics
from .alike.begin import broadcast
from .distribution import distribute
from .exchange import average_logs
from .global_batch.totals import mean, sum
from .gradients.average import COMPRESSIONS, average_gradients
from .gradients.zero import parts
from .models import is_distributed
from .options import STEPS
from .start import by_mpi, init, local_rank, meet, rank, size, threads

__all__ = [
    "COMPRESSIONS",
    "STEPS",
    "average_gradients",
    "average_logs",
    "average_statistics",
    "broadcast",
    "by_mpi",
    "distribute",
    "gather",
    "init",
    "is_distributed",
    "local_rank",
    "mean",
    "meet",
    "rank",
    "size",
    "state",
    "sum",
    "threads",
]


def average_statistics(model: Any) -> None:
    """Average moving statistics (of batch normalisation) over ranks, before a model is evaluated or saved in your
    own loop. All ranks call it after the same step. Raises RingscopeError if their weights differ."""
    statistics.average(model, "when its statistics are averaged")


def gather(model: Any) -> None:
    """Average moving statistics and collect a sharded optimizer's state in host memory, so that the model can be saved
    now.

    All ranks call it after the same step; `fit` does so at its end. Raises RingscopeError if their weights differ.
    """
    statistics.average(model, "when its state is gathered")
    parts.gather(model)


def state(model: Any, **values: Any) -> Any:
    """For your own loop under elastic Horovod: an object with these values as attributes. After a restart it has the
    values that were last committed, and so have the model's weights and optimizer. All ranks call `.commit()` after the
    same step.

        state = ring.state(model, epoch=0)
        for epoch in range(state.epoch, 10):
            ...
            state.epoch = epoch + 1
            state.commit()

    Raises RingscopeError if the model is not built, or was not given to `ring.distribute`.
    """
    from .elastic.state import State

    return State(model, **values)
