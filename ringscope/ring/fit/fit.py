"""`model.fit` beyond averaged gradients: all ranks start alike, train on their own share of the data, and agree on
logs."""

from __future__ import annotations

import functools
import inspect
import warnings
from typing import Any

import keras

from profiles.ground import threads
from profiles.ground.errors import RingscopeError

from ..alike import data, statistics, undistributed
from ..alike.weights import compared
from ..data import blocks, samples, seeds, sharing, shuffles
from ..elastic import resume
from ..exchange import from_rank
from ..global_batch import metrics, normalization
from ..global_batch.moving_statistics import is_stateful
from ..internals.frameworks import hvd, tf
from ..lost import launcher
from ..models import UNEVEN, check_distributed, kept
from ..ranks import stopping
from ..ranks.channel import Channel
from ..say import once
from . import changed_weights, joint_callbacks, schedules, step_counts
from .build import build
from .callbacks import listed
from .evaluation import distribute_evaluation
from .watch import CUT, OWN, WHOLE, Watch

UNSEEDED = (0, 0)


def distribute_fit(model: Any, channel: Channel | None) -> None:
    """Replace `model.fit`: each rank trains on its share, with the same number of batches on all, so that no rank waits
    for a step that another does not take.

    `fit(..., shard=False)` says that the data is this rank's share already. `unknown_length="count"` makes rank 0 count
    the batches of a data set of unknown length.
    """
    fit = model.fit
    signature = inspect.signature(fit)
    watch = Watch(model, channel)
    watch.lay_over()
    distribute_evaluation(model, watch, channel)

    @functools.wraps(fit)
    def distributed(*args: Any, shard: bool = True, unknown_length: str = "together", **kwargs: Any) -> Any:
        check_distributed(model)
        if unknown_length not in sharing.UNKNOWN_LENGTH:
            raise RingscopeError(
                f"unknown_length={unknown_length!r} is no choice; choose from {', '.join(sharing.UNKNOWN_LENGTH)}"
            )
        undistributed.check_strategy()
        options = _by_name(signature, args, kwargs)
        # Under elastic Horovod a rank that has joined gets its weights only later.
        own = (None, None) if launcher.is_elastic() else digests(model)
        changed_weights.say_parted(model, *zip(*stopping.everybodys(channel, "fit", own), strict=True))
        if launcher.is_elastic():
            if shard:
                _split_validation(options)
            return resume.fit(model, functools.partial(run, shard, unknown_length), build, options, shard=shard)
        return run(shard, unknown_length, options, None)

    def run(shard: bool, unknown_length: str, options: dict[str, Any], part: resume.FitPart | None) -> Any:
        """Keras's `fit`, once. part: the part of an elastic training that this call runs; None: not elastic."""
        kept(model).loop.loader = sharing.loader_of(options.get("x"))
        with stopping.loop(channel), watch.during_fit():
            if hvd.size() > 1:
                watch.evaluated = _prepare(model, options, shard, unknown_length, channel)
            ends_unknown = step_counts.agree(options, channel)
            # Ranks that share a data set take equally many batches. If each has its own data, one rank's may end first.
            kept(model).ends_unknown = ends_unknown and not shard and hvd.size() > 1
            looked_at = build(model, options)
            watch.part = part
            if part is None:
                schedules.say_too_long(model, options)
            else:
                part.data_is(options.get("x"), looked_at)
            _warm_up(model, options)
            seeds.set_apart(hvd.rank(), lambda value: stopping.everybodys(channel, "seed", value)[0])
            if hvd.size() > 1:
                normalization.synchronise(model)
            _make_ready(model, options)
            try:
                with listed(model, functools.partial(joint_callbacks.around, model, options.get("x")), part):
                    history = fit(**options)
                if not launcher.is_elastic():
                    changed_weights.take_changed(model, stopping.everybodys(channel, "left", compared(model).changed()))
                    statistics.alike_now(model)
            finally:
                kept(model).loop.close()
        return history

    distributed.by_ring = True  # type: ignore[attr-defined]
    model.fit = distributed


def digests(model: Any) -> tuple[list[int] | None, list[int] | None]:
    """Digests of the model's weights and of values that no optimizer trains, to compare over ranks; None: no need to
    compare. The second is left out if the weights have changed, because the first then shows a difference."""
    weights = compared(model)
    changed = weights.changed()
    return changed, None if changed and weights.were_equal else statistics.digest(model)


def _by_name(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call of `fit` by name, also if the model's class, or a library for all models, has replaced
    `fit` by a function of `*args, **kwargs`."""
    kinds = {parameter.kind: name for name, parameter in signature.parameters.items()}
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return dict(zip(list(inspect.signature(keras.Model.fit).parameters)[1:], args, strict=False)) | kwargs
    bound: dict[str, Any] = signature.bind(*args, **kwargs).arguments
    more: dict[str, Any] = bound.pop(kinds.get(inspect.Parameter.VAR_KEYWORD, ""), {})
    return more | bound


def _make_ready(model: Any, options: dict[str, Any]) -> None:
    """Make the model and the arguments of `fit`, by name, ready for Keras's own `fit` on this rank."""
    if hvd.rank() != 0:
        options["verbose"] = 0
    if model.jit_compile:  # the user compiled the model again, with the same optimizer
        model.jit_compile, model.train_function = False, None
    if isinstance(options.get("callbacks"), keras.callbacks.CallbackList):
        options["callbacks"] = [options["callbacks"]]  # else Keras would change the script's list


def _warm_up(model: Any, options: dict[str, Any]) -> None:
    """Tell the model's `WarmUp` how many steps its epochs have, which is known only now, with the data."""
    warm_up = kept(model).warm_up
    if warm_up is None or warm_up.steps:
        return
    steps = step_counts.steps(options)
    if steps == step_counts.UNKNOWN:
        raise RingscopeError("warmup_epochs needs the number of steps in an epoch; give fit(..., steps_per_epoch=...)")
    warm_up.steps = warm_up.epochs * steps


def _prepare(model: Any, options: dict[str, Any], shard: bool, unknown_length: str, channel: Channel | None) -> str:
    """Compare the ranks' data and divide it; returns the name of the part of the validation data that this rank
    evaluates."""
    metrics.check_summable(metrics.flat_metrics(model))
    if shard:
        _split_validation(options)
    own = data.layer_facts(model)
    for name in ("x", "y", "sample_weight"):
        own |= data.data_facts(options.get(name), name) if shard else {}
    validation = keras.utils.unpack_x_y_sample_weight(options.get("validation_data"))
    of_validation: data.Facts = {}
    for name, part in zip(("x", "y", "sample_weight"), validation, strict=True):
        of_validation |= data.data_facts(part, f"validation_data's {name}")
    said = stopping.everybodys(channel, "data", [own, of_validation])
    facts = [a | b for a, b in said] if shard else [a for a, _ in said]
    for text in data.check_data(facts):
        if hvd.rank() == 0:
            warnings.warn(text, stacklevel=6)
    alike = all(each == said[0][1] for _, each in said)
    ours, whole = UNEVEN, options.get("x")
    if shard:
        _warn_of_shuffles(whole)
        if isinstance(whole, tf.data.Dataset):
            shuffles.catch_up(whole, lambda own: stopping.everybodys(channel, "shuffles", own))
        ours = sharing.share_of_training(
            options, hvd.rank(), hvd.size(), unknown_length, lambda value: from_rank(0, value)
        )
    _say_batch(whole, options.get("batch_size"), scales_rate=kept(model).scales_rate)
    _say_workers(whole)
    kept(model).batches = ours
    return _cut_validation(model, options, validation) if alike else OWN


def _split_validation(options: dict[str, Any]) -> None:
    """Split off validation data as Keras would, from the whole data before it is divided over ranks."""
    split = options.pop("validation_split", 0.0)
    if not split or options.get("validation_data") is not None:
        return
    from keras.src.trainers.data_adapters.array_slicing import train_validation_split

    parts = tuple(options.get(name) for name in ("x", "y", "sample_weight"))
    rest, options["validation_data"] = train_validation_split(parts, validation_split=split)
    options |= {name: part for name, part in zip(("x", "y", "sample_weight"), rest, strict=True) if part is not None}


def _cut_validation(model: Any, options: dict[str, Any], validation: Any) -> str:
    if options.get("validation_data") is None:
        return WHOLE
    batch = options.get("validation_batch_size") or options.get("batch_size")
    x, y, weights = validation
    steps = options.get("validation_steps")
    share = blocks.share_of_states if is_stateful(model) else blocks.share_of_evaluation
    block = share(x, y, weights, batch, steps, hvd.rank(), hvd.size())
    if block is None:
        return WHOLE
    parts = [part for part in (block.x, block.y, block.sample_weight) if part is not None]
    options["validation_data"] = parts[0] if len(parts) == 1 else tuple(parts)
    options["validation_steps"] = None
    return CUT


def _warn_of_shuffles(x: Any) -> None:
    if isinstance(x, tf.data.Dataset) and UNSEEDED in data.shuffle_seeds(x) and hvd.rank() == 0:
        warnings.warn(
            "each rank shuffles the data set in its own order, so the ranks' shares overlap; let"
            " ring.init() seed all ranks, or give shuffle() the same seed on all ranks",
            stacklevel=6,
        )


def _say_workers(x: Any) -> None:
    """Print a line if the PyDataset workers of all ranks on this host outnumber the ranks' cores."""
    workers = x.workers if isinstance(x, keras.utils.PyDataset) else 1
    ranks = hvd.local_size()
    if told := threads.loaders_over_cores(workers, ranks, threads.cores_of_ranks(ranks)):
        once(": ".join(told))


def _say_batch(x: Any, batch_size: int | None, *, scales_rate: bool) -> None:
    ranks = hvd.size()
    if isinstance(x, tf.data.Dataset):
        batch = sharing.batch_of(x)
    else:
        batch = (batch_size or samples.BATCH) if samples.are_arrays(x) else None
    size = f"{ranks} ranks x {batch} = {ranks * batch} samples" if batch else f"{ranks} ranks x a batch of the data"
    rate = f"is multiplied by {ranks}" if scales_rate else "stays as you set it (ring.distribute(..., {}) scales it)"
    once(f"a step takes {size}; the learning rate " + rate.format("scale_learning_rate=True"))
