"""What crosses between ranks: gradients in a step; weights before the first; logs after an epoch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from profiles.errors import MissingLibrary, RingscopeError

__all__ = [
    "COMPRESSIONS",
    "average_gradients",
    "average_logs",
    "began_alike",
    "broadcast",
    "from_all",
    "from_rank",
    "has_weights",
    "hvd",
    "is_distributed",
    "is_seen",
    "name_in_graph",
    "on_device_of",
    "on_host",
    "optimizers_of",
    "outside_scopes",
    "parts_of",
    "sum_over_ranks",
    "tf",
]

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

try:
    import tensorflow as tf
except ImportError as error:
    raise MissingLibrary(
        f"TensorFlow does not load here ({error}); in a clone of ringscope `make setup` makes an environment with it,"
        " or: pip install '.[train]' && python scripts/build_horovod.py"
    ) from error
try:
    import keras  # noqa: F401
except ImportError as error:
    raise MissingLibrary(f"Keras does not load here ({error}); ring wants KERAS_BACKEND=tensorflow") from error
try:
    import horovod.tensorflow as hvd
except ImportError as error:
    raise MissingLibrary(
        f"Horovod is not installed or does not load ({error}); `python scripts/build_horovod.py` builds it: the release"
        " on PyPI needs edits before today's TensorFlow takes it"
    ) from error

COMPRESSIONS = ("none", "fp16", "bf16")
OPS = ("average", "sum", "adasum")
# In an operation's name: the Horovod of scripts/build_horovod.py runs it on TensorFlow's own stream of the GPU. That of
# Horovod would be one more with kernels on it, which slows the hand-over between all kernels of the process.
IN_STREAM = "in_stream"


def on_device_of(tensor: Any) -> AbstractContextManager[Any]:
    """Where Horovod's calls on `tensor` are to be made. Called eagerly they enter `tf.device("")`, which names the CPU
    where nothing encloses it: what lies on a GPU would be summed in host memory, a hundred times slower."""
    return tf.device(tensor.device) if tf.executing_eagerly() else nullcontext()


def outside_scopes() -> AbstractContextManager[Any]:
    """Where Horovod's calls in a step get their names. Ranks meet by these; inside a graph they would begin with the
    scopes around them, such as a layer's `dense_1`, which a rank that has made one model more calls otherwise."""
    return nullcontext() if tf.executing_eagerly() else tf.compat.v1.get_default_graph().name_scope(None)


def sum_over_ranks(tensor: Any, name: str) -> Any:
    """The sum of all ranks' tensors, in a forward pass; its gradient is the sum of theirs."""

    @tf.custom_gradient
    def summed(own: Any) -> Any:
        def gradient(upstream: Any) -> Any:
            with outside_scopes():
                return hvd.allreduce(upstream, op=hvd.Sum, name=name_in_graph(f"{name}_gradient"))

        with outside_scopes():
            return hvd.allreduce(own, op=hvd.Sum, name=name_in_graph(name)), gradient

    return summed(tensor)


def name_in_graph(name: str) -> str | None:
    """Eager calls are numbered by Horovod; in a graph it would name them after tensors, which bear models' names."""
    return None if tf.executing_eagerly() else name


def on_host() -> AbstractContextManager[Any]:
    """Where few bytes are exchanged that the host has and wants: else their kernels run on Horovod's stream of the GPU,
    which then hands over from one kernel to the next 0.3 microseconds later, to the process's end."""
    return tf.device("/CPU:0")  # type: ignore[no-any-return]


def average_gradients(
    gradients: Sequence[Any],
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
    are gathered, on a GPU each index's rows are added first (`_rows_once`).

    in_stream: nothing is computed meanwhile, so a single vector may be summed on TensorFlow's own stream of the GPU.
    op, predivide_factor, sparse_as_dense: as of `ring.distribute`. process_set: the ranks that take part, all of them
    unless given.
    """
    dense = sparse_as_dense or op == "adasum"  # which has no sparse form
    averaged = [tf.convert_to_tensor(g) if dense and g is not None else g for g in gradients]
    if hvd.size() == 1:
        return averaged
    if _xla_compiles_all():
        raise RingscopeError(
            "XLA compiles this step as a whole and cannot exchange gradients in it; take jit_compile=True out of its"
            " tf.function, or train by model.fit after ring.distribute(model, step='compiled')"
        )
    how = _how(op, predivide_factor, process_set)
    given = [i for i, gradient in enumerate(averaged) if gradient is not None]
    sparse = [i for i in given if isinstance(averaged[i], tf.IndexedSlices)]
    for part in _consecutive_groups([i for i in given if i not in sparse], groups):
        for i, value in zip(part, _average([averaged[i] for i in part], compression, in_stream, how), strict=True):
            averaged[i] = value
    for i in sparse:
        if adds_in_any_order():
            own = _rows_once(averaged[i], process_set)
            (values,) = _average([own.values], compression, in_stream, how)
            averaged[i] = tf.IndexedSlices(values, own.indices, own.dense_shape)
            continue
        if _is_of_any_batch(averaged[i].indices):
            # Such as embedded places: one rank would have one row of the whole batch for each. Keras's optimizers
            # square rows of one index each by itself.
            own = averaged[i]
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
    return averaged


def _xla_compiles_all() -> bool:
    """Whether this is traced within a function of `jit_compile=True`."""
    from tensorflow.python.ops import control_flow_util  # TensorFlow has no public way to ask

    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    return graph is not None and bool(control_flow_util.GraphOrParentsInXlaContext(graph))


def adds_in_any_order() -> bool:
    """Whether rows of one index are added in an order that is not the same twice, as a GPU does."""
    return bool(tf.config.get_visible_devices("GPU"))


def _rows_once(own: Any, process_set: Any) -> Any:
    """IndexedSlices of every index that a rank has, once and in one order, with the sum of this rank's own rows.

    Ranks that each add what all of them have gathered end apart in the last bits where rows are added in any order.
    So each adds its own, and the ranks' sums are added by the all-reduce, which gives all of them the same bits.
    """
    given = own.indices
    if not _is_of_any_batch(given):
        ranks = {} if process_set is None else {"process_set": process_set}
        with outside_scopes(), on_device_of(given):  # Horovod names what it gathers after this
            given = hvd.allgather(tf.identity(tf.unique(given).y, name="row_ids"), **ranks)
    indices, places = tf.unique(tf.concat([given, own.indices], axis=0))
    rows = tf.math.unsorted_segment_sum(own.values, places[tf.size(given) :], tf.size(indices))
    return tf.IndexedSlices(rows, indices, own.dense_shape)


def _is_of_any_batch(indices: Any) -> bool:
    """Whether they are computed of constants alone, and so are the same on all ranks; shapes may differ."""
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


def _how(op: str, predivide_factor: float, process_set: Any) -> dict[str, Any]:
    """Horovod's words for it."""
    how: dict[str, Any] = {"op": {"average": hvd.Average, "sum": hvd.Sum, "adasum": hvd.Adasum}[op]}
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
            return _average_as_bfloat16(values)
        codec = hvd.Compression.fp16 if compression == "fp16" else hvd.Compression.none
        return list(hvd.grouped_allreduce(values, compression=codec, name=name, **how))


def _consecutive_groups(items: list[int], groups: int) -> list[list[int]]:
    groups = max(1, min(groups, len(items)))
    bounds = [len(items) * i // groups for i in range(groups + 1)]
    parts = [items[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]
    return [part for part in reversed(parts) if part]


def _average_as_bfloat16(values: list[Any]) -> list[Any]:
    """Average in half the bytes. Horovod cannot sum bfloat16, so each rank sums one share of all in float32.

    All-to-all of the shares, then all-gather of the averages: a ring all-reduce's traffic, with one rounding each way.
    """
    flat = tf.concat([tf.reshape(tf.cast(value, tf.bfloat16), [-1]) for value in values], axis=0)
    count = tf.size(flat)
    flat = tf.pad(flat, [[0, -count % hvd.size()]])
    shares = tf.bitcast(hvd.alltoall(tf.bitcast(flat, tf.uint16), name=name_in_graph("shares")), tf.bfloat16)
    mean = tf.reduce_mean(tf.cast(tf.reshape(shares, [hvd.size(), -1]), tf.float32), axis=0)
    everyone = tf.bitcast(
        hvd.allgather(tf.bitcast(tf.cast(mean, tf.bfloat16), tf.uint16), name=name_in_graph("averages")), tf.bfloat16
    )
    parts = tf.split(everyone[:count], [tf.size(value) for value in values], num=len(values))
    return [tf.cast(tf.reshape(part, tf.shape(value)), value.dtype) for part, value in zip(parts, values, strict=True)]


def optimizers_of(model: Any, *, of_parts: bool = True) -> list[Any]:
    """The optimizers among a model's attributes (models with a train step of their own may have several), then those of
    the models that are parts of it."""
    from keras.optimizers import Optimizer

    found: dict[int, Any] = {}
    for each in model._flatten_layers() if of_parts else [model]:
        held = vars(each).values() if hasattr(each, "compile") else ()
        for value in held:
            several = list(value.values()) if isinstance(value, dict) else value
            several = several if isinstance(several, (list, tuple)) else (several,)
            found |= {id(one): one for one in several if isinstance(one, Optimizer)}
    return list(found.values())


def is_default(model: Any, optimizer: Any) -> bool:
    """Whether `compile` made it without being asked to: a model with optimizers of its own does not use it."""
    config = getattr(getattr(model, "_compile_config", None), "config", {})
    return optimizer is getattr(model, "optimizer", None) and config.get("optimizer") == "rmsprop"


def is_distributed(model: Any) -> bool:
    """Whether its optimizers are ones that `ring.distribute` has seen; `model.compile` brings one that it has not."""
    return all(map(is_seen, optimizers_of(model)))


def is_seen(optimizer: Any) -> bool:
    return getattr(optimizer, "distributed_by_ring", False) is True


def parts_of(optimizer: Any) -> Any | None:
    """Which parts of its state this rank has (`Parts`); None unless it is sharded."""
    return getattr(optimizer, "parts_by_ring", None)


def has_weights(model: Any) -> bool:
    """Whether its weights exist yet. A model that is never called, such as a GAN of two others, is never `built`."""
    return model.built or (bool(model.layers) and all(layer.built for layer in model.layers))


def began_alike(model: Any) -> bool:
    """Whether all weights that it has were there when `broadcast` made them equal."""
    return getattr(model, "weights_by_ring", None) == len(model.weights)


def broadcast(model: Any) -> None:
    """Give every rank rank 0's weights and optimizer state; the model must be built.

    Before the first step: Horovod's own callback does it after the first batch, which trains something else.
    Random generators (dropout) are set apart by rank, else all ranks would drop the same units.
    """
    optimizers = optimizers_of(model)
    # Rank 0's may have come with a model that it has loaded. One that nobody has built stays so: what it is to train
    # may be unfrozen yet.
    for optimizer, variables in zip(optimizers, from_rank(0, [_built_for(each) for each in optimizers]), strict=True):
        if variables and not optimizer.built and variables == len(model.trainable_variables):
            optimizer.build(model.trainable_variables)
    sharded = [parts for each in optimizers if (parts := parts_of(each)) is not None]
    apart = {id(variable) for parts in sharded for variable in parts.state()}
    state = [variable for each in optimizers for variable in each.variables if id(variable) not in apart]
    variables = {id(v): v for v in (*model.variables, *state)}.values()
    if hvd.size() > 1:
        _from_rank_0([v.value for v in variables])
    for parts in sharded:
        parts.from_rank_0()
    for variable in model.variables:
        if variable.path.endswith("seed_generator_state"):
            variable.assign(variable.value + tf.constant([hvd.rank(), 0], variable.value.dtype))
    model.weights_by_ring = len(model.weights)


def _built_for(optimizer: Any) -> int:
    """How many variables it was built for; 0 where it is not built."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    return len(inner._trainable_variables) if optimizer.built else 0


def from_rank(rank: int, value: Any) -> Any:
    """That rank's value on all ranks."""
    if hvd.size() == 1:
        return value
    with on_host():
        return hvd.broadcast_object(value, root_rank=rank, name="value")


def from_all(value: Any, name: str) -> list[Any]:
    """Every rank's value, by rank."""
    with on_host():
        return list(hvd.allgather_object(value, name=name))


@tf.function(autograph=False)
def _from_rank_0(variables: Sequence[Any]) -> None:
    for i, variable in enumerate(variables):
        variable.assign(hvd.broadcast(variable, root_rank=0, name=f"{IN_STREAM}_{i}"))


def average_logs(logs: dict[str, Any]) -> None:
    """Replace each number in `logs` by its mean over ranks, in place; what is no number stays."""
    names = sorted(name for name, value in logs.items() if np.ndim(value) == 0 and not isinstance(value, (str, bytes)))
    if not names or hvd.size() == 1:
        return
    with on_host():
        values = tf.constant([float(logs[name]) for name in names], tf.float64)
        mean = hvd.allreduce(values, op=hvd.Average, name="logs").numpy()
    logs.update({name: float(value) for name, value in zip(names, mean, strict=True)})
