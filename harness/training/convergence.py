"""Train until a validation accuracy is reached. Epochs are timed, the evaluations between them are not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import tensorflow as tf

from profiles.runs.records import Cell
from ringscope import ring

from .feeds.generated import BEST_ACCURACY, Generated
from .strategies import Trainer
from .windows import Window

EVALUATED_AT_ONCE = 256  # samples


@dataclass(slots=True)
class Epoch:
    """The state at an epoch's end. training_ns: ns since the start, without evaluations. samples: of all ranks since
    the start."""

    training_ns: int
    samples: int
    accuracy: float
    validation_accuracy: float


def converged(
    cell: Cell,
    trainer: Trainer,
    measured: Callable[[int, Callable[[int], None]], Window],
    done: Callable[[int], None],
    judging: Callable[[], object],
) -> tuple[Window, dict[str, Any]]:
    """Run `converge` for a trainer. measured(steps, done) trains and times `steps` steps, and calls `done` after each.
    judging() is called before each evaluation."""

    def average() -> None:
        judging()
        if cell.strategy == "horovod":
            ring.average_statistics(trainer.model)

    judge = judge_of(trainer.model, trainer.source, average)
    steps = trainer.source.steps_per_epoch
    return converge(
        cell, trainer.source, epoch=lambda first: measured(steps, lambda step: done(first + step)), judge=judge
    )


def converge(
    cell: Cell, source: Generated, *, epoch: Callable[[int], Window], judge: Callable[[], tuple[float, float]]
) -> tuple[Window, dict[str, Any]]:
    """Train until the cell's accuracy is reached, or its epochs are over.

    epoch(number of its first step): trains one epoch and times it. judge: returns the accuracies over all ranks,
    (training, validation). Returns one window over all epochs laid end to end, and the facts that a rank's record has
    under `convergence`.
    """
    wanted = cell.accuracy_wanted
    assert wanted is not None
    steps = source.steps_per_epoch
    windows: list[Window] = []
    history: list[Epoch] = []
    while len(windows) < cell.max_epochs:
        windows.append(epoch(len(windows) * steps))
        training_ns = sum(window.end_ns - window.start_ns for window in windows)
        trained = len(windows) * steps * cell.per_rank_batch * cell.ranks
        history.append(Epoch(training_ns, trained, *judge()))
        if history[-1].validation_accuracy >= wanted:
            break
    last = history[-1]
    facts = {
        "wanted": wanted,
        "reached": last.validation_accuracy >= wanted,
        "epochs": len(history),
        "best_accuracy": BEST_ACCURACY,
        "history": [asdict(one) for one in history],
    }
    return laid_together(windows), facts


def laid_together(windows: list[Window]) -> Window:
    """One window with the steps of all windows laid end to end; it starts where the first one starts."""
    start = windows[0].start_ns
    steps = [step for window in windows for step in window.step_ns]
    return Window(start, start + sum(steps), steps, [wait for window in windows for wait in window.input_wait_ns])


def judge_of(model: Any, source: Generated, average: Callable[[], object]) -> Callable[[], tuple[float, float]]:
    """A function that returns the model's accuracy on training and on validation samples; each rank counts its own
    share. average: called before each evaluation, so that all ranks evaluate the same model."""
    from ringscope.ring.exchange import reduced_on_host
    from ringscope.ring.internals.frameworks import hvd

    @tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]
    def hits(x: Any, y: Any) -> Any:
        logits = model(x, training=False)
        said = tf.cast(logits[:, 0] > 0, y.dtype) if logits.shape[-1] == 1 else tf.argmax(logits, axis=-1)
        return tf.reduce_sum(tf.cast(said == y, tf.int64))

    parts = source.trained_on(), source.held_out()

    def judge() -> tuple[float, float]:
        average()
        counts = []
        for x, y in parts:
            firsts = range(0, len(y), EVALUATED_AT_ONCE)
            counts.append(sum(int(hits(x[i : i + EVALUATED_AT_ONCE], y[i : i + EVALUATED_AT_ONCE])) for i in firsts))
            counts.append(len(y))
        total = reduced_on_host(counts, hvd.Sum, "accuracy").tolist()
        return total[0] / total[1], total[2] / total[3]

    return judge


@contextmanager
def untouched(model: Any) -> Iterator[None]:
    """Restore the weights and the optimizer's state at the end of the block, so that steps in the block change
    nothing."""
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    variables = [*model.variables, *model.optimizer.variables]
    before = [variable.numpy() for variable in variables]
    yield
    for variable, value in zip(variables, before, strict=True):
        variable.assign(value)
