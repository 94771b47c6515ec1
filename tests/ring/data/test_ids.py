"""Ids that no embedding has a row for are found before the step that would hide them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
pytest.importorskip("horovod.tensorflow", reason="Horovod is not built")
import keras
import tensorflow as tf

from profiles.ground.errors import RingscopeError
from ringscope.ring.data import ids
from ringscope.ring.feed.feeds import staged
from tests.harness.host_slots import host_pool


def _recommender() -> Any:
    items, users = keras.Input((3,), dtype="int32", name="items"), keras.Input((), dtype="int64", name="users")
    numbers = keras.Input((2,), name="numbers")
    x = keras.layers.Flatten()(keras.layers.Embedding(10, 4, name="of_items")(items))
    x = keras.layers.Concatenate()([x, keras.layers.Embedding(5, 4, name="of_users")(users), numbers])
    return keras.Model({"items": items, "numbers": numbers, "users": users}, keras.layers.Dense(1)(x))


def _batch(items: Any, users: Any) -> Any:
    x = {"items": np.asarray(items, np.int32), "users": np.asarray(users, np.int64)}
    return {**x, "numbers": np.zeros((len(users), 2), np.float32)}, np.zeros(len(users), np.float32)


def _staged(model: Any, batch: Any) -> Any:
    data = tf.data.Dataset.from_tensors(batch)
    return next(staged(iter(data), host_pool, ids=ids.of_model(model, data.element_spec)))


def test_every_embedding_of_an_input_is_found_with_its_rows() -> None:
    spec = tf.data.Dataset.from_tensors(_batch([[1, 2, 3]], [4])).element_spec
    assert [(each.leaf, each.rows, each.layer) for each in ids.of_model(_recommender(), spec)] == [
        (0, 10, "of_items"),
        (2, 5, "of_users"),
    ]
    words = keras.Sequential([keras.Input((4,), dtype="int32"), keras.layers.Embedding(7, 2, name="words")])
    spec = tf.data.Dataset.from_tensors((np.zeros((1, 4), np.int32), np.zeros(1))).element_spec
    assert [(each.leaf, each.rows, each.layer) for each in ids.of_model(words, spec)] == [(0, 7, "words")]


@pytest.mark.parametrize(
    ("items", "users", "says"),
    [
        ([[0, 9, 3]], [5], "id 5 in a batch, and embedding 'of_users' has rows 0 to 4"),
        ([[0, 10, 3]], [4], "id 10 in a batch, and embedding 'of_items' has rows 0 to 9"),
        ([[0, -1, 3]], [4], "id -1 in a batch, and embedding 'of_items'"),
    ],
)
def test_an_id_without_a_row_ends_the_feed_with_its_layer(items: Any, users: Any, says: str) -> None:
    with pytest.raises(RingscopeError, match=says):
        _staged(_recommender(), _batch(items, users))


def test_ids_with_rows_pass() -> None:
    carried = _staged(_recommender(), _batch([[0, 9, 3]], [4]))
    assert carried.kinds[:3] == ("int32", "float32", "int64")


def test_inputs_of_other_names_and_models_not_made_of_layers_are_left_alone() -> None:
    spec = tf.data.Dataset.from_tensors(({"other": np.zeros((1, 3), np.int32)}, np.zeros(1))).element_spec
    assert ids.of_model(_recommender(), spec) == []

    class Own(keras.Model):
        def call(self, x: Any) -> Any:
            return x

    assert ids.of_model(Own(), spec) == []
