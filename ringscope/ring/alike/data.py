"""Check that the ranks hold the same data before `fit`.

Bit-equal weights (weights.py) do not show that the ranks trained on the right data: if each rank has shuffled or
encoded its data in its own way, their shares overlap, and no check of weights notices it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from profiles.ground.errors import RingscopeError

from ..data.pipeline import inputs, is_shuffle, operations
from ..data.samples import are_arrays
from ..internals.frameworks import tf

LOOKED_AT_BYTES = 64 << 20  # bytes of a larger array that are hashed; a smaller one is hashed whole
BLOCKS = 64  # blocks of adjacent rows that are hashed; such blocks need no copy
BLOCK_BYTES = 1 << 20  # bytes; a smaller array is hashed as one block
THREADS = 4
SHARDS = "the shard of "

Facts = dict[str, str]
"""Part of the data -> its digest. Parts whose name begins with `~` may differ if the data is augmented at random."""


def digest(array: Any) -> str:
    """A digest of shape, type and values: of all values up to 64 MB, in larger arrays of rows at fixed places."""
    if hasattr(array, "flat_values") and hasattr(array, "nested_row_splits"):
        return " ".join(map(digest, (array.flat_values, *array.nested_row_splits)))
    if isinstance(array, (tf.SparseTensor, tf.compat.v1.SparseTensorValue)):
        return " ".join(map(digest, (array.indices, array.values, array.dense_shape)))
    if hasattr(array, "tocoo"):
        sparse = array.tocoo()
        return " ".join([str(sparse.shape), *map(digest, (sparse.row, sparse.col, sparse.data))])
    values = np.asarray(array)
    told = _sha1(f"{values.shape} {values.dtype}".encode())
    if values.dtype == object or values.dtype.kind in "US":
        told.update(repr([part.tolist() for part in _looked_at(values)]).encode())
    else:
        with ThreadPoolExecutor(THREADS) as threads:  # threads: hashing releases Python's lock
            for part in threads.map(lambda part: _sha1(_bytes(part)).digest(), _looked_at(values)):
                told.update(part)
    return str(told.hexdigest()[:16])


def _sha1(data: Any) -> Any:
    """SHA-1, which processors have instructions for: 64 MB take half the time of blake2b."""
    return hashlib.sha1(data, usedforsecurity=False)


def _bytes(part: Any) -> Any:
    return np.ascontiguousarray(part).reshape(-1).view(np.uint8).data


def _looked_at(values: Any) -> list[Any]:
    """Blocks of rows: all rows, or rows at fixed places of a large array."""
    if not values.ndim or values.nbytes <= BLOCK_BYTES or len(values) < 2:
        return [values]
    if values.nbytes <= LOOKED_AT_BYTES:
        return np.array_split(values, min(BLOCKS, len(values)))
    rows = max(1, LOOKED_AT_BYTES * len(values) // values.nbytes)
    blocks = min(BLOCKS, rows)
    starts = np.linspace(0, len(values) - rows // blocks, blocks).astype(np.int64)
    return [values[start : start + rows // blocks] for start in starts]


def data_facts(data: Any, name: str) -> Facts:
    """Digests of the data, as far as they can be computed without reading all of it."""
    import keras

    if data is None:
        return {}
    if isinstance(data, tf.data.Dataset):
        return _data_set_facts(data, name)
    if isinstance(data, keras.utils.PyDataset):
        held = {key: value for key, value in vars(data).items() if isinstance(value, np.ndarray)}
        facts = {f"{key} of {name}": digest(value) for key, value in held.items()}
        return facts | {f"the number of batches of {name}": str(data.num_batches)}
    if not are_arrays(data):
        return {}
    leaves = [leaf for leaf in keras.tree.flatten(data) if leaf is not None]
    several = len(leaves) > 1
    return {f"{name}[{i}]" if several else name: digest(leaf) for i, leaf in enumerate(leaves)}


def _data_set_facts(dataset: Any, name: str) -> Facts:
    facts = {
        f"{SHARDS}{name}": str(shards(dataset)),
        f"the element_spec of {name}": str(dataset.element_spec),
        f"the number of batches of {name}": str(int(dataset.cardinality())),
        f"the seed of a shuffle of {name}": str(shuffle_seeds(dataset)),
    }
    for i, source in enumerate(_sources(dataset)):
        captured = getattr(source, "_tensors", None)
        try:
            if captured:
                facts[f"source {i} of {name}"] = " ".join(map(digest, captured))
            else:
                first = next(iter(source.take(1)), None)
                digests = map(digest, tf.nest.flatten(first))
                facts[f"~the first element of source {i} of {name}"] = " ".join(digests)
        except (tf.errors.OpError, TypeError, ValueError):
            continue  # the source cannot be read here, so it is not compared
    for layer in _captured_layers(dataset):
        facts |= layer_facts(layer)
    return facts


def _sources(dataset: Any) -> list[Any]:
    """The data sets at the start of the pipeline. One that expands elements (a generator, files read by `interleave`)
    counts as a source."""
    before = inputs(dataset)
    if not before or any(word in type(dataset).__name__ for word in ("FlatMap", "Interleave")):
        below = [source for each in before for source in _sources(each)]
        files = [source for source in below if getattr(source, "_tensors", None) and not _is_counter(source)]
        return files or [dataset]
    return [source for each in before for source in _sources(each)]


def _is_counter(source: Any) -> bool:
    """True if the source is the counter (a single number) with which `from_generator` begins."""
    return all(tensor.shape.num_elements() == 1 for tensor in source._tensors)


def shuffle_seeds(dataset: Any) -> list[tuple[int, int]]:
    """The seeds of every shuffle in the data set's pipeline."""
    shuffles = [each for each in operations(dataset) if is_shuffle(each) and hasattr(each, "_seed2")]
    return [(int(each._seed), int(each._seed2)) for each in shuffles]


def shards(dataset: Any) -> list[tuple[int, int]]:
    """(number of shards, which of them) for every `shard` in the data set's pipeline."""
    sharded = [each for each in operations(dataset) if hasattr(each, "_num_shards")]
    return [(int(each._num_shards), int(each._index)) for each in sharded]


def _captured_layers(dataset: Any) -> list[Any]:
    """The Keras layers that the functions of the data set's maps call."""
    import keras

    function = getattr(getattr(dataset, "_map_func", None), "_func", None)
    found: list[Any] = []
    if function is not None:
        held = [cell.cell_contents for cell in getattr(function, "__closure__", None) or () if _is_full(cell)]
        code = getattr(function, "__code__", None)
        if code is not None:
            held += [function.__globals__[name] for name in code.co_names if name in function.__globals__]
        for value in held:
            inner = getattr(value, "__wrapped__", value)
            found += [each for each in (inner,) if isinstance(each, keras.layers.Layer)]
    return found + [layer for source in inputs(dataset) for layer in _captured_layers(source)]


def _is_full(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def layer_facts(layer: Any) -> Facts:
    """Digests of the state of preprocessing layers: vocabularies, means and variances."""
    import keras

    facts: Facts = {}
    inner = layer._flatten_layers() if isinstance(layer, keras.layers.Layer) else []
    for each in inner:
        if callable(getattr(each, "get_vocabulary", None)):
            try:
                facts[f"the vocabulary of layer {each.name!r}"] = digest(np.array(each.get_vocabulary(), dtype=object))
            except (ValueError, RuntimeError, tf.errors.OpError):
                continue
        elif isinstance(each, (keras.layers.Normalization, keras.layers.Discretization)):
            state = [getattr(each, name, None) for name in ("mean", "variance", "bin_boundaries")]
            facts[f"the state of layer {each.name!r}"] = " ".join(digest(part) for part in state if part is not None)
    return facts


def check_data(everybodys: Sequence[Facts]) -> list[str]:
    """Raise RingscopeError if ranks prepared different data; returns warnings about differences that may be random."""
    warned = []
    for name in {name: None for facts in everybodys for name in facts}:
        differing = [rank for rank, facts in enumerate(everybodys) if facts.get(name) != everybodys[0].get(name)]
        if not differing:
            continue
        if any(name not in facts for facts in everybodys):
            raise RingscopeError(f"{name} is given on some ranks only; give it to all, or to none")
        if name.startswith(SHARDS):
            raise RingscopeError(
                f"{name} differs between rank 0 and rank {differing[0]}, but fit divides the data itself, and would"
                f" leave out a part of it; remove {name.removeprefix(SHARDS)}'s shard(...), or call"
                " fit(..., shard=False)"
            )
        if name.startswith("~"):
            warned.append(
                f"{name[1:]} differs between rank 0 and rank {differing[0]}; unless it is augmented at random, each "
                "rank has prepared other data, and the ranks' shares overlap"
            )
            continue
        raise RingscopeError(
            f"{name} differs between rank 0 and rank {differing[0]}, so the ranks' shares would overlap; prepare the "
            "data alike on all ranks (random numbers drawn between ring.init() and ring.distribute(), or from a seed "
            "of your own; sorted sets and file lists), or give each rank its own part and call fit(..., shard=False)"
        )
    return warned
