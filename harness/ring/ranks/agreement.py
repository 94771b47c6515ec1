"""Whether the ranks hold the same: data before a fit, weights after the first steps, each epoch and at the end.

Weights that stay bit-equal do not say that the ranks trained on what they should have: where each rank has shuffled or
encoded its data in its own way, their shares overlap, and no check of weights sees it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from profiles.errors import RingscopeError

from ..data.samples import are_arrays
from ..exchange import from_all, hvd, optimizers_of, reduced_on_host, tf, traced_for_each_model

__all__ = [
    "Weights",
    "check_data",
    "check_weights",
    "data_facts",
    "differing_weight",
    "weights_digest",
    "weights_now",
]

LOOKED_AT_BYTES = 64 << 20
BLOCKS = 64  # of neighbouring rows, which need not be copied to be looked at
BLOCK_BYTES = 1 << 20
THREADS = 4
CHECKED = "weights_checked_by_ring"  # a model's attribute: the digest of the weights that were last found equal

Facts = dict[str, str]
"""What it is -> a digest. Names that begin with `~` may differ where the data is augmented at random."""


# ---- data


def digest(array: Any) -> str:
    """Of shape, type and values: of all up to 64 MB, of rows at fixed places where there are more."""
    if hasattr(array, "flat_values") and hasattr(array, "nested_row_splits"):
        return _joined(digest(part) for part in (array.flat_values, *array.nested_row_splits))
    if isinstance(array, (tf.SparseTensor, tf.compat.v1.SparseTensorValue)):
        return _joined(digest(part) for part in (array.indices, array.values, array.dense_shape))
    if hasattr(array, "tocoo"):
        sparse = array.tocoo()
        return _joined([str(sparse.shape), *(digest(part) for part in (sparse.row, sparse.col, sparse.data))])
    values = np.asarray(array)
    told = _sha1(f"{values.shape} {values.dtype}".encode())
    if values.dtype == object or values.dtype.kind in "US":
        told.update(repr([part.tolist() for part in _looked_at(values)]).encode())
    else:
        with ThreadPoolExecutor(THREADS) as threads:  # hashing lets other threads run
            for part in threads.map(lambda part: _sha1(_bytes(part)).digest(), _looked_at(values)):
                told.update(part)
    return str(told.hexdigest()[:16])


def _sha1(data: Any) -> Any:
    """Processors compute this one themselves: 64 MB take half the time of blake2b."""
    return hashlib.sha1(data, usedforsecurity=False)


def _bytes(part: Any) -> Any:
    return np.ascontiguousarray(part).reshape(-1).view(np.uint8).data


def _looked_at(values: Any) -> list[Any]:
    """Blocks of rows: of all of them, or at fixed places of a large array."""
    if not values.ndim or values.nbytes <= BLOCK_BYTES or len(values) < 2:
        return [values]
    if values.nbytes <= LOOKED_AT_BYTES:
        return np.array_split(values, min(BLOCKS, len(values)))
    rows = max(1, LOOKED_AT_BYTES * len(values) // values.nbytes)
    blocks = min(BLOCKS, rows)
    starts = np.linspace(0, len(values) - rows // blocks, blocks).astype(np.int64)
    return [values[start : start + rows // blocks] for start in starts]


def _joined(parts: Iterable[str]) -> str:
    return " ".join(parts)


def data_facts(data: Any, name: str) -> Facts:
    """What can be known of the data without going through it."""
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
        f"the element_spec of {name}": str(dataset.element_spec),
        f"the number of batches of {name}": str(int(dataset.cardinality())),
        f"the seed of a shuffle of {name}": str(shuffle_seeds(dataset)),
    }
    for i, source in enumerate(_sources(dataset)):
        captured = getattr(source, "_tensors", None)
        try:
            if captured:
                facts[f"source {i} of {name}"] = _joined(digest(tensor) for tensor in captured)
            else:
                first = next(iter(source.take(1)), None)
                facts[f"~the first element of source {i} of {name}"] = _joined(
                    digest(t) for t in tf.nest.flatten(first)
                )
        except (tf.errors.OpError, TypeError, ValueError):
            continue  # what cannot be looked at is not compared
    for layer in _captured_layers(dataset):
        facts |= layer_facts(layer)
    return facts


def _inputs(dataset: Any) -> list[Any]:
    # TensorFlow has no public way to ask; where its private one changes, less is compared.
    return list(dataset._inputs()) if hasattr(dataset, "_inputs") else []


def _sources(dataset: Any) -> list[Any]:
    """Where the elements come from; what expands elements (a generator, files read by `interleave`) is a source."""
    inputs = _inputs(dataset)
    if not inputs or any(word in type(dataset).__name__ for word in ("FlatMap", "Interleave")):
        below = [source for each in inputs for source in _sources(each)]
        files = [source for source in below if getattr(source, "_tensors", None) and not _is_counter(source)]
        return files or [dataset]
    return [source for each in inputs for source in _sources(each)]


def _is_counter(source: Any) -> bool:
    """The one number by which `from_generator` begins."""
    return all(tensor.shape.num_elements() == 1 for tensor in source._tensors)


def shuffle_seeds(dataset: Any) -> list[tuple[int, int]]:
    """The seeds of every shuffle that the data set comes through."""
    own = type(dataset).__name__ == "_ShuffleDataset" and hasattr(dataset, "_seed2")
    found = [(int(dataset._seed), int(dataset._seed2))] if own else []
    return found + [pair for source in _inputs(dataset) for pair in shuffle_seeds(source)]


def _captured_layers(dataset: Any) -> list[Any]:
    """Keras layers that the functions of its maps call."""
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
    return found + [layer for source in _inputs(dataset) for layer in _captured_layers(source)]


def _is_full(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def layer_facts(layer: Any) -> Facts:
    """The state of preprocessing layers: vocabularies, means and variances."""
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
            facts[f"the state of layer {each.name!r}"] = _joined(digest(s) for s in state if s is not None)
    return facts


def check_data(everybodys: Sequence[Facts]) -> list[str]:
    """Raise RingscopeError where ranks prepared other data; returns the warnings of what may differ at random."""
    warned = []
    for name in {name: None for facts in everybodys for name in facts}:
        differing = [rank for rank, facts in enumerate(everybodys) if facts.get(name) != everybodys[0].get(name)]
        if not differing:
            continue
        if any(name not in facts for facts in everybodys):
            raise RingscopeError(f"{name} is given on some ranks only; give it to all, or to none")
        if name.startswith("~"):
            warned.append(
                f"{name[1:]} differs between rank 0 and rank {differing[0]}; unless it is augmented at random, each"
                " rank prepares other data, so that the ranks' shares overlap"
            )
            continue
        raise RingscopeError(
            f"{name} differs between rank 0 and rank {differing[0]}, so the ranks' shares would overlap; prepare the"
            " data alike on all ranks (the same seeds after ring.init(), sorted sets and file lists), or give each rank"
            " its own part and call fit(..., shard=False)"
        )
    return warned


# ---- weights


def weights_digest(variables: Sequence[Any]) -> Any:
    """One int64 for each variable, the sum of its bits as 64-bit words: one pass over the weights where they lie."""
    return _all_bits([variable.value for variable in variables])


@tf.function(autograph=False)
def _all_bits(variables: Sequence[Any]) -> Any:
    return tf.stack([_bits(tf.convert_to_tensor(variable)) for variable in variables])


traced_for_each_model(_all_bits)


def _bits(value: Any) -> Any:
    if value.dtype.is_bool or value.dtype == tf.string:
        return tf.constant(0, tf.int64)
    size = value.dtype.size
    if value.dtype.is_complex or size > 8:
        value = tf.bitcast(value, tf.int64)
        size = 8
    flat = tf.reshape(value, [-1])
    words = flat.shape[0] * size // 8
    odd = flat.shape[0] - words * 8 // size
    whole = tf.reshape(flat[:-odd] if odd else flat, [words, 8 // size])
    total = tf.reduce_sum(tf.bitcast(whole, tf.int64))
    if odd:
        narrow = {1: tf.int8, 2: tf.int16, 4: tf.int32}[size]
        total += tf.reduce_sum(tf.cast(tf.bitcast(flat[-odd:], narrow), tf.int64))
    return total


def differing_weight(everybodys: np.ndarray[Any, Any]) -> tuple[int, int] | None:
    """(the first variable that differs, the rank where it does) of digests (ranks, variables), or None."""
    for variable in range(everybodys.shape[1]):
        for rank in range(1, everybodys.shape[0]):
            if everybodys[rank, variable] != everybodys[0, variable]:
                return variable, rank
    return None


class Weights(NamedTuple):
    """A model's trainable weights, and the digest of what they were when a device came to it."""

    variables: list[Any]
    digest: Any


def weights_now(model: Any) -> Weights | None:
    """Not waited for; None where there is nothing to compare."""
    variables = model.trainable_weights
    return Weights(variables, weights_digest(variables)) if variables and hvd.size() > 1 else None


def check_weights(model: Any, weights: Weights | None, when: str) -> None:
    """Raise RingscopeError on all ranks where these weights of the model differ."""
    if weights is None:
        return
    own = weights.digest.numpy()
    highest, not_lowest = np.split(reduced_on_host(np.concatenate([own, ~own]), hvd.Max, "weights"), 2)
    if np.any(highest != ~not_lowest):
        found = differing_weight(np.array(from_all(own, "digests")))
        assert found is not None
        _check_rates(model)
        raise RingscopeError(differs(weights.variables[found[0]].path, found[1], when))
    model.__dict__[CHECKED] = own.tolist()


def _check_rates(model: Any) -> None:
    """Raise RingscopeError where that is why: a callback, say, has set them from what one rank sees."""
    rates = from_all([float(optimizer.learning_rate) for optimizer in optimizers_of(model)], "rates")
    for rank, own in enumerate(rates):
        for rank_0s, rate in zip(rates[0], own, strict=False):
            if rate != rank_0s:
                raise RingscopeError(
                    f"the learning rate is {rank_0s:g} on rank 0 and {rate:g} on rank {rank}, so that their weights"
                    " differ; set it from what all ranks have: the logs of an epoch, or those of a batch after"
                    " ring.average_logs(logs)"
                )


def differs(name: str, rank: int, when: str) -> str:
    return (
        f"{name} differs between rank 0 and rank {rank} {when}: something updates it past the distributed optimizer;"
        " update it by an optimizer that the model holds when ring.distribute(model) is called, or average the"
        " gradients first: ring.average_gradients(gradients). What no optimizer is to train wants trainable=False"
    )
