"""Data of two ranks pass as equal only if all values are, whatever holds them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from profiles.ground.errors import RingscopeError

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
pytest.importorskip("horovod.tensorflow")
sparse = pytest.importorskip("scipy.sparse")

from ringscope.ring.alike import data  # noqa: E402


def scattered(places: Sequence[int], values: Sequence[float]) -> Any:
    """A row of 8 numbers as SciPy keeps it."""
    return sparse.csr_matrix((values, ([0] * len(places), places)), shape=(1, 8))


def _places(places: Sequence[int]) -> Any:
    return tf.SparseTensor([[place] for place in places], [1.0] * len(places), [8])


UNLIKE: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "rows of other lengths": (lambda: tf.ragged.constant([[1], [2, 3]]), lambda: tf.ragged.constant([[1, 2], [3]])),
    "other places in TensorFlow": (lambda: _places([0, 3]), lambda: _places([0, 4])),
    "other places in SciPy": (lambda: scattered([0, 3], [1, 1]), lambda: scattered([0, 4], [1, 1])),
    "other values in SciPy": (lambda: scattered([0, 3], [1, 1]), lambda: scattered([0, 3], [1, 2])),
    "another word": (lambda: np.array(["a", "b"], object), lambda: np.array(["a", "c"], object)),
    "another type": (lambda: np.zeros(4, "float32"), lambda: np.zeros(4, "int32")),
    "another shape": (lambda: np.zeros((2, 3)), lambda: np.zeros((3, 2))),
}


@pytest.mark.parametrize("what", UNLIKE)
def test_values_that_differ_have_other_digests_and_equal_ones_the_same(what: str) -> None:
    one, other = UNLIKE[what]
    assert data.digest(one()) == data.digest(one()) != data.digest(other())


def test_of_large_arrays_some_rows_are_read_and_the_first_and_the_last_are_among_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(data, "BLOCK_BYTES", 64)
    monkeypatch.setattr(data, "LOOKED_AT_BYTES", 256)
    whole, much = np.zeros((64, 1), "float32"), np.zeros((200, 1), "float32")

    def seen(values: Any, place: int) -> bool:
        changed = values.copy()
        changed[place] = 1
        return data.digest(values) != data.digest(changed)

    assert all(seen(whole, place) for place in range(len(whole)))
    found = [seen(much, place) for place in range(len(much))]
    assert found[0] and found[-1]
    assert sum(found) == 256 // much.itemsize  # as many bytes as are to be read


def test_data_that_each_rank_has_cut_by_shard_is_refused_and_the_same_shard_on_all_is_not() -> None:
    def facts(index: int) -> data.Facts:
        numbers = tf.data.Dataset.range(9).shard(2, index)  # of unlike lengths, too
        return data.data_facts(numbers.shuffle(9, seed=1).batch(1), "x")

    assert not data.check_data([facts(1), facts(1)])
    with pytest.raises(RingscopeError, match=r"remove x's shard\(...\), or call fit\(..., shard=False\)"):
        data.check_data([facts(0), facts(1)])


def mapped(words: Sequence[str], *, twice: bool = False) -> Any:
    """A data set of words, which a layer that knows these words numbers."""
    layer = keras.layers.StringLookup(vocabulary=list(words), name="words")
    texts = tf.data.Dataset.from_tensor_slices(["a", "c"]).map(lambda text: layer(text))
    return texts.batch(2).prefetch(1) if twice else texts


def test_a_layer_that_a_data_set_calls_has_the_words_of_rank_0() -> None:
    for more in ({}, {"twice": True}):
        same, other = data.data_facts(mapped("abc", **more), "x"), data.data_facts(mapped("cba", **more), "x")
        assert not data.check_data([same, data.data_facts(mapped("abc", **more), "x")])
        with pytest.raises(RingscopeError, match="the vocabulary of layer 'words' differs between rank 0 and rank 1"):
            data.check_data([same, other])


def test_a_layer_that_has_learnt_from_other_data_differs() -> None:
    def learnt(values: Sequence[float]) -> data.Facts:
        layer = keras.layers.Normalization(axis=None, name="scale")
        layer.adapt(np.array(values, "float32"))
        return data.layer_facts(layer)

    assert learnt([1, 2, 3]) == learnt([3, 2, 1]) != learnt([1, 2, 4])
    assert list(learnt([1, 2, 3])) == ["the state of layer 'scale'"]
