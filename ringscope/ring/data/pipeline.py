"""The operations of a data set's pipeline, as far as TensorFlow shows them: it has no public function for this."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

BATCHES = ("_BatchDataset", "_ParallelBatchDataset")
CACHES = ("_CacheDataset", "CacheDataset")
SHUFFLE = "_ShuffleDataset"


def inputs(dataset: Any) -> list[Any]:
    """The data sets that this one takes its elements from; empty if TensorFlow does not show them."""
    return list(dataset._inputs()) if hasattr(dataset, "_inputs") else []


def operations(dataset: Any) -> Iterator[Any]:
    """Yield the data set and all data sets that it is made from, each before its inputs."""
    yield dataset
    for each in inputs(dataset):
        yield from operations(each)


def is_cache(dataset: Any) -> bool:
    return type(dataset).__name__ in CACHES


def is_shuffle(dataset: Any) -> bool:
    return type(dataset).__name__ == SHUFFLE


def has_cache(dataset: Any) -> bool:
    """True if the pipeline has a cache(), as far as TensorFlow shows it."""
    return any(map(is_cache, operations(dataset)))
