"""The gradients of a step, averaged over ranks: dense ones by all-reduce, rows of embeddings by their indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from profiles.ground.errors import RingscopeError

from ..exchange import IN_STREAM, name_in_graph, on_device_of, outside_scopes
from ..internals.frameworks import has_gpu, hvd, tf
from .float8_scales import largest_of_ranks
from .types import summed_as

__all__ = ["COMPRESSIONS", "OPS", "Exchange", "adds_in_any_order", "average_gradients", "horovods"]

COMPRESSIONS = ("none", "fp32", "fp16", "bf16")
OPS = ("average", "sum", "adasum")

Exchange = Callable[[Sequence[Any], Sequence[int]], list[Any]]
"""(this rank's gradients, indices of those that ranks join by their maximum) -> the gradients that all ranks apply."""


def average_gradients(
    gradients: Sequence[Any],
    largest: Sequence[int] = (),
    *,
    compression: str = "none",
    groups: int = 1,
    in_stream: bool = False,
    op: str = "average",
    predivide_factor: float = 1.0,
    sparse_as_dense: bool = False,
    process_set: Any = None,
) -> list[Any]:
    """The gradients averaged over ranks, in order. None stays None; IndexedSlices stay sparse: on a CPU all ranks' rows
    are gathered; on a GPU, and where a rank has one row for each index, these are added (`_rows_once`).

    compression: as of `ring.distribute`; `none` is the type that they have, and `fp32` never less than float32. What is
    bfloat16 is summed in float32, but for GPUs that take it as it is (`types.summed_as`); it is bfloat16 again then.
    in_stream: nothing is computed meanwhile, so they may be summed on TensorFlow's own stream of the GPU.
    largest: which of them are no gradients, but what variables are overwritten with: of these the largest over ranks.
    op, predivide_factor, sparse_as_dense: as of `ring.distribute`. process_set: the ranks that take part, all of them
    unless given.
    """
    dense = sparse_as_dense or op == "adasum"  # which has no sparse form
    averaged = [tf.convert_to_tensor(g) if dense and g is not None else g for g in gradients]
    if hvd.size() == 1:
        return averaged
    if _xla_compiles_all():
        raise RingscopeError(
            "XLA compiles this step as a whole and cannot exchange gradients in it; remove jit_compile=True from its "
            "tf.function, or train by model.fit after ring.distribute(model, step='compiled'), or 'fit' if a "
            "train_step calls ring.average_gradients"
        )
    if compression == "bf16" and op != "average":
        raise RingscopeError(f"bf16 is for averages, not for {op}; use compression='fp16' or 'none'")
    how = _how(op, predivide_factor, process_set)
    given = [i for i, gradient in enumerate(averaged) if gradient is not None]
    kinds = {i: averaged[i].dtype for i in given}
    if found := [i for i in given if i in largest]:
        for i, value in zip(found, largest_of_ranks([averaged[i] for i in found], process_set), strict=True):
            averaged[i] = value
        given = [i for i in given if i not in found]
    for i, kind in ((i, kinds[i]) for i in given):
        summed = summed_as(kind, in_stream=in_stream, op=op, predivide_factor=predivide_factor)
        averaged[i] = _cast(averaged[i], tf.float32 if compression == "fp32" and kind.size < 4 else summed)
    sparse = [i for i in given if isinstance(averaged[i], tf.IndexedSlices)]
    for part in _consecutive_groups([i for i in given if i not in sparse], groups):
        for kind in dict.fromkeys(averaged[i].dtype for i in part):  # Horovod's grouped call takes one type
            alike = [i for i in part if averaged[i].dtype == kind]
            values = _average([averaged[i] for i in alike], compression, in_stream, how)
            for i, value in zip(alike, values, strict=True):
                averaged[i] = value
    for i in sparse:
        once = adds_in_any_order() or _has_each_once(averaged[i].indices)
        if once or _is_of_any_batch(averaged[i].indices):
            # Of any batch are embedded places, and sparse inputs have each column once: one rank would have one row of
            # the whole batch for each. Keras's optimizers square rows of one index each by itself.
            own = _rows_once(averaged[i], process_set) if once else averaged[i]
            (values,) = _average([own.values], compression, in_stream, how)
            averaged[i] = tf.IndexedSlices(values, own.indices, own.dense_shape)
            continue
        # One by one: Horovod's grouped call gives sparse gradients the shapes of their neighbours.
        with outside_scopes(), on_device_of(averaged[i]):
            own = averaged[i]
            # Horovod names what it gathers after these.
            named = [tf.identity(part, name=name) for part, name in ((own.values, "rows"), (own.indices, "row_ids"))]
            # Their rows are gathered, not summed: there is no sum to divide before.
            averaged[i] = hvd.allreduce(tf.IndexedSlices(*named, own.dense_shape), **_how(op, 1.0, process_set))
    return [gradient if gradient is None else _cast(gradient, kinds[i]) for i, gradient in enumerate(averaged)]


def _cast(gradient: Any, kind: Any) -> Any:
    if gradient.dtype == kind:
        return gradient
    with on_device_of(gradient):
        return tf.cast(gradient, kind)


def _xla_compiles_all() -> bool:
    """True if this is traced within a function of `jit_compile=True`."""
    from tensorflow.python.ops import control_flow_util  # TensorFlow has no public way to ask

    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    return graph is not None and bool(control_flow_util.GraphOrParentsInXlaContext(graph))


def adds_in_any_order() -> bool:
    """True if rows of one index are added in an order that is not the same twice, as a GPU does."""
    return has_gpu()


def _rows_once(own: Any, process_set: Any) -> Any:
    """IndexedSlices of every index that a rank has, once and in one order, with the sum of this rank's own rows.

    Ranks that each add what all of them have gathered end apart in the last bits where rows are added in any order.
    So each adds its own, and the ranks' sums are added by the all-reduce, which gives all of them the same bits.
    """
    given = own.indices
    if not _is_of_any_batch(given):
        ranks = {} if process_set is None else {"process_set": process_set}
        own_once = tf.unique(given).y
        with outside_scopes(), on_device_of(given):  # Horovod names what it gathers after this
            given = hvd.allgather(tf.identity(own_once, name="row_ids"), **ranks)
    indices, places = tf.unique(tf.concat([given, own.indices], axis=0))
    rows = tf.math.unsorted_segment_sum(own.values, places[tf.size(given) :], tf.size(indices))
    return tf.IndexedSlices(rows, indices, own.dense_shape)


def _is_of_any_batch(indices: Any) -> bool:
    """True if they are computed of constants alone, and so are the same on all ranks; shapes may differ."""
    if tf.executing_eagerly():
        return False
    seen, waiting = set(), [indices.op]
    while waiting:
        op = waiting.pop()
        if op.type in ("Placeholder", "PlaceholderWithDefault") or op.op_def.is_stateful:
            return False
        if op.name not in seen:
            seen.add(op.name)
            waiting += [tensor.op for tensor in op.inputs]
    return True


def _has_each_once(indices: Any) -> bool:
    """True if a batch of any size would give each index one row: a lookup of sparse ids adds those of one id first."""
    if tf.executing_eagerly():
        return False
    op = indices.op
    while op.type in ("Identity", "Reshape", "Cast"):
        op = op.inputs[0].op
    return op.type in ("Unique", "UniqueV2")


def horovods(op: str) -> Any:
    """Horovod's number for what becomes of the gradients."""
    return {"average": hvd.Average, "sum": hvd.Sum, "adasum": hvd.Adasum}[op]


def _how(op: str, predivide_factor: float, process_set: Any) -> dict[str, Any]:
    """Horovod's words for it."""
    how: dict[str, Any] = {"op": horovods(op)}
    if process_set is not None:
        how["process_set"] = process_set
    if predivide_factor != 1.0:
        ranks = hvd.size() if process_set is None else process_set.size()
        after = predivide_factor / ranks if op == "average" else predivide_factor
        how |= {"op": hvd.Sum, "prescale_factor": 1 / predivide_factor, "postscale_factor": after}
    return how


def _average(values: list[Any], compression: str, in_stream: bool, how: dict[str, Any]) -> list[Any]:
    with outside_scopes(), on_device_of(values[0]):
        name = IN_STREAM if in_stream else name_in_graph("gradients")
        if how["op"] == hvd.Adasum:  # takes one tensor at a time
            codec = hvd.Compression.fp16 if compression == "fp16" else hvd.Compression.none
            return [hvd.allreduce(value, compression=codec, name=name, **how) for value in values]
        if compression == "bf16":
            return _average_as_bfloat16(values, how.get("process_set", hvd.global_process_set))
        codec = hvd.Compression.fp16 if compression == "fp16" else hvd.Compression.none
        return list(hvd.grouped_allreduce(values, compression=codec, name=name, **how))


def _consecutive_groups(items: list[int], groups: int) -> list[list[int]]:
    groups = max(1, min(groups, len(items)))
    bounds = [len(items) * i // groups for i in range(groups + 1)]
    parts = [items[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]
    return [part for part in reversed(parts) if part]


def _average_as_bfloat16(values: list[Any], ranks: Any) -> list[Any]:
    """Average in half the bytes, wherever the ranks are: each sums one share of all in float32.

    All-to-all of the shares, then all-gather of the averages: a ring all-reduce's traffic, with one rounding each way.
    """
    flat = tf.concat([tf.reshape(tf.cast(value, tf.bfloat16), [-1]) for value in values], axis=0)
    count = tf.size(flat)
    flat = tf.bitcast(tf.pad(flat, [[0, -count % ranks.size()]]), tf.uint16)
    shares = tf.bitcast(hvd.alltoall(flat, name=name_in_graph("shares"), process_set=ranks), tf.bfloat16)
    mean = tf.reduce_mean(tf.cast(tf.reshape(shares, [ranks.size(), -1]), tf.float32), axis=0)
    own = tf.bitcast(tf.cast(mean, tf.bfloat16), tf.uint16)
    everyone = tf.bitcast(hvd.allgather(own, name=name_in_graph("averages"), process_set=ranks), tf.bfloat16)
    parts = tf.split(everyone[:count], [tf.size(value) for value in values], num=len(values))
    return [tf.cast(tf.reshape(part, tf.shape(value)), value.dtype) for part, value in zip(parts, values, strict=True)]
