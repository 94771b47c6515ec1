"""Arrays and PyDatasets shared by ranks: every sample is one rank's, in the order that one rank alone has them in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
pytest.importorskip("horovod.tensorflow", reason="Horovod is not installed")
import keras
import scipy.sparse
import tensorflow as tf

from profiles.ground.errors import RingscopeError
from ringscope.ring.data import sharing

KINDS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "NumPy": (np.asarray, np.asarray),
    "pandas": (pd.DataFrame, np.asarray),
    "a tensor": (tf.constant, np.asarray),
    "SciPy": (scipy.sparse.csr_matrix, lambda array: array.toarray()),
    "a sparse tensor": (tf.sparse.from_dense, lambda array: tf.sparse.to_dense(array).numpy()),
    "a ragged tensor": (tf.RaggedTensor.from_tensor, lambda array: array.to_tensor().numpy()),
}


def shared(size: int, **options: Any) -> list[dict[str, Any]]:
    """What is left of the options of `fit`, by rank."""
    each = [dict(options) for _ in range(size)]
    for rank, own in enumerate(each):
        sharing.share_of_training(own, rank, size, "count", lambda value: value)
    return each


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("samples", [12, 13, 14])
@pytest.mark.parametrize("kind", KINDS)
def test_a_rank_has_every_nth_sample_and_all_as_many(kind: str, samples: int, size: int) -> None:
    made, dense = KINDS[kind]
    x = np.arange(1, 3 * samples + 1).reshape(samples, 3)
    ranks = shared(size, x=made(x), y=np.arange(samples))
    for rank, own in enumerate(ranks):
        mine = [sample for sample in range(samples // size * size) if sample % size == rank]
        assert dense(own["x"]).tolist() == x[mine].tolist()
        assert own["y"].tolist() == mine


@pytest.mark.parametrize("size", [2, 4])
def test_fewer_samples_than_ranks_are_refused(size: int) -> None:
    with pytest.raises(RingscopeError, match=rf"^too few samples for {size} ranks \({size - 1}\); "):
        shared(size, x=np.zeros((size - 1, 3)))


class Numbered(keras.utils.PyDataset):
    """Batches that are their own numbers."""

    def __init__(self, count: int | None) -> None:
        super().__init__()
        self._count = count

    @property
    def num_batches(self) -> int | None:
        return self._count

    def __getitem__(self, index: int) -> int:
        return index


@pytest.mark.parametrize("size", [2, 3])
def test_a_rank_has_every_nth_batch_of_a_py_dataset(size: int) -> None:
    for rank, own in enumerate(shared(size, x=Numbered(8))):
        assert own["x"].num_batches == 8 // size
        assert [own["x"][at] for at in range(8 // size)] == list(range(rank, 8 // size * size, size))
    for rank, own in enumerate(shared(size, x=Numbered(None), steps_per_epoch=3 * size)):
        assert [own["x"][at] for at in range(3)] == [rank, rank + size, rank + 2 * size]


@pytest.mark.parametrize("size", [2, 3])
def test_as_many_samples_or_batches_as_ranks_are_one_for_each_and_fewer_are_refused(size: int) -> None:
    assert [own["x"].tolist() for own in shared(size, x=np.arange(size))] == [[rank] for rank in range(size)]
    assert [own["x"][0] for own in shared(size, x=Numbered(size))] == list(range(size))
    batches = tf.data.Dataset.range(2 * size).batch(2)
    each = [[batch.numpy().tolist() for batch in own["x"]] for own in shared(size, x=batches)]
    assert each == [[[2 * rank, 2 * rank + 1]] for rank in range(size)]
    for x in (Numbered(size - 1), batches.take(size - 1)):
        with pytest.raises(RingscopeError, match=rf"^too few batches for {size} ranks \({size - 1}\); "):
            shared(size, x=x)


@pytest.mark.parametrize(
    ("x", "words"), [(Numbered(1), r"too few batches for 2 ranks \(1\); "), (Numbered(None), "no end")]
)
def test_a_py_dataset_of_which_no_rank_knows_its_part_is_refused(x: Any, words: str) -> None:
    with pytest.raises(RingscopeError, match=words):
        shared(2, x=x)


@pytest.mark.parametrize(("steps", "each"), [(8, 4), (7, 3), (1, 1)])
def test_given_steps_of_an_epoch_are_divided(steps: int, each: int) -> None:
    assert [own["steps_per_epoch"] for own in shared(2, x=np.zeros((64, 3)), steps_per_epoch=steps)] == [each, each]
