"""What crosses between ranks beside gradients: sums in a step, values of each rank, logs after an epoch."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from .internals.frameworks import hvd, tf, traced_for_each_model

__all__ = [
    "IN_STREAM",
    "average_logs",
    "from_all",
    "from_rank",
    "name_in_graph",
    "on_device_of",
    "on_host",
    "outside_scopes",
    "reduced_on_host",
    "sent_as",
    "sum_over_ranks",
    "summed_as",
]

# In an operation's name: the Horovod of scripts/build_horovod.py begins it at once, not at the end of a cycle, and runs
# it on TensorFlow's own stream of the GPU. That of Horovod would be one more with kernels on it, which slows the
# hand-over between all kernels of the process.
IN_STREAM = "in_stream"

SENT = (tf.uint8, tf.int8, tf.uint16, tf.int16, tf.int32, tf.int64, tf.float16, tf.float32, tf.float64, tf.bool)
BITS = {1: tf.uint8, 2: tf.float16, 4: tf.float32, 8: tf.float64, 16: tf.float64}  # by bytes; of complex128 two each


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

    return tf.cast(summed(tf.cast(tensor, summed_as(tensor.dtype))), tensor.dtype)


def summed_as(kind: Any) -> Any:
    """The type in which ranks sum numbers of this one. Horovod has no bfloat16; what it is edited to sum as that, where
    NCCL does it alone, `types.summed_as` knows."""
    return tf.float32 if kind == tf.bfloat16 else kind


def sent_as(kind: Any) -> Any:
    """The type of which the bits of a value of this one are sent: one that Horovod knows, and which GPUs take."""
    return kind if kind in SENT or kind.size not in BITS else BITS[kind.size]


def name_in_graph(name: str) -> str | None:
    """Eager calls are numbered by Horovod; in a graph it would name them after tensors, which bear models' names."""
    return None if tf.executing_eagerly() else name


def on_host() -> AbstractContextManager[Any]:
    """Where few bytes are exchanged that the host has and wants: else their kernels run on Horovod's stream of the GPU,
    which then hands over from one kernel to the next 0.3 microseconds later, to the process's end."""
    return tf.device("/CPU:0")  # type: ignore[no-any-return]


def reduced_on_host(values: Any, op: Any, name: str) -> np.ndarray[Any, Any]:
    """All ranks' values by hvd.Sum, Min or Max: few, which the host has and waits for. Shape and type stay."""
    own = np.asarray(values)
    if hvd.size() == 1:
        return own
    with on_host():
        everybodys: np.ndarray[Any, Any] = _reduced(tf.constant(own), op, name).numpy()
    return everybodys


@tf.function(autograph=False)
def _reduced(values: Any, op: Any, name: str) -> Any:
    # In a graph, where an operation has its name.
    with on_host():
        return hvd.allreduce(values, op=op, name=f"{IN_STREAM}_{name}")


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


traced_for_each_model(_reduced)


def average_logs(logs: dict[str, Any]) -> None:
    """Replace each number in `logs` by its mean over ranks, in place; what is no number stays."""
    names = sorted(name for name, value in logs.items() if np.ndim(value) == 0 and not isinstance(value, (str, bytes)))
    if not names or hvd.size() == 1:
        return
    total = reduced_on_host([float(logs[name]) for name in names], hvd.Sum, "logs")
    logs.update({name: float(value) for name, value in zip(names, total / hvd.size(), strict=True)})
