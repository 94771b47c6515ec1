"""The collective seam: Keras 3 models that really train together under Horovod 0.28.1.

    from harness import ring; ring.init()     # first, before TensorFlow touches a GPU
    model.compile(...)
    ring.distribute(model)                    # then model.fit(...) as before, under horovodrun or mpirun

Why it is needed: Horovod's own `horovod.keras` wraps methods that Keras 3 no longer calls, so it trains without an
error and never reduces a gradient (horovod#4290). Here the gradients are averaged in the optimizer's `apply`, or,
compiled, between two XLA programs, because XLA has no kernel for Horovod's operations.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from functools import partial
from typing import Any

from profiles.errors import RingscopeError

from . import cache, ending, horovod_names, normalization, saving, seeds, undistributed, update
from .channel import Channel, launcher_share, meet_server
from .elastic import again, launcher
from .exchange import (
    average_logs,
    broadcast,
    from_rank,
    has_weights,
    hvd,
    is_default,
    is_distributed,
    is_seen,
    optimizers_of,
    tf,
)
from .gradients import COMPRESSIONS, OPS, average_gradients
from .moving import average_statistics
from .parts import gather
from .sharded import NARROW, Shards, check_sharded

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
    "meet",
    "rank",
    "size",
    "state",
    "threads",
]

STEPS = ("auto", "fit", "compiled")

# What is laid over a model's own methods.
OVERLAID = ("train_step", "fit", "evaluate", "predict", "make_train_function", "_get_metrics_result_or_logs")

STARTS = 5  # in a row that may fail, under elastic Horovod

_channel: Channel | None = None
_distributed = itertools.count()  # calls of `distribute`


def init(*, pin: bool = True, seed: int | bool | None = None, process_sets: Any = None) -> None:
    """Start Horovod, give this process one GPU and its share of the host's cores; before TensorFlow is first used.

    pin: False leaves all GPUs to this process.
    seed: of Python's, NumPy's and TensorFlow's generators, so that all ranks prepare the same data: drawn by rank 0 and
        printed unless given; False leaves the generators alone.
    process_sets: Horovod's, for `average_gradients(..., process_set=...)`: a list of them, or "dynamic" for those that
        are added later with hvd.add_process_set.

    Under elastic Horovod the script is begun again whenever ranks are lost or added (docs/guides/train.md), and this
    may end it where this process is no rank any more.

    Raises RingscopeError where there are fewer GPUs than local ranks, TensorFlow has already taken all of them, or
    Keras computes with something else.
    """
    if hvd.is_initialized():
        return
    undistributed.check_backend()
    cache.turn_on()
    # Else the update is launched only when the host has seen the all-reduce end on the GPU: some 4 ms a step.
    os.environ.setdefault("HOROVOD_ENABLE_ASYNC_COMPLETION", "1")
    if process_sets is not None:
        os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"  # read when Horovod starts
    if launcher.is_elastic():
        _init_elastic(process_sets)
    else:
        hvd.init(process_sets=process_sets)
    horovod_names.refuse_left_over()
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
    _meet(seed)


def _init_elastic(process_sets: Any) -> None:
    """Start Horovod with the ranks that there are now."""
    if again.before().times:
        launcher.ask_for_rank()
    launcher.listen()
    try:
        hvd.init(process_sets=process_sets)
    except ValueError:  # one of them has ended meanwhile
        failed = again.before().failed + 1
        if failed > STARTS:
            raise
        again.carry(failed=failed)
        again.begin("a rank ended before all had begun")


def _meet(seed: int | bool | None) -> None:
    """Connect the ranks' hosts, and sow."""
    global _channel
    before = again.before().seed
    again.carry(ranks=hvd.size())
    if hvd.size() == 1:
        again.carry(seed=seeds.sow(seed, 0, lambda value: value, before))
        return
    share = launcher_share(hvd.rank())
    _channel = meet_server(hvd.rank(), hvd.size(), share, again.left if launcher.is_elastic() else None)
    if _channel is None:
        raise RingscopeError(f"rank {hvd.rank()} cannot reach rank 0's host by TCP; open the ports between the hosts")
    again.carry(seed=seeds.sow(seed, hvd.rank(), share, before))
    ending.at_exit(_channel)
    undistributed.watch_models()
    saving.write_whole_files()


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


def by_mpi() -> bool:
    """Whether the ranks exchange by MPI, and not by Gloo."""
    return bool(hvd.mpi_enabled())


def meet(kind: str, payload: Any) -> list[Any] | None:
    """What every rank brings to the meeting of that kind, by rank, without TensorFlow; None where a rank has ended."""
    return [payload] if _channel is None else _channel.meet(kind, payload)


def state(model: Any, **values: Any) -> Any:
    """For a loop of your own under elastic Horovod: an object with these values as attributes, as they were last
    committed, and the model's weights and optimizer too. `.commit()` keeps them; all ranks call it after the same step.

        state = ring.state(model, epoch=0)
        for epoch in range(state.epoch, 10):
            ...
            state.epoch = epoch + 1
            state.commit()

    Raises RingscopeError where the model is not built, or `ring.distribute` has not seen it.
    """
    from .elastic.state import State

    return State(model, **values)


def distribute(
    model: Any,
    *,
    step: str = "auto",
    compression: str = "none",
    aggregate: int = 1,
    groups: int = 1,
    scale_learning_rate: bool = False,
    warmup_steps: int = 0,
    warmup_epochs: int = 0,
    op: str = "average",
    predivide_factor: float = 1.0,
    sparse_as_dense: bool = False,
    reduce: bool = True,
    sharded: bool = False,
    process_set: Any = None,
    commit_steps: int = 0,
) -> Any:
    """Make a compiled Keras model train with its copies on the other ranks; returns the model.

    Every optimizer among its attributes averages from now on, in `fit`, `train_on_batch` and loops of your own alike.
    A model that is built gets rank 0's weights now, any model when `fit` begins.

    step: `fit` averages gradients inside the optimizer's `apply`; `compiled` compiles forward + backward and the update
        by XLA and averages between them (faster on GPUs; no cuDNN RNN cells). `auto` compiles on a GPU what XLA takes,
        says so, and trains the rest as `fit` does.
    compression: what the gradients travel as: `none`, `fp16`, `bf16` (summed in float32).
    aggregate: local steps whose gradients are averaged before they are exchanged and applied.
    groups: (`fit`) split the gradients in so many exchanges; the last layers' leave while the backward pass runs.
    scale_learning_rate: multiply the rate by the number of ranks, reached linearly over `warmup_steps` steps
        (Goyal et al. 2017, arXiv:1706.02677), or over the steps of `warmup_epochs` epochs of the first `fit`.
    op: what becomes of the ranks' gradients: `average`, `sum`, or `adasum` (MPI only; Maleki et al. 2020,
        arXiv:2006.02924).
    predivide_factor: gradients are divided by it before they are summed, and by ranks / it after.
    sparse_as_dense: gradients of embeddings travel as dense ones.
    reduce: False trains every rank alone: the upper bound without communication.
    sharded: each rank keeps and updates one part of the optimizer's state (ZeRO-1): the same weights in less memory.
        The state is together when callbacks save the model after an epoch, and after `fit`; before it is saved at
        another time call `ring.gather(model)` on all ranks.
    process_set: refused; a model is trained by all ranks. `average_gradients` takes one, in a loop of your own.

    commit_steps: (elastic Horovod) what a lost rank does not undo is committed after so many steps too, and not only
        after each epoch.

    To be called on all ranks: they meet here.
    """
    from . import choose, fit, loop

    init()
    undistributed.check_kind(model)
    if process_set is not None:
        raise RingscopeError(
            "ring.distribute trains a model on all ranks; for some of them write a loop of your own with"
            " ring.average_gradients(gradients, process_set=...), or start them by themselves"
        )
    own = optimizers_of(model, of_parts=False)
    used = [each for each in own if len(own) == 1 or not is_default(model, each)]
    _check(used, step, compression, groups, op)
    # Those of its parts that are distributed already, with the part, stay as they are.
    optimizers = own + [each for each in optimizers_of(model) if each not in own and not is_seen(each)]
    if sharded:
        only = {"op": (op, "average"), "predivide_factor": (predivide_factor, 1.0), "groups": (groups, 1)}
        elastic = launcher.is_elastic(), False
        check_sharded(optimizers, compression, reduce=(reduce, True), elastic=elastic, **only)
    if warmup_epochs and (warmup_steps or not scale_learning_rate):
        raise RingscopeError("warmup_epochs goes with scale_learning_rate=True, in the place of warmup_steps")
    if _channel is not None and _channel.meet("distribute") is None:
        raise RingscopeError(
            "another rank has ended, or calls something else; call ring.distribute(model) on all ranks"
        )
    if commit_steps < 0 or commit_steps % aggregate:
        raise RingscopeError(f"commit_steps={commit_steps} is no multiple of aggregate={aggregate}")
    falls_back = step == "auto"
    if falls_back:
        step, why = choose.resolved(model, len(used), groups)
        if tf.config.get_visible_devices("GPU") and rank() == 0:
            choose.say(f"this model is trained with step={step!r}: {why}")
    # A model that was compiled anew starts anew: what an earlier call laid over its methods goes.
    for name in OVERLAID:
        if getattr(model.__dict__.get(name), "by_ring", False):
            del model.__dict__[name]
    # Narrowed inside the compiled programs, XLA fuses the casts; outside they are a kernel for each gradient, which
    # cost a ResNet-50 step on H200s more than half the bytes gave. A sum of several steps stays as exact as it is.
    narrow = tf.float16 if step == "compiled" and compression == "fp16" and aggregate == 1 else None
    exchange: update.Exchange = (
        partial(
            average_gradients,
            compression="none" if narrow else compression,
            groups=groups,
            in_stream=step == "compiled",
            op=op,
            predivide_factor=predivide_factor,
            sparse_as_dense=sparse_as_dense or sharded,
        )
        if reduce
        else list
    )
    together = reduce and size() > 1
    # XLA has no kernel for Horovod's operations, and Keras's own "auto" turns it on where there is a GPU.
    model.jit_compile = False
    for optimizer in optimizers:
        if scale_learning_rate and not warmup_epochs:
            _scale_learning_rate(optimizer, warmup_steps)
        shards = Shards(optimizer, NARROW[compression]) if sharded and together else None
        apply = update.reduce_in_apply(model, optimizer, exchange, aggregate, shards)
        if step == "compiled" and optimizer is used[0]:
            update.compile_halves(
                model,
                optimizer,
                apply,
                exchange,
                aggregate,
                narrow,
                reduces=together,
                pack=op != "adasum",
                chooser=choose.Chooser(falls_back=falls_back),
                shards=shards,
            )
        optimizer.distributed_by_ring = True
    if warmup_epochs:

        def warm_up(steps_per_epoch: int) -> None:
            for optimizer in optimizers:
                _scale_learning_rate(optimizer, warmup_epochs * steps_per_epoch)

        model.__dict__["warm_up_by_ring"] = warm_up
    model.__dict__["step_by_ring"] = step
    if launcher.is_elastic():
        model.__dict__["elastic_by_ring"] = next(_distributed), commit_steps
    model.train_function = model.test_function = None
    loop.lay_over(model)
    seeds.set_apart(rank(), lambda value: from_rank(0, value))
    if together:
        normalization.synchronise(model)
        if step == "fit":
            update.join_losses(model)
    if reduce:
        fit.distribute_fit(model, _channel)
        ending.compare_at_exit(model)
    if has_weights(model):
        broadcast(model)
    return model


def _check(optimizers: Sequence[Any], step: str, compression: str, groups: int, op: str) -> None:
    if not optimizers:
        raise RingscopeError(
            "ring.distribute(model) wants a compiled model; call model.compile(...) first (for a loop of your own"
            " model.compile(optimizer) is enough)"
        )
    if any(map(is_seen, optimizers)):
        raise RingscopeError(
            "an optimizer of this model is distributed already, with it or with another model; call"
            " ring.distribute(model) once a compile(), and give every model an optimizer of its own"
        )
    horovod_names.check_left_over(optimizers)
    for value, known in ((step, STEPS), (compression, COMPRESSIONS), (op, OPS)):
        if value not in known:
            raise RingscopeError(f"{value!r} is none of {', '.join(known)}")
    if compression == "bf16" and op != "average":
        raise RingscopeError(f"bf16 is for averages, not for {op}; take compression='fp16' or 'none'")
    if op == "adasum" and not hvd.mpi_enabled():
        raise RingscopeError("Gloo has no Adasum; start the ranks with MPI: mpirun -np N, or horovodrun --mpi")
    if step == "compiled" and len(optimizers) > 1:
        raise RingscopeError(f"the model has {len(optimizers)} optimizers, and `compiled` wants one; take step='fit'")
    if step == "compiled" and groups > 1:
        raise RingscopeError(
            "groups are exchanged while the backward pass runs, which `compiled` ends first; leave it out"
        )


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
