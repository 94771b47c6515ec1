"""Batches: the joined batch of N ranks is one rank's, whatever the feed; and directories of TFRecords."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from harness.training.feeds import FEEDS  # noqa: E402
from harness.training.feeds.sources import Synthetic, TFRecords, _random_rows  # noqa: E402
from harness.training.models import MODELS, Spec  # noqa: E402
from profiles.ground.errors import RingscopeError  # noqa: E402

pytestmark = [pytest.mark.train, pytest.mark.beside]
SPEC = Spec((5, 3), 10)


def taken(batches: Any, number: int) -> list[tuple[Any, Any]]:
    return [(np.asarray(x), np.asarray(y)) for x, y in islice(batches, number)]


@pytest.mark.parametrize("row_bytes", [1, 15, 32, 100])
def test_random_rows_are_the_same_in_whatever_pieces_they_are_asked_for(row_bytes: int) -> None:
    whole = _random_rows(7, 0, 20, row_bytes)
    pieces = [_random_rows(7, first, 5, row_bytes) for first in (0, 5, 10, 15)]
    assert whole.shape == (20, row_bytes)
    assert np.array_equal(np.concatenate(pieces), whole)
    assert len(np.unique(_random_rows(7, 0, 4096, 1))) == 256
    assert not np.array_equal(_random_rows(8, 0, 20, row_bytes), whole)


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_joined_batches_of_three_ranks_are_those_of_one(dtype: str) -> None:
    one = taken(Synthetic(SPEC, 12, dtype=dtype).arrays(), 70)
    three = [taken(Synthetic(SPEC, 4, rank=rank, size=3, dtype=dtype).arrays(), 70) for rank in range(3)]
    for step in range(70):
        assert np.array_equal(np.concatenate([three[rank][step][0] for rank in range(3)]), one[step][0])
        assert np.array_equal(np.concatenate([three[rank][step][1] for rank in range(3)]), one[step][1])


def test_floats_are_the_bytes_scaled_as_the_models_scale_them() -> None:
    floats, _ = next(Synthetic(SPEC, 4).arrays())
    whole, _ = next(Synthetic(SPEC, 4, dtype="uint8").arrays())
    assert floats.dtype == np.float32 and whole.dtype == np.uint8
    np.testing.assert_allclose(floats, whole / 127.5 - 1, atol=1e-6)
    assert floats.min() >= -1 and floats.max() <= 1


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
@pytest.mark.parametrize("feed", [name for name in FEEDS if name not in ("pinned", "resident")])
def test_every_feed_brings_the_same_batches_in_the_same_order(feed: str, dtype: str) -> None:
    source = Synthetic(SPEC, 4, rank=1, size=2, dtype=dtype)
    batches = FEEDS[feed](source, "/CPU:0")
    for (x, y), (expected_x, expected_y) in zip(taken(batches, 70), taken(source.arrays(), 70), strict=True):
        assert x.dtype == dtype and y.dtype == np.int64
        assert np.array_equal(x, expected_x) and np.array_equal(y, expected_y)


def test_the_resident_feed_brings_its_first_batch_again_and_again() -> None:
    source = Synthetic(SPEC, 4)
    first = next(source.arrays())[0]
    assert all(np.array_equal(x, first) for x, _ in taken(FEEDS["resident"](source, "/CPU:0"), 3))


def test_labels_of_a_yes_or_no_model_are_0_and_1() -> None:
    _, y = next(Synthetic(MODELS["dense41m"], 64).arrays())
    assert set(y) == {0, 1}


def write_records(path: Path, images: list[bytes], key: str, labels: list[int]) -> None:
    with tf.io.TFRecordWriter(str(path)) as writer:
        for image, label in zip(images, labels, strict=True):
            features = {
                key: tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
                "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def test_raw_tfrecords_are_dealt_to_ranks_in_turn_and_repeat(tmp_path: Path) -> None:
    write_records(tmp_path / "a.tfrecord", [bytes([i] * 15) for i in range(8)], "image/raw", list(range(8)))
    spec = Spec((5, 3), 10)
    source = TFRecords(tmp_path, spec, 2, rank=1, size=2, dtype="uint8")
    labels = [list(y) for _, y in taken(source.arrays(), 3)]
    assert labels == [[1, 3], [5, 7], [1, 3]]
    x, _ = next(source.arrays())
    assert x.shape == (2, 5, 3) and np.all(x[0] == 1) and np.all(x[1] == 3)


def test_ranks_share_the_files_where_each_gets_as_many(tmp_path: Path) -> None:
    for i in range(4):
        write_records(tmp_path / f"{i}.tfrecord", [bytes([i] * 15)] * 2, "image/raw", [i] * 2)

    def labels(rank: int, size: int) -> list[int]:
        return [
            int(label) for _, y in taken(TFRecords(tmp_path, SPEC, 2, rank=rank, size=size).arrays(), 2) for label in y
        ]

    assert [sorted(labels(rank, 2)) for rank in range(2)] == [[0, 0, 2, 2], [1, 1, 3, 3]]
    # Three ranks cannot: 8 examples go round them one by one, and begin again.
    dealt = [labels(rank, 3) for rank in range(3)]
    assert sorted(sum(dealt, [])) == sorted([0, 0, 1, 1, 2, 2, 3, 3] + labels(0, 1)[:4])


def test_encoded_tfrecords_are_decoded_and_resized_to_the_model(tmp_path: Path) -> None:
    image = np.full((20, 30, 3), 200, np.uint8)
    encoded = bytes(tf.io.encode_png(image).numpy())
    write_records(tmp_path / "train.tfrecord-00000-of-00001", [encoded] * 4, "image/encoded", [1, 2, 3, 4])
    x, y = next(TFRecords(tmp_path, Spec((8, 8, 3), 10), 4).arrays())
    assert x.shape == (4, 8, 8, 3) and x.dtype == np.float32
    np.testing.assert_allclose(x, 200 / 127.5 - 1, atol=1e-5)
    assert list(y) == [1, 2, 3, 4]


def test_a_directory_without_enough_records_says_so(tmp_path: Path) -> None:
    with pytest.raises(RingscopeError, match="holds no .tfrecord. file"):
        TFRecords(tmp_path, SPEC, 2)
    write_records(tmp_path / "a.tfrecord", [bytes(15)] * 3, "image/raw", [0] * 3)
    with pytest.raises(RingscopeError, match="3 examples do not fill one batch of 2 on each of 2 ranks"):
        TFRecords(tmp_path, SPEC, 2, size=2)
