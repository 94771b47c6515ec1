"""Exchanges between ranks beside gradients: sums within a step, the values of all ranks, logs after an epoch."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from .internals.frameworks import hvd, tf, traced_for_each_model

# Part of an operation's name. Horovod as built by scripts/build_horovod.py starts such an operation at once, not at the
# end of a cycle, and runs it on TensorFlow's own GPU stream: kernels on one more stream would lengthen the gap between
# all kernels of the process.
IN_STREAM = "in_stream"

SENT = (tf.uint8, tf.int8, tf.uint16, tf.int16, tf.int32, tf.int64, tf.float16, tf.float32, tf.float64, tf.bool)
# integer type for a value's size in bytes; complex128 is sent as two
BITS = {1: tf.uint8, 2: tf.float16, 4: tf.float32, 8: tf.float64, 16: tf.float64}


def on_device_of(tensor: Any) -> AbstractContextManager[Any]:
    """The context of a device for Horovod's calls on `tensor`. Without it Horovod's eager calls enter `tf.device("")`,
    which means the CPU: a tensor on a GPU would be summed in host memory, a hundred times slower."""
    return tf.device(tensor.device) if tf.executing_eagerly() else nullcontext()


def outside_scopes() -> AbstractContextManager[Any]:
    """A context in which Horovod's calls in a graph get names without enclosing scopes. Ranks match operations by name,
    and a scope, such as a layer's `dense_1`, has another name on a rank that has created one more model."""
    return nullcontext() if tf.executing_eagerly() else tf.compat.v1.get_default_graph().name_scope(None)


def sum_over_ranks(tensor: Any, name: str) -> Any:
    """The sum of all ranks' tensors in a forward pass; the gradient is the sum of all ranks' gradients."""

    @tf.custom_gradient
    def summed(own: Any) -> Any:
        def gradient(upstream: Any) -> Any:
            with outside_scopes():
                return hvd.allreduce(upstream, op=hvd.Sum, name=name_in_graph(f"{name}_gradient"))

        with outside_scopes():
            return hvd.allreduce(own, op=hvd.Sum, name=name_in_graph(name)), gradient

    return tf.cast(summed(tf.cast(tensor, summed_as(tensor.dtype))), tensor.dtype)


def summed_as(kind: Any) -> Any:
    """The type in which ranks sum numbers of type `kind`. Horovod has no bfloat16, except where NCCL alone sums it
    (`types.summed_as`)."""
    return tf.float32 if kind == tf.bfloat16 else kind


def sent_as(kind: Any) -> Any:
    """The type in which the bits of a value travel: of the same size, and supported by Horovod and GPUs."""
    return kind if kind in SENT or kind.size not in BITS else BITS[kind.size]


def name_in_graph(name: str) -> str | None:
    """The operation's name in a graph, where Horovod's own choice would contain names of models. None for eager calls,
    which Horovod numbers."""
    return None if tf.executing_eagerly() else name


def on_host() -> AbstractContextManager[Any]:
    """A context for exchanges of a few bytes, which then run on the CPU. On a GPU they would run on Horovod's stream,
    and the gap between any two kernels would be 0.3 microseconds longer to the end of the process."""
    return tf.device("/CPU:0")  # type: ignore[no-any-return]


def reduced_on_host(values: Any, op: Any, name: str) -> np.ndarray[Any, Any]:
    """All ranks' values joined by hvd.Sum, Min or Max, in the same shape and type. Meant for few values, because the
    host waits for them."""
    own = np.asarray(values)
    if hvd.size() == 1:
        return own
    with on_host():
        everybodys: np.ndarray[Any, Any] = _reduced(tf.constant(own), op, name).numpy()
    return everybodys


@tf.function(autograph=False)
def _reduced(values: Any, op: Any, name: str) -> Any:
    # In a graph, because operations have names only there.
    with on_host():
        return hvd.allreduce(values, op=op, name=f"{IN_STREAM}_{name}")


def from_rank(rank: int, value: Any) -> Any:
    """The value of rank `rank`, on all ranks."""
    if hvd.size() == 1:
        return value
    with on_host():
        return hvd.broadcast_object(value, root_rank=rank, name="value")


def from_all(value: Any, name: str) -> list[Any]:
    """The values of all ranks, by rank."""
    with on_host():
        return list(hvd.allgather_object(value, name=name))


traced_for_each_model(_reduced)


def average_logs(logs: dict[str, Any]) -> None:
    """Replace each number in `logs` by its mean over ranks, in place; other values stay."""
    names = sorted(name for name, value in logs.items() if np.ndim(value) == 0 and not isinstance(value, (str, bytes)))
    if not names or hvd.size() == 1:
        return
    total = reduced_on_host([float(logs[name]) for name in names], hvd.Sum, "logs")
    logs.update({name: float(value) for name, value in zip(names, total / hvd.size(), strict=True)})
