"""`evaluate` and `predict` over all ranks: each rank takes a block of the batches, and all ranks get the whole
result."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from ..alike import statistics
from ..alike.data import data_facts
from ..data.blocks import Block, share_of_evaluation, share_of_states
from ..exchange import from_all, sent_as
from ..global_batch.moving_statistics import is_stateful
from ..internals.frameworks import hvd, tf
from ..ranks.channel import Channel
from .watch import CUT, WHOLE, Watch

LATE_S = 10.0  # seconds; if another rank calls `evaluate` or `predict` later than this, each rank does all of it alone


def distribute_evaluation(model: Any, watch: Watch, channel: Channel | None) -> None:
    """Replace `model.evaluate` and `model.predict`. If all ranks call them with the same data, the ranks share the
    work; if one rank alone calls them, or each with its own data, they work as Keras's."""
    evaluate, predict = model.evaluate, model.predict

    @functools.wraps(evaluate)
    def evaluated(*args: Any, **kwargs: Any) -> Any:
        if watch.evaluating or kwargs.get("_use_cached_eval_dataset"):
            # The call comes from `fit`, which has divided the data already.
            with watch.during_evaluation(watch.evaluated):
                return evaluate(*args, **kwargs)
        options = _options(evaluate, args, kwargs)
        block = _block_of(model, options, "evaluate", channel)
        if block is None:
            with watch.during_evaluation(WHOLE):
                return evaluate(**options)
        statistics.average(model, "when all ranks evaluate it")
        with watch.during_evaluation(CUT):
            return evaluate(**_with(options, block))

    @functools.wraps(predict)
    def predicted(*args: Any, **kwargs: Any) -> Any:
        options = _options(predict, args, kwargs)
        block = _block_of(model, options, "predict", channel)
        if block is None:
            return predict(**options)
        statistics.average(model, "when all ranks predict with it")
        own = _with(options, block)
        own = {name: own[name] for name in own if name not in ("y", "sample_weight")}
        return _joined_in_order(predict(**own), by_turns=is_stateful(model))

    for name, method in (("evaluate", evaluated), ("predict", predicted)):
        method.by_ring = True  # type: ignore[attr-defined]
        setattr(model, name, method)


def _options(method: Callable[..., Any], args: Any, kwargs: Any) -> dict[str, Any]:
    bound: dict[str, Any] = dict(inspect.signature(method).bind(*args, **kwargs).arguments)
    further: dict[str, Any] = bound.pop("kwargs", {})
    return further | bound


def _block_of(model: Any, options: dict[str, Any], kind: str, channel: Channel | None) -> Block | None:
    """This rank's block if all ranks call with the same data; else None."""
    if channel is None:
        return None
    x, y, weights = (options.get(name) for name in ("x", "y", "sample_weight"))
    whole = x, y, weights, options.get("batch_size"), options.get("steps"), hvd.rank(), hvd.size()
    if not is_stateful(model):
        block = share_of_evaluation(*whole)
    else:  # predictions on shares of a data set could not be put back in order
        in_order = kind == "evaluate" or not isinstance(x, (tf.data.Dataset, keras.utils.PyDataset))
        block = share_of_states(*whole) if in_order else None
    facts = None if block is None else data_facts(x, "x") | data_facts(y, "y") | data_facts(weights, "sample_weight")
    everybodys = channel.meet(kind, facts, limit_s=LATE_S)
    alike = everybodys is not None and None not in everybodys and all(each == everybodys[0] for each in everybodys)
    return block if alike else None


def _with(options: dict[str, Any], block: Block) -> dict[str, Any]:
    quiet = {"verbose": 0} if hvd.rank() else {}
    own = {"x": block.x, "y": block.y, "sample_weight": block.sample_weight, "steps": block.steps}
    return options | {name: value for name, value in own.items() if name in options} | quiet


def _joined_in_order(outputs: Any, *, by_turns: bool) -> Any:
    """The predictions of all ranks joined, on every rank: one rank's after another's. by_turns: one sample of each rank
    in turn."""

    def join(own: Any) -> Any:
        if not isinstance(own, np.ndarray):
            everybodys = from_all(own.to_list() if hasattr(own, "to_list") else own, "predictions")
            if isinstance(own, tf.RaggedTensor):
                return tf.concat([tf.ragged.constant(each, dtype=own.dtype) for each in everybodys], axis=0)
            return np.concatenate(everybodys)
        if own.dtype.kind in "fiubV":  # NumPy's kind V: bfloat16 and float8
            bits = own.view(sent_as(tf.as_dtype(own.dtype)).as_numpy_dtype)
            with tf.device("/CPU:0"):
                joined = hvd.allgather(tf.constant(bits), name="predictions").numpy().view(own.dtype)
        else:
            joined = np.concatenate(from_all(own, "predictions"))
        if by_turns:
            joined = joined.reshape(hvd.size(), *own.shape).swapaxes(0, 1).reshape(joined.shape)
        return joined

    return keras.tree.map_structure(join, outputs)
