"""The rest of an epoch: the batches that no rank has taken when the training continues with other ranks."""

from __future__ import annotations

import weakref
from functools import cache
from typing import Any

import keras
import numpy as np

from profiles.ground.errors import RingscopeError

from ..alike import data
from ..data import shuffles
from ..data.samples import BATCH, length
from ..exchange import from_all, on_host
from ..internals.frameworks import hvd, tf
from ..say import once

NAMES = ("x", "y", "sample_weight")
# Data set -> number of passes that training has begun, and number of times that its shuffles have begun. Not by id:
# another data set gets the id of one that is gone, on some ranks only.
_orders: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
_begun: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


class Data:
    """The arguments of `fit`, and the part of the data that is left at a place in the training.

    every: steps between commits within an epoch; 0: no such commits. If not 0, arrays become a data set, whose order is
    known again after a restart of the script.
    """

    def __init__(self, options: dict[str, Any], every: int, *, shard: bool) -> None:
        self._options, self._shard, self._shares = dict(options), shard, False
        if every and not isinstance(options.get("x"), (tf.data.Dataset, keras.utils.PyDataset)):
            self._options |= _as_data_set(options)

    def check(self) -> None:
        """Raise RingscopeError if the rest of an epoch could not be determined."""
        x = self._options.get("x")
        why = ""
        if not self._shard:
            why = "with shard=False ring does not know which rank has which data"
        elif not isinstance(x, tf.data.Dataset):
            why = f"ring cannot tell which batches of a {type(x).__name__} come next"
        elif self._options.get("steps_per_epoch"):
            why = "with steps_per_epoch an epoch begins in the data set where the epoch before stopped"
        elif int(x.cardinality()) < 0:
            why = "the data set has no known length"
        if why:
            raise RingscopeError(f"{why}: leave commit_steps out; then every epoch is committed")

    def begun_in_an_epoch(self) -> int:
        """Number of times that Keras begins the data set in an epoch that runs to its end: if Keras knows the length,
        it also makes an iterator for the next epoch, and then makes another one instead of using it."""
        return _begun_by_keras() if self.total() >= 0 and not self._options.get("steps_per_epoch") else 1

    def order(self) -> int:
        """Number of times that training has begun the data set since the script began."""
        x = self._options.get("x")
        return _orders.get(x, 0) if isinstance(x, tf.data.Dataset) else 0

    def total(self) -> int:
        """Batches of the whole data in an epoch; negative if unknown."""
        x = self._options.get("x")
        return int(x.cardinality()) if isinstance(x, tf.data.Dataset) else -1

    def start(self, epoch: int, batches: int, ranks: int) -> int:
        """The batch with which the rest of an epoch begins. If fewer batches than ranks remain, some earlier ones are
        taken again, so that every rank has a batch in the last step."""
        if not batches or self.total() - batches >= ranks:
            return batches
        once(
            f"{ranks - self.total() + batches} batches of epoch {epoch + 1} are trained on twice, so that each "
            "rank has a batch in the last step"
        )
        return max(0, self.total() - ranks)

    def options_from(self, epoch: int, batches: int) -> dict[str, Any]:
        """The options of Keras's `fit` from this place on."""
        options = self._options | {"initial_epoch": epoch}
        if batches:
            rest = self._options["x"].skip(batches)
            options["x"] = rest.apply(tf.data.experimental.assert_cardinality(self.total() - batches))
        return options

    def bring_into_order(self, own: Any, order: int, looked_at: bool) -> None:
        """Give the next pass through `own`, a rank's share, the order that it has after `order` beginnings, since each
        beginning changes a shuffle's order. looked_at: True if a batch was already taken to build the model."""
        x = self._options.get("x")
        if not isinstance(x, tf.data.Dataset) or not isinstance(own, tf.data.Dataset):
            return
        # The share may contain shuffles that are not in the data set and have not begun yet.
        self._shares = any(each is other for each in shuffles.of(own) for other in shuffles.of(x))
        begun = (_begun.get(x, 0) if self._shares else 0) + looked_at
        for _ in range(order + 1 - begun):
            iter(own)
        if self._shares:
            _begun[x] = max(begun, order + 1)

    def was_begun(self, order: int) -> None:
        """Note the number of beginnings at the end of this part of the training."""
        x = self._options.get("x")
        if isinstance(x, tf.data.Dataset):
            _orders[x] = order
            if self._shares:
                _begun[x] = order + 1


@cache
def _begun_by_keras() -> int:
    from keras.src.backend.tensorflow.trainer import TFEpochIterator

    class Counting(TFEpochIterator):
        times = 0

        def _get_iterator(self) -> Any:
            self.times += 1
            return super()._get_iterator()

    epoch = Counting(x=tf.data.Dataset.range(2).batch(1), distribute_strategy=tf.distribute.get_strategy())
    for _, _, batches in epoch:
        next(batches)
    return epoch.times


def _as_data_set(options: dict[str, Any]) -> dict[str, Any]:
    """`options` with a data set of batches in place of arrays, in an order that the common seed of all ranks
    decides."""
    parts = [options.get(name) for name in NAMES]
    leaves = [leaf for leaf in keras.tree.flatten(parts) if leaf is not None]
    if not leaves or not all(isinstance(leaf, (np.ndarray, tf.Tensor)) for leaf in leaves):
        raise RingscopeError(
            "commit_steps needs NumPy arrays or a tf.data.Dataset; without it every epoch is committed"
        )
    if hvd.size() > 1:
        facts: data.Facts = {}
        for name, part in zip(NAMES, parts, strict=True):
            facts |= data.data_facts(part, name)
        data.check_data(from_all(facts, "arrays"))
    rows = length(leaves[0])
    ids = tf.data.Dataset.range(rows)
    if options.get("shuffle", True):
        ids = ids.shuffle(rows)
    with on_host():  # the tensors hold all data, and on a GPU would take up its memory
        held = keras.tree.map_structure(tf.convert_to_tensor, tuple(part for part in parts if part is not None))
    batches = ids.batch(int(options.get("batch_size") or BATCH)).map(
        lambda chosen: keras.tree.map_structure(lambda part: tf.gather(part, chosen), held)
    )
    return {"x": batches, "y": None, "sample_weight": None, "batch_size": None, "shuffle": False}
