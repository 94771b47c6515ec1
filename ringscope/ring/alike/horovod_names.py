"""Recognise remains of Horovod's Keras API in a script: under Keras 3 they fail with obscure errors, or do nothing
silently."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import keras

from profiles.ground.errors import RingscopeError

from ..internals.frameworks import hvd

INSTEAD = {
    "DistributedOptimizer": "give model.compile the optimizer itself; ring.distribute(model) averages its gradients",
    "DistributedGradientTape": "use tf.GradientTape itself; the distributed optimizer averages its gradients",
    "broadcast_variables": "ring.distribute(model) sends rank 0's weights and its optimizer's state",
    "broadcast_global_variables": "ring.distribute(model) sends rank 0's weights and its optimizer's state",
    "BroadcastGlobalVariablesCallback": "ring.distribute(model) sends rank 0's weights before the first step",
    "MetricAverageCallback": "after ring.distribute(model) metrics cover all ranks",
    "LearningRateWarmupCallback": "ring.distribute(model, scale_learning_rate=True, warmup_epochs=...) warms up; give"
    " the optimizer the learning rate of one rank, without * hvd.size()",
    "LearningRateScheduleCallback": "use keras.callbacks.LearningRateScheduler, whose function gets the epoch",
    "CommitStateCallback": "under elastic Horovod ring commits after every epoch; see ring.distribute's commit_steps",
    "UpdateBatchStateCallback": "under elastic Horovod ring commits the place in the data too",
    "UpdateEpochStateCallback": "under elastic Horovod ring commits the epoch too",
    "elastic.TensorFlowKerasState": "ring commits the state of fit by itself; ring.state(model, ...) keeps that of "
    "your own loop",
    "elastic.TensorFlowState": "ring commits the state of fit by itself; ring.state(model, ...) keeps that of your "
    "own loop",
    "elastic.run": "ring commits the state of fit by itself; ring.state(model, ...) keeps that of your own loop",
    "BestModelCheckpoint": "use keras.callbacks.ModelCheckpoint(..., save_best_only=True); rank 0 alone writes",
    "load_model": "use keras.models.load_model, compile the model and call ring.distribute(model)",
    "SyncBatchNormalization": "use keras.layers.BatchNormalization(synchronized=True)",
}


def check_left_over(things: Iterable[Any]) -> None:
    """Raise RingscopeError for one of Horovod's optimizers or callbacks, also if made before `ring.init` or of a
    subclass."""
    for thing in things:
        kind = type(thing)
        if any(base.__module__.startswith("horovod") for base in kind.__mro__):
            raise left_over(kind.__name__ if kind.__name__ in INSTEAD else "DistributedOptimizer")
        if getattr(kind, "_HAS_AGGREGATE_GRAD", False) and hasattr(thing, "_allreduce_grads"):
            raise left_over("DistributedOptimizer")


def left_over(name: str) -> RingscopeError:
    return RingscopeError(f"remove hvd.{name} from the script: it does not work under Keras 3; {INSTEAD[name]}")


def refuse_left_over() -> None:
    """Make Horovod's Keras classes and functions raise an error that says what to use instead."""
    import horovod._keras as optimizers
    import horovod._keras.callbacks as callbacks

    optimizers.create_distributed_optimizer = _refusing("DistributedOptimizer")
    optimizers.load_model = _refusing("load_model")
    hvd.DistributedOptimizer = _refusing("DistributedOptimizer")
    for name in ("SyncBatchNormalization", "DistributedGradientTape", "broadcast_global_variables"):
        setattr(hvd, name, _refusing(name))
    hvd.broadcast_variables = _refusing_keras_variables(hvd.broadcast_variables)
    for state in ("TensorFlowKerasState", "TensorFlowState"):
        getattr(hvd.elastic, state).__init__ = _refusing(f"elastic.{state}")
    hvd.elastic.run = _refusing("elastic.run")
    for name in INSTEAD:
        made = getattr(callbacks, f"{name}Impl", None)
        if made is not None:
            made.__init__ = _refusing(name)
    # These subclasses call the original classes by names that the lines above do not change.
    import horovod.keras.callbacks as keras_callbacks
    import horovod.tensorflow.keras.callbacks as tf_keras_callbacks

    for module in (keras_callbacks, tf_keras_callbacks):
        module.BestModelCheckpoint.__init__ = _refusing("BestModelCheckpoint")


def _refusing_keras_variables(broadcast: Callable[..., Any]) -> Callable[..., Any]:
    """`broadcast` for TensorFlow's own variables; it refuses Keras's variables."""

    def broadcast_variables(variables: Any, *args: Any, **kwargs: Any) -> Any:
        variables = list(variables)
        if any(isinstance(variable, keras.Variable) for variable in variables):
            raise left_over("broadcast_variables")
        return broadcast(variables, *args, **kwargs)

    return broadcast_variables


def _refusing(name: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise left_over(name)

    return refuse
