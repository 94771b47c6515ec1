"""Learning rates whose schedule would end N times later than the training, because the script has taken its length from
the data of all N ranks."""

from __future__ import annotations

from typing import Any

from ..internals.frameworks import hvd, tf
from ..models import optimizers_of, without_loss_scale
from ..say import once
from . import step_counts


def say_too_long(model: Any, options: dict[str, Any]) -> None:
    """Print a line for each optimizer whose schedule changes the rate up to about N times as many steps as it has made
    when this `fit` ends, and not later. options: of `fit`, by name; nothing is said if the steps are unknown."""
    from keras.optimizers.schedules import LearningRateSchedule

    of_epoch = step_counts.steps(options)
    if hvd.rank() or hvd.size() == 1 or of_epoch == step_counts.UNKNOWN:
        return
    steps = (int(options.get("epochs", 1)) - int(options.get("initial_epoch", 0))) * of_epoch
    for optimizer in map(without_loss_scale, optimizers_of(model)):
        schedule = optimizer._learning_rate
        ends = int(optimizer.iterations) + steps
        if isinstance(schedule, LearningRateSchedule) and _ends_at(schedule, ends * hvd.size()):
            once(
                f"{optimizer.name}'s {type(schedule).__name__} changes the learning rate until about step "
                f"{ends * hvd.size()}, and fit ends at step {ends}, because {hvd.size()} ranks share the data. If you "
                "have computed the schedule's length from all samples, divide it by ring.size()"
            )


def _ends_at(schedule: Any, step: int) -> bool:
    """True if the rate still changes in the last third before this step, and no more after it."""
    before, after, later = (float(schedule(tf.constant(int(step * part), tf.int64))) for part in (0.7, 1.1, 2.0))
    return before != after == later
