"""Models made to train with their copies on the other ranks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any

from profiles.ground.errors import RingscopeError

from .alike import ending, horovod_names, statistics, undistributed
from .alike.begin import broadcast
from .data import seeds
from .exchange import from_rank
from .global_batch import normalization
from .gradients import types
from .gradients.average import COMPRESSIONS, OPS, Exchange, average_gradients, horovods
from .gradients.overlap.buckets import Overlap
from .gradients.wire import Outgoing
from .gradients.zero.sharded import NARROW, Shards, check_sharded
from .internals.frameworks import has_gpu, hvd, tf
from .lost import launcher
from .models import has_weights, is_seen, optimizers_of, used_by_step, without_loss_scale
from .start import channel, init, rank, size
from .step import exchange_inside, kinds, one_program
from .step.two_programs import Halves

__all__ = ["STEPS", "distribute"]

STEPS = ("auto", "fit", "compiled")

# Replacements of a model's own methods.
OVERLAID = ("train_step", "fit", "evaluate", "predict", "make_train_function", "_get_metrics_result_or_logs")

_distributed = itertools.count()  # calls of `distribute`


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

    Every optimizer among its attributes averages from now on, in `fit`, `train_on_batch` and loops of your own alike.
    A model that is built gets rank 0's weights now, any model when `fit` begins.

    step: `fit` averages gradients inside the optimizer's `apply`; `compiled` has XLA compile the step, which
        averages within it, or between two programs where that cannot be (faster on GPUs; GRU and LSTM as loops, without
        cuDNN). `auto` compiles on a GPU what XLA takes, says so, and trains the rest, cuDNN's cells too, as `fit`
        does.
    compression: the type that gradients travel as: `none` (as they were computed: a compiled step on GPUs sums
        mixed_bfloat16's in bfloat16), `fp32`, `fp16`, `bf16` (summed in float32).
    aggregate: local steps whose gradients are averaged before they are exchanged and applied.
    groups: (`fit`) split the gradients in this many exchanges; the last layers' leave while the backward pass runs.
    overlap: (`compiled`) whether gradients are exchanged while the program that computes them runs; None: where that
        pays, which is between hosts and between GPUs without NVLink (an all-reduce is timed here).
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
    commit_steps: (elastic Horovod) commit after this number of steps too, and not only after each epoch; a lost
        rank undoes only the steps since.

    To be called on all ranks: they meet here. Raises RingscopeError for what would not train right.
    """
    from . import say
    from .fit import fit, loop
    from .step import choose

    init()
    undistributed.check_kind(model)
    undistributed.check_strategy()
    if process_set is not None:
        raise RingscopeError(
            "ring.distribute trains a model on all ranks; for some of them write a loop of your own with"
            " ring.average_gradients(gradients, process_set=...), or start them by themselves"
        )
    own = optimizers_of(model, of_parts=False)
    used = used_by_step(model)
    together = reduce and size() > 1
    # Where nothing is exchanged, and every step is an update, a step is compiled as a whole, with all that it does.
    alone = aggregate == 1 and not together
    # What is changed on its way, and no plain sum, travels between a step's two programs.
    unscaled = op != "adasum" and predivide_factor == 1.0 and aggregate == 1 and not sharded
    in_the_middle = together and unscaled and compression != "bf16" and groups == 1 and exchange_inside.is_possible(op)
    taken_whole = alone or (in_the_middle and len(used) > 1)
    _check(used, step, compression, groups, op, taken_whole)
    if overlap and step == "fit":
        raise RingscopeError("overlap=True goes with step='compiled'; with step='fit' take groups=k")
    if step == "compiled" and model.run_eagerly:
        raise RingscopeError("the model runs eagerly (run_eagerly=True), and `compiled` does not; take step='fit'")
    # Optimizers of its parts that are distributed already stay as they are.
    optimizers = own + [each for each in optimizers_of(model) if each not in own and not is_seen(each)]
    if sharded:
        only = {"op": (op, "average"), "predivide_factor": (predivide_factor, 1.0), "groups": (groups, 1)}
        elastic = launcher.is_elastic(), False
        check_sharded(optimizers, compression, reduce=(reduce, True), elastic=elastic, **only)
    if warmup_epochs and (warmup_steps or not scale_learning_rate):
        raise RingscopeError("warmup_epochs goes with scale_learning_rate=True, in the place of warmup_steps")
    if commit_steps < 0 or commit_steps % aggregate:
        raise RingscopeError(f"commit_steps={commit_steps} is no multiple of aggregate={aggregate}")
    if (others := channel()) is not None:
        have = others.meet("distribute", has_weights(model))
        if have is None:
            raise RingscopeError(
                "another rank has ended, or calls something else; call ring.distribute(model) on all ranks"
            )
        if len(set(have)) > 1:
            raise RingscopeError(
                f"the model has its weights on rank {have.index(True)}, and none yet on rank {have.index(False)}; build"
                " it on all ranks, or on none, before ring.distribute(model)"
            )
    chooser = choose.Chooser(falls_back=step == "auto", layers=model._flatten_layers)
    if step == "auto":
        step, why = choose.resolved(model, 1 if taken_whole else len(used), groups)
        if has_gpu() and rank() == 0:
            say.line(f"this model is trained with step={step!r}: {why}")
    if step == "compiled":
        choose.check_options()
    _forget_earlier(model)
    # Narrowed inside the compiled programs, XLA fuses the casts; outside they are a kernel for each gradient, which
    # cost a ResNet-50 step on H200s more than half the bytes gave. A sum of several steps stays as exact as it is.
    narrow = tf.float16 if step == "compiled" and compression == "fp16" and aggregate == 1 else None
    summing: dict[str, Any] = {"in_stream": step == "compiled", "op": op, "predivide_factor": predivide_factor}
    exchange: Exchange = partial(
        average_gradients,
        compression="none" if narrow else compression,
        groups=groups,
        **summing,
        sparse_as_dense=sparse_as_dense or sharded,
    )
    if not reduce:
        exchange = _as_they_are
    keeps = together and unscaled and compression == "none"
    keeps = keeps and types.summed_as(tf.bfloat16, **summing) == tf.bfloat16
    beside = unscaled and (compression == "none" or narrow is not None)
    outgoing = partial(
        Outgoing,
        keeps=keeps,
        narrow=narrow,
        as_rows=together and unscaled and compression in ("none", "fp32") and not sparse_as_dense,
        averages=op == "average",
        packs=together and op != "adasum",
    )
    if overlap and not beside:
        raise RingscopeError(
            "overlap=True sends gradients as they are; leave out aggregate, sharded, predivide_factor, op='adasum' and"
            " compression='bf16' or 'fp32'"
        )
    if overlap and len(used) > 1:
        raise RingscopeError("overlap=True goes with one optimizer, and this model has several; leave it out")
    overlaps = None
    if step == "compiled" and together and beside and overlap is not False and len(used) == 1:
        overlaps = Overlap(horovods(op), overlap)
    middle = None
    if in_the_middle:
        middle = exchange_inside.Inside(op, exchange, outgoing, overlaps)
    # XLA has no kernel for Horovod's operations, and Keras's own "auto" turns it on where there is a GPU.
    model.jit_compile = False
    applies = []
    for optimizer in optimizers:
        if scale_learning_rate and not warmup_epochs:
            _scale_learning_rate(optimizer, warmup_steps)
        shards = Shards(optimizer, NARROW[compression]) if sharded and together else None
        apply = kinds.reduce_in_apply(model, optimizer, exchange, aggregate, shards)
        applies.append((optimizer, apply))
        if step == "compiled" and optimizer is used[0] and not taken_whole:
            halves = Halves(
                model,
                optimizer,
                apply,
                exchange,
                outgoing(),
                chooser,
                aggregate=aggregate,
                reduces=together,
                shards=shards,
                overlap=overlaps,
            )
            kinds.compile_step(model, optimizer, apply, chooser, halves, middle, reduces=together)
        optimizer.distributed_by_ring = True
    if step == "compiled" and taken_whole:
        one_program.compile_whole(model, applies, chooser, middle)
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
            one_program.join_losses(model)
    if reduce:
        fit.distribute_fit(model, others)
        ending.compare_at_exit(model)
    if has_weights(model):
        broadcast(model)
        statistics.alike_now(model)
    return model


def _check(optimizers: Sequence[Any], step: str, compression: str, groups: int, op: str, taken_whole: bool) -> None:
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
    if op == "adasum" and hvd.size() > 1 and not hvd.mpi_enabled():
        raise RingscopeError("Gloo has no Adasum; start the ranks with MPI: mpirun -np N, or horovodrun --mpi")
    if step == "compiled" and len(optimizers) > 1 and not taken_whole:
        raise RingscopeError(
            f"the model has {len(optimizers)} optimizers, and `compiled` takes several only with gradients that are"
            " summed as they travel, by a Horovod with calls for XLA (scripts/build_horovod.py); take step='fit'"
        )
    if step == "compiled" and groups > 1:
        raise RingscopeError(
            "groups=k is for step='fit'; a compiled step's gradients leave while its backward pass runs where that pays"
            " (overlap=True: everywhere)"
        )


def _as_they_are(gradients: Sequence[Any], largest: Sequence[int]) -> list[Any]:
    return list(gradients)


def _forget_earlier(model: Any) -> None:
    """A model that was compiled anew starts anew: what an earlier call laid over its methods goes."""
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
