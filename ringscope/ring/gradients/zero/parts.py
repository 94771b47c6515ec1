"""Divide the optimizer's state and the weights into one part per rank, join the parts to save them, and divide them
again when they are loaded (see ringscope/ring/gradients/zero/sharded.py)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from profiles.ground.errors import RingscopeError

from ...exchange import from_rank, on_host
from ...internals.frameworks import hvd, tf
from ...models import optimizers_of, parts_of, without_loss_scale
from .. import float8_scales


class Parts:
    """The weights of an optimizer as one vector, padded to a multiple of the ranks; each rank owns one part of it.

    segments: for each weight, the piece that lies in this rank's part, a one-dimensional variable; empty if none does.
    The optimizer's state for a weight is cut like the weight, and not before the first step: until then a weight may be
    unfrozen, and the optimizer may be loaded.
    """

    def __init__(self, optimizer: Any) -> None:
        self._optimizer, self._inner = optimizer, without_loss_scale(optimizer)
        self.variables: list[Any] = []
        self.segments: list[Any] = []
        self._slots: list[list[Any]] = []  # a list per kind of state, such as momentum: one variable for each weight
        self._gathered: dict[int, Any] = {}  # id of a state variable -> its whole value, from all ranks' parts
        self._gathered_at = -1  # the optimizer's iteration when the state was gathered
        self._loaded: dict[int, Any] | None = None  # id of a state variable -> loaded value, until rank 0 has sent it
        for each in {id(one): one for one in (optimizer, self._inner)}.values():
            each.save_own_variables = partial(self._save, each, each.save_own_variables)
            each.load_own_variables = partial(self._load, each, each.load_own_variables)

    def cut(self, variables: Sequence[Any]) -> None:
        """Make the segments, once, and cut the optimizer's state."""
        if self.segments:
            if list(map(id, variables)) != list(map(id, self.variables)):
                raise RingscopeError(
                    "a sharded optimizer must update the same weights in each step; after weights are frozen or "
                    "unfrozen compile the model again and call ring.distribute(model, sharded=True) again"
                )
            return
        _check_weights(variables)
        with tf.init_scope():
            self._cut(list(variables))

    def _cut(self, variables: list[Any]) -> None:
        import keras

        sizes = [math.prod(variable.shape) for variable in variables]
        self._starts = [0, *accumulate(sizes)]
        self._length = -(-sum(sizes) // hvd.size())
        first = hvd.rank() * self._length
        self._ranges = [
            (min(max(first - start, 0), size), min(max(first + self._length - start, 0), size))
            for start, size in zip(self._starts, sizes, strict=False)
        ]
        self.variables = variables
        self.segments = [
            keras.Variable(tf.zeros([last - first]), name=variable.name)
            for variable, (first, last) in zip(variables, self._ranges, strict=True)
        ]
        inner, built = self._inner, self._optimizer.built
        excluded: set[int] = getattr(inner, "_exclude_from_weight_decay", set())
        excluded |= {
            inner._var_key(own)
            for v, own in zip(variables, self.segments, strict=True)
            if inner._var_key(v) in excluded
        }
        if built:
            inner._trainable_variables_indices.update({inner._var_key(own): i for i, own in enumerate(self.segments)})
            self._slots = _slots(inner, variables)
            for slot in self._slots:
                for state, (first, last) in zip(slot, self._ranges, strict=True):
                    # The value is replaced inside the optimizer's variable, so that the memory of the whole one is
                    # freed.
                    state._value = tf.Variable(tf.reshape(state.value, [-1])[first:last], trainable=False)
                    state._shape, state._ndim = (last - first,), 1
        else:
            self._optimizer.build(self.segments)
            self._slots = _slots(inner, self.segments)

    def read(self) -> None:
        """Copy the weights into the segments, so that assignments to weights since the last step count."""
        for segment, variable, (first, last) in zip(self.segments, self.variables, self._ranges, strict=True):
            segment.assign(tf.reshape(variable.value, [-1])[first:last])

    def split(self, own: Any) -> list[Any]:
        """Cut this rank's part of the vector into one piece for each weight, as in `segments`."""
        sizes = [last - first for first, last in self._ranges]
        return tf.split(own[: sum(sizes)], sizes)  # type: ignore[no-any-return]

    def joined(self, parts: Sequence[Any]) -> Any:
        """The pieces of all segments in one vector, padded to the same length on all ranks."""
        own = tf.concat(list(parts), axis=0)
        return tf.pad(own, [[0, self._length - own.shape[0]]])

    def whole(self, vector: Any) -> list[Any]:
        """Cut the joined vector of all ranks into the value of each weight."""
        return [
            tf.reshape(vector[first:last], variable.shape)
            for variable, first, last in zip(self.variables, self._starts[:-1], self._starts[1:], strict=True)
        ]

    def state(self) -> list[Any]:
        """The optimizer's variables that hold only this rank's part."""
        return [variable for slot in self._slots for variable in slot]

    def gather(self) -> None:
        """Collect all ranks' state in host memory, so that any rank can save it."""
        self._gathered = {}
        for slot in self._slots:
            vector = hvd.allgather(self.joined([state.value for state in slot]), name="state")
            with on_host():
                values = [value.numpy() for value in self.whole(tf.identity(vector))]
            self._gathered |= {id(state): value for state, value in zip(slot, values, strict=True)}
        self._gathered_at = self._iteration()

    def _iteration(self) -> int:
        return int(self._inner._iterations)

    def _save(self, optimizer: Any, save: Callable[[Any], None], store: Any) -> None:
        """Save the optimizer's variables as one that is not sharded would."""
        if not self._slots:
            save(store)
            return
        if self._gathered_at != self._iteration():
            raise RingscopeError(
                "the optimizer's state is spread over the ranks, and steps were taken since it was last gathered; "
                "call ring.gather(model) on all ranks before it is saved"
            )
        for i, variable in enumerate(optimizer.variables):
            found = self._gathered.get(id(variable))
            store[str(i)] = variable.numpy() if found is None else found

    def _load(self, optimizer: Any, load: Callable[[Any], None], store: Any) -> None:
        """Take this rank's part of the state that `_save`, or an optimizer that is not sharded, has written."""
        if not self._slots or len(store.keys()) != len(optimizer.variables):
            load(store)  # Keras's own error says what does not fit
            return
        places = {id(state): i for slot in self._slots for i, state in enumerate(slot)}
        self._loaded = {}
        for number, variable in enumerate(optimizer.variables):
            value = np.asarray(store[str(number)])
            if (place := places.get(id(variable))) is None:
                variable.assign(value)
            else:
                self._loaded[id(variable)] = value
                self._take(variable, place, value)

    def _take(self, state: Any, place: int, value: Any) -> None:
        first, last = self._ranges[place]
        state.assign(value.reshape(-1)[first:last])

    def from_rank_0(self) -> None:
        """If rank 0 has loaded state, take this rank's part of it."""
        if not from_rank(0, self._loaded is not None):
            return
        for slot in self._slots:
            for place, state in enumerate(slot):
                value = (self._loaded or {}).get(id(state)) if hvd.rank() == 0 else None
                shape = tuple(self.variables[place].shape)
                with on_host():
                    sent = tf.zeros(shape) if value is None else tf.constant(value, tf.float32)
                    self._take(state, place, hvd.broadcast(sent, root_rank=0, name="loaded").numpy())
        self._loaded = None


def gather(model: Any) -> None:
    """Collect a sharded optimizer's state in host memory, so that the model can be saved now. Call it on all ranks
    after the same step; `fit` does so at its end."""
    for optimizer in optimizers_of(model):
        if (parts := parts_of(optimizer)) is not None:
            parts.gather()


def saves_epochs(model: Any, savers: Sequence[Any]) -> bool:
    """True if rank 0's callbacks `savers` save a sharded optimizer after each epoch. Raises RingscopeError if one saves
    it more often."""
    if all(parts_of(optimizer) is None for optimizer in optimizers_of(model)):
        return False
    when = from_rank(0, [each.save_freq for each in savers if hasattr(each, "save_freq")])
    if any(each != "epoch" for each in when):
        raise RingscopeError(
            "a sharded optimizer's state is gathered only after an epoch; give ModelCheckpoint and BackupAndRestore "
            "save_freq='epoch'"
        )
    return bool(when)


def _check_weights(variables: Sequence[Any]) -> None:
    types = {tf.as_dtype(variable.dtype).name for variable in variables}
    if types != {"float32"}:
        raise RingscopeError(
            f"sharded=True works with float32 weights, and the weights here are {', '.join(sorted(types))};"
            " leave sharded=True out"
        )
    bound = [variable.path for variable in variables if variable.constraint is not None]
    if bound:
        raise RingscopeError(
            f"{bound[0]} has a constraint, which sharded=True would apply to parts of this weight; remove the "
            "constraint, or use sharded=False"
        )
    if found := float8_scales.places(variables):
        raise RingscopeError(
            f"{variables[found[0]].path} is overwritten in each step, not updated (as float8 keeps its scales), and "
            "sharded=True cannot do that; use sharded=False"
        )


def _slots(optimizer: Any, references: Sequence[Any]) -> list[list[Any]]:
    """The lists of state variables that a Keras optimizer keeps, each list with one variable per weight in
    `references`."""
    known = {id(variable) for variable in optimizer.variables}
    slots = [
        list(value)
        for name, value in vars(optimizer).items()
        if name != "_variables" and isinstance(value, list) and len(value) == len(references)
        if all(id(each) in known and each.shape == own.shape for each, own in zip(value, references, strict=True))
    ]
    told = {id(each) for slot in slots for each in slot} | {id(optimizer._iterations), id(optimizer._learning_rate)}
    # Scalars belong to the step, such as Nadam's product of learning rates, and are equal on all ranks.
    if left := [variable.path for variable in optimizer.variables if len(variable.shape) and id(variable) not in told]:
        raise RingscopeError(f"sharded=True cannot match {left[0]} to the weights; use sharded=False")
    return slots
