"""Try a function on made-up rows, once, while a step is traced; its assignments to variables are undone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
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


def _no_exchange() -> AbstractContextManager[None]:
    """Within this context an exchange fails instead of waiting, because other ranks may not try this shape."""
    from horovod.tensorflow import mpi_ops

    return laid_over(mpi_ops, STAYS, MPI_LIB=_Nothing())


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


def made_rows(spec: Any, random: Any, rows: int, *, labels: bool = False, wide: bool = False) -> Any:
    """Arrays of `rows` rows, in the spec's structure; None if it holds a value that cannot be made up. labels: True for
    labels, some of which are 0, as if masked. wide: True for values from -2.4 to 8.4, the first rows near 0, so that
    also a softmax differs from row to row; False: from 0.05 to 0.95, which are valid as probabilities."""
    leaves = tf.nest.flatten(spec)
    if not all(is_known(leaf) for leaf in leaves):
        return None
    return tf.nest.pack_sequence_as(spec, [_filled(leaf, random, rows, labels, wide) for leaf in leaves])


def with_some(labels: Any, random: Any, constants: Sequence[float] | None, *, beside: bool = False) -> Any:
    """The labels with some of them, and all of some rows, replaced by one of these constants. beside: True to replace
    them by a number one more or less, but no integers, because a class beside one that is masked may not exist."""
    wanted = [each + step for each in constants or () for step in ((-1, 1) if beside else (0,))]

    def replaced(values: Any) -> Any:
        if values.dtype == bool or (beside and values.dtype.kind in "iu") or not wanted:
            return values
        own = values.dtype
        for shape, share in ((values.shape, 0.4), ((len(values), *[1] * (values.ndim - 1)), 0.2)):
            values = np.where(random.uniform(size=shape) < share, random.choice(wanted, shape), values).astype(own)
        return values

    return tf.nest.map_structure(replaced, labels)


def is_known(leaf: Any) -> bool:
    if not isinstance(leaf, tf.Tensor) or leaf.shape.rank in (None, 0):
        return False
    return bool(leaf.dtype.is_floating or leaf.dtype.is_integer or leaf.dtype.is_bool)


def _filled(leaf: Any, random: Any, rows: int, labels: bool, wide: bool) -> Any:
    """Random values. They rise from row to row: if all rows were alike, then so would be the halves of a large batch,
    and any loss would look like a mean."""
    shape = [rows, *(OPEN if size is None else size for size in leaf.shape[1:])]
    at = np.linspace(0, 1, rows).reshape([rows, *[1] * len(shape[1:])])
    values = random.uniform(size=shape)
    if not leaf.dtype.is_floating:
        return (values < 0.2 + 0.6 * at).astype(leaf.dtype.as_numpy_dtype)
    values = 0.05 + 0.9 * values ** (4 ** (1 - 2 * at) if labels else 4 - 2.5 * at)
    values = np.where(labels & (values < 0.3), 0, values)
    return ((12 * values - 3) * (0.1 + 0.9 * at) if wide else values).astype(leaf.dtype.as_numpy_dtype)
