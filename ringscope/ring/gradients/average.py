"""Average a step's gradients over ranks: dense ones by all-reduce, embedding rows by their indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from profiles.ground.errors import RingscopeError

from ..exchange import IN_STREAM, name_in_graph, on_device_of, outside_scopes
from ..internals.frameworks import has_gpu, hvd, tf
from ..models import since_applied
from .float8_scales import largest_of_ranks
from .types import summed_as

COMPRESSIONS = ("none", "fp32", "fp16", "bf16")
OPS = ("average", "sum", "adasum")

Exchange = Callable[[Sequence[Any], Sequence[int]], list[Any]]
"""(this rank's gradients, places of values whose maximum over ranks is taken) -> the gradients that all ranks apply."""


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
    """This rank's gradients -> their averages over ranks, in the same order.

    None stays None. IndexedSlices stay sparse: on a CPU the rows of all ranks are gathered; on a GPU, or if a rank has
    one row for each index, rows of equal index are summed (`_rows_once`). compression, op, predivide_factor,
    sparse_as_dense: as in `ring.distribute`; compression `none` keeps each gradient's type, `fp32` sends at least
    float32. bfloat16 is summed in float32 unless the GPUs can sum it (`types.summed_as`), and is returned as bfloat16.
    in_stream: True if nothing else is computed meanwhile, so that NCCL may sum on TensorFlow's own GPU stream. largest:
    places of values that overwrite their variables instead of updating them; ranks take their maximum. process_set: the
    ranks that take part; None: all.
    """
    dense = sparse_as_dense or op == "adasum"  # Adasum cannot join sparse gradients
    averaged = [tf.convert_to_tensor(g) if dense and g is not None else g for g in gradients]
    since_applied.averaged = True
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
        for kind in dict.fromkeys(averaged[i].dtype for i in part):  # Horovod's grouped call accepts only one type
            alike = [i for i in part if averaged[i].dtype == kind]
            values = _average([averaged[i] for i in alike], compression, in_stream, how)
            for i, value in zip(alike, values, strict=True):
                averaged[i] = value
    for i in sparse:  # one by one, because Horovod's grouped call gives them the shapes of their neighbours
        average = partial(_average, compression=compression, in_stream=in_stream, how=how)
        averaged[i] = _average_rows(averaged[i], average, op, process_set)
    return [gradient if gradient is None else _cast(gradient, kinds[i]) for i, gradient in enumerate(averaged)]


def _cast(gradient: Any, kind: Any) -> Any:
    if gradient.dtype == kind:
        return gradient
    with on_device_of(gradient):
        return tf.cast(gradient, kind)


def _xla_compiles_all() -> bool:
    """True if the code is traced within a tf.function with `jit_compile=True`."""
    from tensorflow.python.ops import control_flow_util  # TensorFlow has no public function that tells this

    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    return graph is not None and bool(control_flow_util.GraphOrParentsInXlaContext(graph))


def _average_rows(own: Any, average: Callable[[list[Any]], list[Any]], op: str, process_set: Any) -> Any:
    """The average of IndexedSlices over ranks. average: this rank's dense gradients -> their averages.

    The gradients of some lookups have one row for each index, however large the batch: lookups of positions
    (`_are_constant`) and of sparse ids, which sum rows of equal index (`_are_unique`). Keras's optimizers square each
    row by itself, so rows of equal index from several ranks must be summed before the update. On GPUs all sparse
    gradients are summed here, since all ranks then get the same bits.
    """
    once = adds_in_any_order() or _are_unique(own.indices)
    if once or _are_constant(own.indices):
        own = _rows_once(own, process_set) if once else own
        (values,) = average([own.values])
        return tf.IndexedSlices(values, own.indices, own.dense_shape)
    with outside_scopes(), on_device_of(own):
        # Horovod names the gathered tensors after these two.
        named = [tf.identity(part, name=name) for part, name in ((own.values, "rows"), (own.indices, "row_ids"))]
        # Rows are gathered, not summed, so there is nothing to divide beforehand.
        return hvd.allreduce(tf.IndexedSlices(*named, own.dense_shape), **_how(op, 1.0, process_set))


def adds_in_any_order() -> bool:
    """True if rows of equal index are summed in an order that differs from run to run, as on a GPU."""
    return has_gpu()


def _rows_once(own: Any, process_set: Any) -> Any:
    """IndexedSlices with every index of any rank once, in the same order on all ranks; values: sums of this rank's
    rows.

    If each rank summed the rows gathered from all ranks, the results would differ in the last bits wherever rows are
    summed in any order. So each rank sums its own rows, and an all-reduce, which gives all ranks the same bits, adds
    them.
    """
    given = own.indices
    if not _are_constant(given):
        ranks = {} if process_set is None else {"process_set": process_set}
        own_once = tf.unique(given).y
        with outside_scopes(), on_device_of(given):  # Horovod names the gathered tensor after this one
            given = hvd.allgather(tf.identity(own_once, name="row_ids"), **ranks)
    indices, places = tf.unique(tf.concat([given, own.indices], axis=0))
    rows = tf.math.unsorted_segment_sum(own.values, places[tf.size(given) :], tf.size(indices))
    return tf.IndexedSlices(rows, indices, own.dense_shape)


def _are_constant(indices: Any) -> bool:
    """True if the indices are computed from constants alone, so that they are equal on all ranks. Shapes may differ."""
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


def _are_unique(indices: Any) -> bool:
    """True if no index occurs twice, in any batch: a lookup of sparse ids has already summed the rows of equal ids."""
    if tf.executing_eagerly():
        return False
    op = indices.op
    while op.type in ("Identity", "Reshape", "Cast"):
        op = op.inputs[0].op
    return op.type in ("Unique", "UniqueV2")


def horovods(op: str) -> Any:
    """Horovod's constant for this way to join gradients. op: average, sum or adasum."""
    return {"average": hvd.Average, "sum": hvd.Sum, "adasum": hvd.Adasum}[op]


def _how(op: str, predivide_factor: float, process_set: Any) -> dict[str, Any]:
    """Arguments of Horovod's all-reduce."""
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
        if how["op"] == hvd.Adasum:  # Adasum takes one tensor at a time
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
    """Average gradients as bfloat16, with half the bytes on any transport: each rank sums one share of them in float32.

    The ranks exchange the shares by an all-to-all, then the averages by an all-gather: the traffic of a ring
    all-reduce, with one rounding in each direction.
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
