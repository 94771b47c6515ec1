"""Make a model train together with its copies on the other ranks."""

from __future__ import annotations

import itertools
from typing import Any

from profiles.ground.errors import RingscopeError

from . import say
from .alike import ending, statistics, undistributed
from .alike.begin import broadcast
from .data import seeds
from .exchange import from_rank
from .global_batch import normalization
from .gradients.average import horovods
from .gradients.overlap.buckets import Overlap
from .gradients.zero.sharded import NARROW, Shards
from .internals.frameworks import has_gpu
from .lost import launcher
from .models import has_weights, kept, without_loss_scale
from .options import Options
from .plan import Plan, planned
from .ranks.channel import Channel
from .start import channel, init, rank, size
from .step import choose, exchange_inside, kinds, one_program
from .step.two_programs import Halves

# Methods of a model that ring replaces.
OVERLAID = ("train_step", "fit", "evaluate", "predict", "make_train_function", "_get_metrics_result_or_logs")

_distributed = itertools.count()  # number of the call of `distribute` that made this


def distribute(
    model: Any,
    *,
    step: str = "auto",
    compression: str = "none",
    aggregate: int = 1,
    groups: int = 1,
    overlap: bool | None = None,
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

    Every optimizer among its attributes averages gradients from now on, in `fit`, `train_on_batch` and your own loops.
    A model that is built gets rank 0's weights now; any other model gets them when `fit` begins.

    step: `fit` averages gradients inside the optimizer's `apply`. `compiled` makes XLA compile the step, with the
        exchange inside the program, or between two programs if that is impossible (faster on GPUs; GRU and LSTM run as
        loops, without cuDNN). `auto` compiles on a GPU if XLA can compile the step, prints its choice, and trains other
        models, including cuDNN's cells, as `fit` does.
    compression: the type in which gradients travel: `none` (the type in which they were computed: a compiled step on
        GPUs sums mixed_bfloat16's in bfloat16), `fp32`, `fp16`, `bf16` (summed in float32).
    aggregate: number of local steps whose gradients are averaged before they are exchanged and applied.
    groups: (`fit`) split the gradients into this number of exchanges; the last layers' gradients leave while the
        backward pass runs.
    overlap: (`compiled`) whether gradients are exchanged while the program that computes them runs. None: where that
        pays, which is between hosts and between GPUs without NVLink (an all-reduce is timed here).
    scale_learning_rate: multiply the rate by the number of ranks, reached linearly over `warmup_steps` steps
        (Goyal et al. 2017, arXiv:1706.02677), or over the steps of `warmup_epochs` epochs of the first `fit`.
    op: how the ranks' gradients are joined: `average`, `sum`, or `adasum` (MPI only; Maleki et al. 2020,
        arXiv:2006.02924).
    predivide_factor: gradients are divided by this factor before they are summed, and by ranks / factor afterwards.
    sparse_as_dense: gradients of embeddings travel as dense gradients.
    reduce: False trains every rank alone: the upper bound without communication.
    sharded: each rank keeps and updates one part of the optimizer's state (ZeRO-1): the same weights in less memory.
        The state is collected when callbacks save the model after an epoch, and after `fit`; to save it at another
        time, first call `ring.gather(model)` on all ranks.
    process_set: refused, because all ranks train a model. In your own loop `average_gradients` accepts one.
    commit_steps: (elastic Horovod) also commit after this number of steps, and not only after each epoch; a lost
        rank undoes only the steps since.

    Call it on all ranks: they meet here. Raises RingscopeError for a model or options that would not train right.
    """
    init()
    undistributed.check_kind(model)
    undistributed.check_strategy()
    if process_set is not None:
        raise RingscopeError(
            "ring.distribute trains a model on all ranks; to train on some ranks only, write a loop of your own with "
            "ring.average_gradients(gradients, process_set=...), or start only those ranks"
        )
    options = Options(
        step=step,
        compression=compression,
        aggregate=aggregate,
        groups=groups,
        overlap=overlap,
        scale_learning_rate=scale_learning_rate,
        warmup_steps=warmup_steps,
        warmup_epochs=warmup_epochs,
        op=op,
        predivide_factor=predivide_factor,
        sparse_as_dense=sparse_as_dense,
        reduce=reduce,
        sharded=sharded,
        commit_steps=commit_steps,
    )
    options.check()
    plan = planned(model, options)
    others = channel()
    if others is not None:
        _meet(model, others)
    if plan.why and has_gpu() and rank() == 0:
        say.line(f"this model is trained with step={plan.step!r}: {plan.why}")
    if plan.step == "compiled":
        choose.check_options()
    _forget_earlier(model)
    _lay_step(model, plan, others)
    _lay_training(model, plan, others)
    if has_weights(model):
        broadcast(model)
        statistics.alike_now(model)
    return model


def _meet(model: Any, others: Channel) -> None:
    """Raises RingscopeError unless all ranks are here, and either all of their models have weights or none has."""
    have = others.meet("distribute", has_weights(model))
    if have is None:
        raise RingscopeError(
            "another rank has ended, or calls another function; call ring.distribute(model) on all ranks"
        )
    if len(set(have)) > 1:
        raise RingscopeError(
            f"the model has its weights on rank {have.index(True)}, and none yet on rank {have.index(False)}; build it "
            "on all ranks, or on none, before ring.distribute(model)"
        )


def _lay_step(model: Any, plan: Plan, others: Channel | None) -> None:
    """Make the optimizers average gradients, and XLA compile the train step if the plan says so."""
    options, exchange = plan.options, plan.exchange
    chooser = choose.Chooser(falls_back=options.step == "auto", model=model, others=others)
    overlap = Overlap(horovods(options.op), options.overlap) if plan.may_overlap else None
    inside = None
    if plan.inside:
        inside = exchange_inside.Inside(options.op, exchange, plan.outgoing, overlap)
    # XLA has no kernel for Horovod's operations, and Keras's own "auto" turns XLA on if there is a GPU.
    model.jit_compile = False
    applies = []
    for optimizer in plan.optimizers:
        if options.scale_learning_rate:
            _scale_learning_rate(optimizer, options.warmup_steps)
        shards = Shards(optimizer, NARROW[options.compression]) if options.sharded and plan.reduces else None
        apply = kinds.reduce_in_apply(model, optimizer, exchange, options.aggregate, shards)
        applies.append((optimizer, apply))
        if plan.step == "compiled" and optimizer is plan.used[0] and not plan.whole:
            halves = Halves(
                model,
                optimizer,
                apply,
                exchange,
                plan.outgoing(),
                chooser,
                aggregate=options.aggregate,
                reduces=plan.reduces,
                shards=shards,
                overlap=overlap,
            )
            kinds.compile_step(model, optimizer, apply, chooser, halves, inside, reduces=plan.reduces)
        optimizer.distributed_by_ring = without_loss_scale(optimizer).distributed_by_ring = True
    if plan.step == "compiled" and plan.whole:
        one_program.compile_whole(model, applies, chooser, inside)
    kept(model).step = plan.step


def _lay_training(model: Any, plan: Plan, others: Channel | None) -> None:
    """Make `fit`, `evaluate` and `predict` work on all ranks: with shares of the data, joined statistics, and separate
    random numbers."""
    from .fit import fit, loop
    from .fit.warm_up import WarmUp

    options = plan.options
    kept(model).scales_rate = options.scale_learning_rate
    kept(model).warm_up = WarmUp(plan.optimizers, options.warmup_epochs) if options.warmup_epochs else None
    if launcher.is_elastic():
        kept(model).elastic = next(_distributed), options.commit_steps
    model.train_function = model.test_function = None
    loop.lay_over(model)
    seeds.set_apart(rank(), lambda value: from_rank(0, value))
    if plan.reduces:
        normalization.synchronise(model)
        if plan.step == "fit":
            one_program.join_losses(model)
    if options.reduce:
        fit.distribute_fit(model, others)
        ending.compare_at_exit(model)


def _forget_earlier(model: Any) -> None:
    """Restore the methods that an earlier call replaced, because a model that was compiled again starts anew."""
    for name in OVERLAID:
        if getattr(model.__dict__.get(name), "by_ring", False):
            del model.__dict__[name]


def _scale_learning_rate(optimizer: Any, warmup_steps: int) -> None:
    from keras.optimizers import schedules

    inner = without_loss_scale(optimizer)
    if isinstance(inner._learning_rate, schedules.LearningRateSchedule):
        raise RingscopeError("the learning rate is a schedule already; multiply it by ring.size() where you build it")
    rate = float(inner.learning_rate)
    optimizer.learning_rate = (
        schedules.PolynomialDecay(rate, warmup_steps, end_learning_rate=rate * size(), power=1.0)
        if warmup_steps
        else rate * size()
    )
