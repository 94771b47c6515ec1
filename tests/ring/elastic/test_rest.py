"""The rest of an epoch that other ranks go on with (ringscope/ring/elastic/rest.py), in one process."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")

import numpy as np
import tensorflow as tf

from ringscope.ring.elastic import rest

ROWS = np.arange(57, dtype="float32")


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Horovod begins once in a process, which may be another test's."""
    monkeypatch.setattr(rest, "hvd", SimpleNamespace(size=lambda: 1))


def taken(options: dict[str, Any]) -> list[list[float]]:
    return [np.ravel(batch[0] if isinstance(batch, tuple) else batch).tolist() for batch in options["x"]]


def begun(given: Any, *, every: int = 3) -> rest.Data:
    """As a script that begins has it: all draw alike from one seed."""
    tf.keras.utils.set_random_seed(5)
    given = given() if callable(given) else given
    data = rest.Data({"x": given, "batch_size": None if isinstance(given, tf.data.Dataset) else 8}, every, shard=True)
    data.check()
    return data


def shuffled() -> Any:
    return tf.data.Dataset.from_tensor_slices(ROWS).shuffle(57).batch(8)


@pytest.mark.parametrize("given", [ROWS, shuffled], ids=["arrays", "a data set"])
def test_what_is_left_follows_what_was_taken_in_the_same_order(given: Any) -> None:
    whole = taken(begun(given).options_from(2, 0))
    assert sorted(sum(whole, [])) == ROWS.tolist() and sum(whole, []) != ROWS.tolist()
    for batches in range(1, 8):
        data = begun(given)
        options = data.options_from(2, batches)
        assert options["initial_epoch"] == 2 and data.total() == 8
        assert int(options["x"].cardinality()) == 8 - batches
        assert taken(options) == whole[batches:]


def test_a_pass_has_the_order_that_it_would_have_had_without_the_restart() -> None:
    def passes(data: rest.Data, count: int) -> list[list[list[float]]]:
        return [taken(data.options_from(0, 0)) for _ in range(count)]

    first = passes(begun(shuffled), 4)
    assert first[0] != first[1]
    for order in range(3):
        again = begun(shuffled)
        own = again.options_from(0, 0)["x"]
        again.bring_into_order(own, order, looked_at=False)
        assert taken({"x": own}) == first[order + 1]
        again.was_begun(order + 1)
        assert again.order() == order + 1


def test_a_data_set_in_the_place_of_one_that_is_gone_begins_anew() -> None:
    for _ in range(20):
        data = begun(shuffled)
        assert data.order() == 0
        own = data.options_from(0, 0)["x"]
        data.bring_into_order(own, 2, looked_at=False)
        data.was_begun(2)
        assert data.order() == 2
        del data, own  # the next one may get its id


def test_every_rank_has_a_batch_in_the_last_step_and_no_more_are_taken_twice_than_that_takes() -> None:
    data = begun(ROWS)
    generator = random.Random(1)
    for _ in range(200):
        batches, ranks = generator.randrange(9), generator.randrange(1, 9)
        start = data.start(0, batches, ranks)
        left = 8 - batches
        assert start == (batches if not batches or left >= ranks else 8 - ranks)
