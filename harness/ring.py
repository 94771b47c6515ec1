"""The collective seam: Keras 3 models that really train together under Horovod 0.28.1.

    from harness import ring; ring.init()     # first, before TensorFlow touches a GPU
    model.compile(...)
    ring.distribute(model)                    # then model.fit(...) as before, under horovodrun or mpirun

Why it is needed: Horovod's own `horovod.keras` wraps methods that Keras 3 no longer calls, so it trains without an
error and never reduces a gradient (horovod#4290). Here the gradients are averaged in the optimizer's `apply`, or,
compiled, between two XLA programs, because XLA has no kernel for Horovod's operations.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from profiles.errors import RingscopeError

from .exchange import COMPRESSIONS, average_gradients, average_logs, average_statistics, broadcast, hvd, tf

__all__ = [
    "COMPRESSIONS",
    "STEPS",
    "average_gradients",
    "average_logs",
    "average_statistics",
    "broadcast",
    "distribute",
    "init",
    "is_distributed",
    "local_rank",
    "rank",
    "size",
    "threads",
]

STEPS = ("fit", "compiled")


def init(*, pin: bool = True) -> None:
    """Start Horovod, give this process one GPU and its share of the host's cores; before TensorFlow is first used.

    pin: False leaves all GPUs to this process.

    Raises RingscopeError where there are fewer GPUs than local ranks, or TensorFlow has already taken all of them.
    """
    if hvd.is_initialized():
        return
    # Else the update is launched only when the host has seen the all-reduce end on the GPU: some 4 ms a step.
    os.environ.setdefault("HOROVOD_ENABLE_ASYNC_COMPLETION", "1")
    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    try:
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)
        if gpus and pin:
            # A launcher that already shows each process one GPU leaves nothing to choose.
            mine = 0 if len(gpus) == 1 and _one_gpu_each() else hvd.local_rank()
            if mine >= len(gpus):
                raise RingscopeError(
                    f"{hvd.local_size()} ranks on this host but {len(gpus)} GPUs; start at most {len(gpus)} ranks here"
                )
            tf.config.set_visible_devices(gpus[mine], "GPU")
        # Else each of N local ranks starts a thread for every core (horovod#2295).
        tf.config.threading.set_intra_op_parallelism_threads(threads())
        tf.config.threading.set_inter_op_parallelism_threads(max(2, threads()))
    except RuntimeError as error:
        raise RingscopeError(
            "TensorFlow was used before ring.init(); make ring.init() the script's first line"
        ) from error


def _one_gpu_each() -> bool:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return bool(visible) and "," not in visible


def threads() -> int:
    """The cores for this process: those it is bound to, or its share of those that the ranks of this host all use."""
    mine, everybodys = len(os.sched_getaffinity(0)), len(os.sched_getaffinity(1))
    ranks = int(hvd.local_size())
    return mine if mine * ranks <= everybodys else max(1, mine // ranks)


def rank() -> int:
    return int(hvd.rank())


def size() -> int:
    return int(hvd.size())


def local_rank() -> int:
    return int(hvd.local_rank())


def distribute(
    model: Any,
    *,
    step: str = "fit",
    compression: str = "none",
    aggregate: int = 1,
    groups: int = 1,
    scale_learning_rate: bool = False,
    warmup_steps: int = 0,
    reduce: bool = True,
) -> Any:
    """Make a compiled Keras model train with its copies on the other ranks; returns the model.

    step: `fit` averages gradients inside the optimizer's `apply`; `compiled` compiles forward + backward and the update
        by XLA and averages between them (faster on GPUs; no cuDNN RNN cells).
    compression: what the gradients travel as: `none`, `fp16`, `bf16` (summed in float32).
    aggregate: local steps whose gradients are averaged before they are exchanged and applied.
    groups: (`fit`) split the gradients in so many exchanges; the last layers' leave while the backward pass runs.
    scale_learning_rate: multiply the rate by the number of ranks, reached linearly over `warmup_steps` steps
        (Goyal et al. 2017, arXiv:1706.02677).
    reduce: False trains every rank alone: the upper bound without communication.
    """
    from . import fit

    _check(model, step, compression)
    init()
    # A model that was compiled anew starts anew: what an earlier call laid over its methods goes.
    for name in ("train_step", "fit"):
        model.__dict__.pop(name, None)
    if scale_learning_rate:
        _scale_learning_rate(model.optimizer, warmup_steps)
    # Narrowed inside the compiled programs, XLA fuses the casts; outside they are a kernel for each gradient, which
    # cost a ResNet-50 step on H200s more than half the bytes gave. A sum of several steps stays as exact as it is.
    narrow = tf.float16 if step == "compiled" and compression == "fp16" and aggregate == 1 else None
    exchange: Callable[[Sequence[Any]], list[Any]] = (
        partial(average_gradients, compression="none" if narrow else compression, groups=groups) if reduce else list
    )
    # XLA has no kernel for Horovod's operations, and Keras's own "auto" turns it on where there is a GPU.
    model.jit_compile = False
    if step == "compiled":
        _compile_halves(model, exchange, aggregate, narrow, pack=reduce and size() > 1)
    else:
        _reduce_in_apply(model.optimizer, exchange, aggregate)
    model.train_function = None
    model.optimizer.distributed_by_ring = True
    if reduce:
        fit.distribute_fit(model)
    return model


def is_distributed(model: Any) -> bool:
    """Whether its optimizer is one that `distribute` has seen; `model.compile` brings one that it has not."""
    return getattr(model.optimizer, "distributed_by_ring", False) is True


def _check(model: Any, step: str, compression: str) -> None:
    if getattr(model, "optimizer", None) is None:
        raise RingscopeError("ring.distribute(model) wants a compiled model; call model.compile(...) first")
    if is_distributed(model):
        raise RingscopeError("this model is distributed already; call ring.distribute(model) once a compile()")
    for value, known in ((step, STEPS), (compression, COMPRESSIONS)):
        if value not in known:
            raise RingscopeError(f"{value!r} is none of {', '.join(known)}")


#
# The two kinds of step
#


def _reduce_in_apply(optimizer: Any, exchange: Callable[[Sequence[Any]], list[Any]], aggregate: int) -> None:
    """Shadow the optimizer's `apply`. With float16 that is the loss-scaling optimizer's: an overflow on one rank is
    then an overflow on all, and all of them skip the step and halve the scale together."""
    apply = optimizer.apply

    def update(gradients: Sequence[Any], variables: Any) -> None:
        apply(exchange(gradients), variables)

    wrapped = _aggregated(update, aggregate) if aggregate > 1 else update
    optimizer.apply = lambda grads, trainable_variables=None: wrapped(list(grads), trainable_variables)


def _compile_halves(
    model: Any, exchange: Callable[[Sequence[Any]], list[Any]], aggregate: int, narrow: Any | None, *, pack: bool
) -> None:
    """Replace `train_step` by two XLA programs with the exchange between them.

    The first is the model's own train step, traced with an `apply` that only catches the gradients; the second `apply`.
    `narrow`: the type that float32 gradients travel as. `pack`: they travel as one vector.
    """
    optimizer, train_step, apply = model.optimizer, model.train_step, model.optimizer.apply
    caught: list[tuple[list[Any], list[Any]]] = []
    packing = _Packing()

    def catch(grads: Any, trainable_variables: Any = None) -> None:
        caught.append((list(grads), list(trainable_variables or model.trainable_variables)))

    @tf.function(jit_compile=True, reduce_retracing=True)
    def forward_backward(data: Any) -> tuple[Any, list[Any]]:
        caught.clear()
        optimizer.apply = catch
        try:
            logs = train_step(data)
        finally:
            optimizer.apply = apply
        if len(caught) != 1:
            raise RingscopeError(f"the train step applies gradients {len(caught)} times; `compiled` wants exactly once")
        gradients = [tf.cast(g, narrow) if narrow and g is not None else g for g in caught[0][0]]
        return logs, packing.pack(gradients) if pack else gradients

    def update(gradients: Sequence[Any], variables: Any) -> None:
        def unpacked(packed: Sequence[Any]) -> None:
            grads = packing.unpack(packed)
            wide = [g if g is None else tf.cast(g, v.dtype) for g, v in zip(grads, variables, strict=True)]
            apply(wide if narrow else grads, variables)

        tf.function(unpacked, jit_compile=True)(exchange(gradients))

    wrapped = _aggregated(update, aggregate) if aggregate > 1 else update

    def step(data: Any) -> Any:
        logs, gradients = forward_backward(data)
        wrapped(gradients, caught[0][1])
        return logs

    model.train_step = step


class _Packing:
    """Dense gradients as one vector: one tensor for the ranks to agree on, and none of Horovod's copies into and out of
    a buffer of its own."""

    def __init__(self) -> None:
        self._shapes: list[Any] = []

    def pack(self, gradients: list[Any]) -> list[Any]:
        """One vector, or the gradients as they are where some are missing, sparse, of unlike types or open shapes."""
        dense = all(isinstance(g, tf.Tensor) and g.shape.is_fully_defined() for g in gradients)
        if not dense or len({g.dtype for g in gradients}) != 1:
            self._shapes = []
            return gradients
        self._shapes = [g.shape for g in gradients]
        return [tf.concat([tf.reshape(g, [-1]) for g in gradients], axis=0)]

    def unpack(self, gradients: Sequence[Any]) -> list[Any]:
        if not self._shapes:
            return list(gradients)
        parts = tf.split(gradients[0], [shape.num_elements() for shape in self._shapes])
        return [tf.reshape(part, shape) for part, shape in zip(parts, self._shapes, strict=True)]


def _aggregated(update: Callable[[Sequence[Any], Any], None], every: int) -> Callable[[Sequence[Any], Any], None]:
    """`update` with the mean of the last `every` calls' gradients, once in so many calls; sparse ones become dense."""
    state: dict[str, Any] = {}

    def add(gradients: Sequence[Any], variables: Any) -> None:
        if not state:
            with tf.init_scope():
                state["calls"] = tf.Variable(0, dtype=tf.int64, trainable=False)
                state["sums"] = [None if g is None else tf.Variable(tf.zeros(g.shape, g.dtype)) for g in gradients]
        for total, gradient in zip(state["sums"], gradients, strict=True):
            if total is not None:
                total.assign_add(tf.convert_to_tensor(gradient))

        def flush() -> None:
            update([None if total is None else total / every for total in state["sums"]], variables)
            for total in state["sums"]:
                if total is not None:
                    total.assign(tf.zeros_like(total))

        # Every rank counts the same calls, so all take the same branch and the exchange inside it matches.
        tf.cond(state["calls"].assign_add(1) % every == 0, flush, lambda: None)

    return add


def _scale_learning_rate(optimizer: Any, warmup_steps: int) -> None:
    from keras.optimizers import schedules

    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if isinstance(inner._learning_rate, schedules.LearningRateSchedule):
        raise RingscopeError("the learning rate is a schedule already; multiply it by ring.size() where you build it")
    rate = float(inner.learning_rate)
    optimizer.learning_rate = (
        schedules.PolynomialDecay(rate, warmup_steps, end_learning_rate=rate * size(), power=1.0)
        if warmup_steps
        else rate * size()
    )
