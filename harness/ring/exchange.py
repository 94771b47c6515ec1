"""What crosses between ranks beside gradients: sums in a step; weights before the first; logs after an epoch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np

from profiles.errors import MissingLibrary, RingscopeError

from .garbage import uncollected

__all__ = [
    "IN_STREAM",
    "average_logs",
    "began_alike",
    "broadcast",
    "from_all",
    "from_rank",
    "has_gpu",
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
    "reduced_on_host",
    "sent_as",
    "sum_over_ranks",
    "summed_as",
    "tf",
    "traced_for_each_model",
]

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

try:
    with uncollected():
        import tensorflow as tf
except ImportError as error:
    raise MissingLibrary(
        f"TensorFlow does not load here ({error}); in a clone of ringscope `make setup` makes an environment with it,"
        " or: pip install '.[train]' && python scripts/build_horovod.py"
    ) from error
try:
    with uncollected():
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

# In an operation's name: the Horovod of scripts/build_horovod.py begins it at once, not at the end of a cycle, and runs
# it on TensorFlow's own stream of the GPU. That of Horovod would be one more with kernels on it, which slows the
# hand-over between all kernels of the process.
IN_STREAM = "in_stream"

SENT = (tf.uint8, tf.int8, tf.uint16, tf.int16, tf.int32, tf.int64, tf.float16, tf.float32, tf.float64, tf.bool)
BITS = {1: tf.uint8, 2: tf.float16, 4: tf.float32, 8: tf.float64, 16: tf.float64}  # by bytes; of complex128 two each


def has_gpu() -> bool:
    """Whether this process trains on one."""
    return bool(tf.config.get_visible_devices("GPU"))


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
    NCCL does it alone, `computed.summed_as` knows."""
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


def optimizers_of(model: Any, *, of_parts: bool = True) -> list[Any]:
    """The optimizers among a model's attributes (models with a train step of their own may have several), then those of
    the models that are parts of it."""
    from keras.optimizers import Optimizer

    found: dict[int, Any] = {}
    for each in model._flatten_layers() if of_parts else [model]:
        held = vars(each).values() if hasattr(each, "compile") else ()
        for value in held:
            found |= {id(one): one for one in _held_in(value) if isinstance(one, Optimizer)}
    return list(found.values())


def _held_in(value: Any) -> list[Any]:
    """What lists, tuples and dictionaries hold, also within each other."""
    if isinstance(value, dict):
        value = list(value.values())
    return [each for one in value for each in _held_in(one)] if isinstance(value, (list, tuple)) else [value]


def is_default(model: Any, optimizer: Any) -> bool:
    """Whether `compile` made it without being asked to: a model with optimizers of its own does not use it."""
    config = getattr(getattr(model, "_compile_config", None), "config", {})
    return optimizer is getattr(model, "optimizer", None) and config.get("optimizer") == "rmsprop"


def used_by_step(model: Any) -> list[Any]:
    """The optimizers that the model's own train step updates by."""
    own = optimizers_of(model, of_parts=False)
    return [each for each in own if len(own) == 1 or not is_default(model, each)]


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
    said = _everybodys(model, optimizers)
    # Rank 0's may have come with a model that it has loaded. One that nobody has built stays so: what it is to train
    # may be unfrozen yet.
    for optimizer, built_for in zip(optimizers, said[0].built_for, strict=True):
        if built_for and not optimizer.built and built_for == len(model.trainable_variables):
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


class _Made(NamedTuple):
    """What a rank has made: [(path, shape, type)] of the model's variables; how many each optimizer was built for."""

    variables: list[tuple[str, list[int], str]]
    built_for: list[int]


def _everybodys(model: Any, optimizers: Sequence[Any]) -> list[_Made]:
    """By rank. Raises RingscopeError where the models are not alike: ranks would wait for what another has not."""
    own = [(variable.path, list(variable.shape), str(variable.dtype)) for variable in model.variables]
    made = _Made(own, [_built_for(each) for each in optimizers])
    said = from_all(made, "made") if hvd.size() > 1 else [made]
    same = "make the same model on all ranks, also where it is chosen at random (with one seed) or read from a file"
    for rank, other in enumerate(said):
        for (path, *kind), (its, *its_kind) in zip(said[0].variables, other.variables, strict=False):
            if kind != its_kind:
                was, is_now = (f"{shape} {dtype}" for shape, dtype in (kind, its_kind))
                raise RingscopeError(f"{path} is {was} on rank 0, and {its} is {is_now} on rank {rank}; {same}")
        counts = [(len(each.variables), len(each.built_for)) for each in (said[0], other)]
        if counts[0] != counts[1]:
            had, has = (f"{variables} variables and {found} optimizers" for variables, found in counts)
            raise RingscopeError(f"the model has {had} on rank 0, and {has} on rank {rank}; {same}")
    return said


def _built_for(optimizer: Any) -> int:
    """How many variables it was built for; 0 where it is not built."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    return len(inner._trainable_variables) if optimizer.built else 0


def traced_for_each_model(function: Any) -> None:
    """Have TensorFlow not warn that it traces this one often, which a script that tries many models cannot help."""
    function._omit_frequent_tracing_warning = True


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
        bits = sent_as(variable.dtype)
        own = variable if bits == variable.dtype else tf.bitcast(variable, bits)
        sent = hvd.broadcast(own, root_rank=0, name=f"{IN_STREAM}_{i}")
        variable.assign(sent if bits == variable.dtype else tf.bitcast(sent, variable.dtype))


traced_for_each_model(_from_rank_0)
traced_for_each_model(_reduced)


def average_logs(logs: dict[str, Any]) -> None:
    """Replace each number in `logs` by its mean over ranks, in place; what is no number stays."""
    names = sorted(name for name, value in logs.items() if np.ndim(value) == 0 and not isinstance(value, (str, bytes)))
    if not names or hvd.size() == 1:
        return
    total = reduced_on_host([float(logs[name]) for name in names], hvd.Sum, "logs")
    logs.update({name: float(value) for name, value in zip(names, total / hvd.size(), strict=True)})
