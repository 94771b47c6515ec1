"""Take a rank's share of a data set before its expensive operations, not after: the batches stay bit-identical.

A share of finished batches (`Dataset.shard` at the end) makes every rank read, decode and augment all ranks' samples: N
ranks of a host do everything N times. Instead ring applies the operations after batch() and the maps before it again,
to this rank's elements alone. A shuffle and a stateless map may swap places, because the shuffle ignores the contents.
A data set that cannot be divided like this stays as it is, and ring says why. TensorFlow has no public way to inspect a
data set; if the private one changes, nothing is moved.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..internals.frameworks import tf
from .pipeline import BATCHES, CACHES, SHUFFLE, inputs, is_cache, is_shuffle, operations

MAPS = ("_MapDataset", "_ParallelMapDataset")
ONE_BY_ONE = (*MAPS, *CACHES, "_PrefetchDataset", "_OptionsDataset")
REPEAT = "_RepeatDataset"
# These operations are stateful for TensorFlow, but their results do not depend on the order of elements: calls, whose
# bodies are checked, and reads of files, variables and tables.
PLAIN = {
    *("StatefulPartitionedCall", "If", "While", "Case", "Assert", "ReadFile", "VarHandleOp", "ReadVariableOp"),
    *("HashTableV2", "LookupTableFindV2", "LookupTableSizeV2"),
}


@dataclass(frozen=True, slots=True)
class EarlyShare:
    """A rank's share of a data set. dataset: the rank's batches, endless or of unknown number if the whole data set is;
    None if they cannot be taken early, and `why` says why. works: True if the data set has maps, whose work is worth
    dividing."""

    dataset: Any | None
    why: str = ""
    works: bool = False


def share_before_work(dataset: Any, rank: int, size: int) -> EarlyShare:
    """Batches `rank`, `rank + size`, ... of the data set, with as little work for other batches as possible."""
    try:
        return _share(dataset, rank, size)
    except (AttributeError, TypeError, ValueError, IndexError) as error:
        return EarlyShare(None, f"ring cannot read the graph of the data set in this TensorFlow ({error})")


def _share(dataset: Any, rank: int, size: int) -> EarlyShare:
    after: list[Any] = []  # operations after batch(), the last one first
    while (kind := type(dataset).__name__) not in BATCHES:
        below = inputs(dataset)
        repeats = kind == REPEAT and int(below[0].cardinality()) > 0 and int(below[0].cardinality()) % size == 0
        if len(below) != 1 or not (kind in ONE_BY_ONE or repeats):
            return EarlyShare(
                None, f"the data set goes through {_name(kind)}() after its maps", works=_has_maps(dataset, after)
            )
        if why := _holds(dataset):
            return EarlyShare(None, why, works=True)
        after.append(dataset)
        dataset = below[0]
    batch, before, dataset = dataset, list[Any](), inputs(dataset)[0]
    while type(dataset).__name__ in (*ONE_BY_ONE, SHUFFLE):
        if why := _holds(dataset, shuffled=any(map(is_shuffle, before))):
            if any(map(_is_map, after + before)):
                break  # operations after this one can still be divided
            return EarlyShare(None, why, works=_has_maps(dataset, ()))
        before.append(dataset)
        dataset = inputs(dataset)[0]
    while before and not _is_map(before[-1]):  # nothing before the first map needs to move
        dataset = before.pop()
    if not before:
        own = _laid_over(batch.shard(size, rank), after) if any(map(_is_map, after)) else None
        return EarlyShare(own, works=own is not None)
    shuffles = list(filter(is_shuffle, before))
    own = dataset
    for each in reversed(shuffles):
        if (own := _shuffled(own, each)) is None:
            return EarlyShare(None, "a shuffle() after a map() has no seed", works=True)
    samples, whole = int(batch._batch_size), bool(batch._drop_remainder)
    own = of_each_group(own, samples * size, samples * rank, samples, whole=whole)
    own = _laid_over(own, [each for each in before if each not in shuffles])
    own = own.batch(samples, drop_remainder=whole, num_parallel_calls=_parallel(batch))
    return EarlyShare(_laid_over(own, after), works=True)


def between(dataset: Any, start: int, stop: int) -> Any:
    """Elements `start` to `stop` of the data set. Unlike `take`, this reads the data set to its end: only then is a
    cache() in it kept, and do all ranks draw equally many random values in an epoch."""
    numbered = dataset.enumerate().filter(lambda place, _: start <= place and place < stop)
    return numbered.map(lambda _, element: element).apply(tf.data.experimental.assert_cardinality(stop - start))


def _has_maps(dataset: Any, after: Sequence[Any]) -> bool:
    return any(map(_is_map, [*after, *operations(dataset)]))


def of_each_group(dataset: Any, count: int, skip: int, take: int, *, whole: bool) -> Any:
    """From every `count` consecutive elements, `take` elements after the first `skip`. whole: leave out a shorter last
    group."""

    def own(*group: Any) -> Any:
        together = tf.data.Dataset.zip(group[0] if len(group) == 1 else group)
        return together.skip(skip).take(take)

    return dataset.window(count, drop_remainder=whole).flat_map(own)


def _laid_over(dataset: Any, operations: Sequence[Any]) -> Any:
    """Another data set with these operations (last first) on top."""
    for each in reversed(operations):
        kind = type(each).__name__
        if kind == "_PrefetchDataset":
            dataset = dataset.prefetch(int(each._buffer_size))
        elif kind == "_OptionsDataset":
            dataset = dataset.with_options(each.options())
        elif kind == REPEAT:
            dataset = dataset.repeat(int(each._count))
        elif not _is_map(each):
            dataset = dataset.cache()
        else:
            deterministic = {"true": True, "false": False}.get(getattr(each, "_deterministic", ""))
            dataset = dataset.map(each._map_func._func, num_parallel_calls=_parallel(each), deterministic=deterministic)
    return dataset


def _parallel(operation: Any) -> int | None:
    calls = getattr(operation, "_num_parallel_calls", None)
    return None if calls is None else int(calls)


def _shuffled(dataset: Any, like: Any) -> Any | None:
    """The data set, shuffled in the order in which the shuffle `like` would shuffle it; None if that is not
    possible."""
    seeds = int(like._seed), int(like._seed2)
    made = dataset.shuffle(
        int(like._buffer_size), seed=seeds[1], reshuffle_each_iteration=like._reshuffle_each_iteration
    )
    return made if any(seeds) and (int(made._seed), int(made._seed2)) == seeds else None


def _is_map(dataset: Any) -> bool:
    return type(dataset).__name__ in MAPS


def _holds(dataset: Any, *, shuffled: bool = False) -> str:
    """The reason why this operation must see all elements; "" if there is none. shuffled: True if a shuffle comes after
    the operation."""
    if hasattr(dataset, "_filename") and dataset._filename.numpy():
        return "a cache() writes a file that must serve any number of ranks"
    if shuffled and is_cache(dataset):
        # A shuffle after the cache gives this rank other cached elements in each epoch.
        return "in the first epoch, each rank fills its own cache(), which comes before a shuffle()"
    if not _is_map(dataset):
        return ""
    if getattr(dataset, "_deterministic", "") == "false" or dataset.options().deterministic is False:
        return "a map() gives its elements in no fixed order"
    from tensorflow.python.framework import op_def_registry

    graph = dataset._map_func.function.graph.as_graph_def()
    nodes = [node for body in (graph, *graph.library.function) for node in getattr(body, "node_def", ())]
    for node in [*graph.node, *nodes]:
        known = op_def_registry.get(node.op)
        if known is not None and known.is_stateful and node.op not in PLAIN:
            return f"a map() keeps a state, draws random numbers or calls Python (operation {node.op})"
    return ""


def _name(kind: str) -> str:
    words = re.findall("[A-Z][a-z]*", kind.removesuffix("Dataset").removesuffix("DatasetV2"))
    return "_".join(words).lower() or kind
