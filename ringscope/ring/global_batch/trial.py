"""Try a function on made-up rows, once, while a step is traced; its assignments to variables are undone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np

from ..internals.frameworks import tf
from ..internals.laid_over import STAYS, laid_over, lifted
from . import totals

OPEN = 6  # the length that a dimension of unknown size gets

PARTS: tuple[Callable[[Any], Any], ...] = (
    lambda rows: rows,
    lambda rows: rows[::-1],  # in another order, for which the value differs only if the function draws random numbers
    lambda rows: rows[: len(rows) // 2],
    lambda rows: rows[len(rows) // 2 :],
)


_batch: list[Callable[[], Any]] = []  # the batch of the step that `fit` will take next


@contextmanager
def at_hand(batch: Callable[[], Any]) -> Iterator[None]:
    """Within this context, trials may use the labels of this training batch."""
    _batch.append(batch)
    try:
        yield
    finally:
        _batch.pop()


def labels_at_hand(like: Any) -> Any:
    """Labels of the training batch at hand, in the structure, shapes and types of `like`; None if there is no such
    batch."""
    if not _batch:
        return None

    def found() -> Any:
        _, labels, _ = keras.utils.unpack_x_y_sample_weight(_batch[-1]())
        return tf.nest.map_structure(lambda own, spec: _as_spec(own.numpy(), spec), labels, like)

    return tried(found, "/CPU:0")


def _as_spec(values: Any, spec: Any) -> Any:
    """The values with the spec's number of axes and type. Raises ValueError if their shape differs."""
    while values.ndim < spec.shape.rank:
        values = values[..., np.newaxis]
    if not spec.shape[1:].is_compatible_with(values.shape[1:]):
        raise ValueError(values.shape)
    return values.astype(spec.dtype.as_numpy_dtype)


def tried(work: Callable[[], Any], device: str | None = None) -> Any:
    """The result of `work`, computed now; None if it raises an error, for example on made-up rows."""
    try:
        with tf.init_scope(), tf.device(device), lifted(), _restored(), _no_exchange(), totals.looked_for():
            return work()
    except Exception:  # a user's function may raise any error
        return None


class _Nothing:
    """Replaces Horovod's operations: a call raises RuntimeError."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"{name}: ring's trial of the loss must not exchange with other ranks")


@contextmanager
def _no_exchange() -> Iterator[None]:
    """Within this context an exchange fails instead of waiting, because other ranks may not try this shape."""
    from horovod.tensorflow import mpi_ops

    with laid_over(mpi_ops, STAYS, MPI_LIB=_Nothing()):
        yield


@contextmanager
def _restored() -> Iterator[None]:
    """Undo at the end all assignments to TensorFlow's own variables, which Keras's scopes do not cover."""
    from tensorflow.python.ops.resource_variable_ops import ResourceVariable

    before: dict[int, tuple[Any, Any]] = {}

    def remembering(assign: Callable[..., Any]) -> Callable[..., Any]:
        def assigned(variable: Any, *args: Any, **kwargs: Any) -> Any:
            before.setdefault(id(variable), (variable, variable.read_value()))
            return assign(variable, *args, **kwargs)

        return assigned

    own = {name: getattr(ResourceVariable, name) for name in ("assign", "assign_add", "assign_sub")}
    try:
        with laid_over(ResourceVariable, STAYS, **{name: remembering(own[name]) for name in own}):
            yield
    finally:
        for variable, value in before.values():
            variable.assign(value)


def made_rows(spec: Any, random: Any, rows: int, *, labels: bool = False) -> Any:
    """Arrays of `rows` rows, in the spec's structure; None if it holds a value that cannot be made up."""
    leaves = tf.nest.flatten(spec)
    if not all(is_known(leaf) for leaf in leaves):
        return None
    return tf.nest.pack_sequence_as(spec, [_filled(leaf, random, rows, labels) for leaf in leaves])


def with_some(values: Any, random: Any, labels: Sequence[float]) -> Any:
    if values.dtype == bool:
        return values
    return np.where(random.uniform(size=values.shape) < 0.4, random.choice(labels, values.shape), values).astype(
        values.dtype
    )


def is_known(leaf: Any) -> bool:
    if not isinstance(leaf, tf.Tensor) or leaf.shape.rank in (None, 0):
        return False
    return bool(leaf.dtype.is_floating or leaf.dtype.is_integer or leaf.dtype.is_bool)


def _filled(leaf: Any, random: Any, rows: int, labels: bool) -> Any:
    """Random values between 0 and 1: valid as labels, tokens and probabilities. Some labels are 0, as if masked."""
    shape = [rows, *(OPEN if size is None else size for size in leaf.shape[1:])]
    kind = leaf.dtype.as_numpy_dtype
    if leaf.dtype.is_floating:
        values = random.uniform(0.05, 0.95, shape)
        return np.where(labels & (values < 0.3), 0, values).astype(kind)
    return random.integers(0, 2, shape).astype(kind)
