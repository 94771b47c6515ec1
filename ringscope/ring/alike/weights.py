"""Check that the ranks' weights are equal: after the first steps, after each epoch, before all ranks use them together,
and when the script ends."""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from profiles.ground.errors import RingscopeError

from ..exchange import from_all, reduced_on_host
from ..internals.frameworks import hvd, tf
from ..models import began_alike, kept, optimizers_of
from . import outside

_TOGETHER_BYTES = 64 << 20  # values of one shape that are copied beside each other, to be hashed at once


class Compared:
    """A model's weights for the comparison when the script ends, even if the model no longer exists then.

    paths: names of the weights. left: the digest of a deleted model's weights, if they had changed since they were last
    found equal; else None.
    """

    def __init__(self, model: Any) -> None:
        self._model = weakref.ref(model)
        self._variables: list[Any] = list(model.trainable_weights) if model.built else []
        self._equal: list[int] | None = None
        self._alone = hvd.size() == 1  # asked here: at the end of a script that calls hvd.init() Horovod is shut down
        self.paths: list[str] = []
        self.left: list[int] | None = None
        # Note the weights now and hash them later, because garbage may be collected inside a function that TensorFlow
        # is tracing.
        weakref.finalize(model, _gone.append, self).atexit = False

    def found_equal(self, variables: list[Any], digest: list[int]) -> None:
        self._variables, self._equal = variables, digest

    def changed(self) -> list[int] | None:
        """The digest of the weights if they have changed since they were last found equal; else None."""
        look_at_the_gone()
        model = self._model()
        if model is None:
            return self.left
        return self._changed(model.trainable_weights)

    @property
    def were_equal(self) -> bool:
        """True if the weights were ever found equal on all ranks."""
        return self._equal is not None

    def look_at_last(self) -> None:
        """Hash the weights of a deleted model, and release them."""
        variables, self._variables = self._variables, []
        self.left = self._changed(variables)

    def _changed(self, variables: list[Any]) -> list[int] | None:
        # one rank alone: hash nothing, because that takes seconds for a large model
        if not variables or self._alone:
            return None
        self.paths = [variable.path for variable in variables]
        own: list[int] = weights_digest(variables).numpy().tolist()
        return None if own == self._equal else own


_gone: list[Compared] = []  # weights of deleted models that are still to be hashed


def look_at_the_gone() -> None:
    while _gone:
        _gone.pop().look_at_last()


def compared(model: Any) -> Compared:
    """The `Compared` of a model, the same object at each call."""
    if kept(model).compared is None:
        look_at_the_gone()
        kept(model).compared = Compared(model)
    return kept(model).compared  # type: ignore[no-any-return]


def weights_digest(variables: Sequence[Any]) -> Any:
    """One int64 for each variable, the sum of its bits as 64-bit words, computed on the weights' device.

    No function is traced for it: tracing takes seconds for hundreds of weights, before the first step.
    """
    values = [tf.convert_to_tensor(variable) for variable in variables]
    groups = list(_groups(values))
    sums = [_bits(tf.stack([values[place] for place in group])) for group in groups]
    return tf.gather(tf.concat(sums, 0), np.argsort(np.concatenate(groups)))


def _groups(values: Sequence[Any]) -> Iterator[list[int]]:
    """Places of values of one shape and type, at most `_TOGETHER_BYTES` or one value: fewer operations, and little
    memory."""
    alike: defaultdict[Any, list[int]] = defaultdict(list)
    for place, value in enumerate(values):
        alike[value.dtype, tuple(value.shape)].append(place)
    for places in alike.values():
        first_value = values[places[0]]
        size_bytes = first_value.shape.num_elements() * first_value.dtype.size
        count = max(_TOGETHER_BYTES // max(size_bytes, 1), 1)
        yield from (places[first : first + count] for first in range(0, len(places), count))


def _bits(values: Any) -> Any:
    """(count,) int64 of the tensor (count, ...)."""
    count = values.shape[0]
    if values.dtype.is_bool or values.dtype == tf.string:
        return tf.zeros(count, tf.int64)
    size = values.dtype.size
    if values.dtype.is_complex or size > 8:
        values, size = tf.bitcast(values, tf.int64), 8
    flat = tf.reshape(values, [count, -1])
    words = flat.shape[1] * size // 8
    odd = flat.shape[1] - words * 8 // size
    whole = tf.reshape(flat[:, :-odd] if odd else flat, [count, words, 8 // size])
    total = tf.reduce_sum(tf.reshape(tf.bitcast(whole, tf.int64), [count, words]), 1)
    if odd:
        narrow = {1: tf.int8, 2: tf.int16, 4: tf.int32}[size]
        total += tf.reduce_sum(tf.cast(tf.bitcast(flat[:, -odd:], narrow), tf.int64), 1)
    return total


def differing_weight(everybodys: np.ndarray[Any, Any]) -> tuple[int, int] | None:
    """(the first variable that differs, the rank on which it does) from digests (ranks, variables); None if all are
    equal."""
    for variable in range(everybodys.shape[1]):
        for rank in range(1, everybodys.shape[0]):
            if everybodys[rank, variable] != everybodys[0, variable]:
                return variable, rank
    return None


class Weights(NamedTuple):
    """A model's trainable weights, the variables outside the model that its train step reads, and digests of both, of
    their values when this object was made."""

    variables: list[Any]
    digest: Any
    outside: list[Any]
    of_outside: Any


def weights_now(model: Any) -> Weights | None:
    """The model's weights with a digest that the device still computes; None if there is nothing to compare."""
    variables = model.trainable_weights
    if not variables or hvd.size() == 1:
        return None
    others = outside.variables_of(model)
    return Weights(variables, weights_digest(variables), others, weights_digest(others) if others else None)


def check_weights(model: Any, weights: Weights | None, when: str) -> None:
    """Raise RingscopeError on all ranks if these weights of the model differ; print a line if outside variables do."""
    if weights is None:
        return
    own = weights.digest.numpy()
    of_outside = np.zeros(0, np.int64) if weights.of_outside is None else weights.of_outside.numpy()
    both = np.concatenate([own, outside.one_number(of_outside)])
    highest, not_lowest = np.split(reduced_on_host(np.concatenate([both, ~both]), hvd.Max, "weights"), 2)
    *differ, others_differ = highest != ~not_lowest
    if any(differ):
        found = differing_weight(np.array(from_all(own, "digests")))
        assert found is not None
        _check_rates(model)
        raise RingscopeError(differs(weights.variables[found[0]].path, found[1], when))
    compared(model).found_equal(weights.variables, own.tolist())
    if others_differ:
        outside.say_unlike(weights.outside, of_outside)


def check_weights_now(model: Any, when: str) -> None:
    """`check_weights` on the model's current weights; call it on all ranks. It skips models that each rank trains
    alone."""
    if kept(model).compared is not None and began_alike(model):
        check_weights(model, weights_now(model), when)


def _check_rates(model: Any) -> None:
    """Raise RingscopeError if the ranks' learning rates differ, for example because a callback sets them from what one
    rank sees."""
    rates = from_all([float(optimizer.learning_rate) for optimizer in optimizers_of(model)], "rates")
    for rank, own in enumerate(rates):
        for rank_0s, rate in zip(rates[0], own, strict=False):
            if rate != rank_0s:
                raise RingscopeError(
                    f"the learning rate is {rank_0s:g} on rank 0 and {rate:g} on rank {rank}, so that their weights"
                    " differ; set it from what all ranks have: the logs of an epoch, or a batch's logs after"
                    " ring.average_logs(logs)"
                )


def differs(name: str, rank: int, when: str) -> str:
    return (
        f"{name} differs between rank 0 and rank {rank} {when}: something other than the distributed optimizer "
        "updates it; update it by an optimizer that the model holds when ring.distribute(model) is called, or average "
        "the gradients first: ring.average_gradients(gradients). Set trainable=False on weights that no optimizer "
        "trains"
    )
