"""A tf.data pipeline shared by ranks: their batches are, epoch by epoch, together those of a rank alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
pytest.importorskip("horovod.tensorflow", reason="Horovod is not installed")
import horovod.tensorflow as hvd
import keras
import scipy.sparse
import tensorflow as tf

from profiles.ground.errors import RingscopeError
from profiles.model import marks
from ringscope.ring import models as batches
from ringscope.ring.data import blocks, sharing, shuffles
from tests.tiers import few

AUTO = tf.data.AUTOTUNE
EPOCHS = 3
Data = tf.data.Dataset
Files = Path


def _numbers(count: int, add: int = 0) -> Any:
    return Data.range(count).map(lambda x: x + add)


def _long(x: Any) -> Any:
    return tf.fill([x % 5 + 1], x)


def _parsed(line: Any) -> Any:
    return tf.strings.to_number(tf.strings.split(line, ","))


def _lines(folder: Files) -> list[str]:
    return sorted(map(str, folder.glob("*.csv")))


def _drawn(layer: Any) -> Callable[[Any], Any]:
    return lambda x: layer(tf.ones([4, 4, 1]) * tf.cast(x, tf.float32), training=True)


def _by_generator(_: Files) -> Any:
    random = tf.random.Generator.from_seed(3)
    return Data.range(40).map(lambda x: tf.cast(x, tf.float32) + random.uniform([])).batch(4)


def _windows(_: Files) -> Any:
    windows = Data.range(40).window(5, shift=1, drop_remainder=True).flat_map(lambda w: w.batch(5))
    return windows.map(lambda w: (w[:-1], w[-1])).shuffle(10).batch(4).prefetch(1)


def _saying(deterministic: bool) -> tf.data.Options:
    options = tf.data.Options()
    options.deterministic = deterministic
    return options


KINDS: dict[str, Callable[[Files], Any]] = {
    "cache, shuffle": lambda _: _numbers(40, 1).cache().shuffle(40).batch(4).prefetch(AUTO),
    "cache, shuffle, a last batch over": lambda _: _numbers(45, 1).cache().shuffle(45).batch(4),
    "cache, shuffle, map": lambda _: _numbers(40, 1).cache().shuffle(40).map(lambda x: 2 * x).batch(4),
    "cache, random map": lambda _: _numbers(40).cache().map(_drawn(keras.layers.RandomTranslation(0.5, 0.5))).batch(4),
    "shuffle, cache": lambda _: Data.range(40).shuffle(40).map(lambda x: x + 1).cache().batch(4),
    "batches in the cache": lambda _: _numbers(40).batch(4).cache().shuffle(5),
    "a generator of random numbers": _by_generator,
    "text files side by side": lambda folder: (
        tf.data.TextLineDataset(_lines(folder), num_parallel_reads=AUTO).skip(1).map(tf.strings.length).batch(4)
    ),
    "interleaved": lambda folder: (
        Data.list_files(str(folder / "*.csv"))
        .interleave(lambda name: tf.data.TextLineDataset(name).skip(1), num_parallel_calls=AUTO)
        .map(_parsed)
        .shuffle(10)
        .batch(4)
    ),
    "make_csv_dataset": lambda folder: tf.data.experimental.make_csv_dataset(
        str(folder / "*.csv"), batch_size=4, label_name="label", num_epochs=1
    ),
    "sampled of two": lambda _: Data.sample_from_datasets([_numbers(20), _numbers(30, 100)], [0.3, 0.7]).batch(4),
    "chosen of two": lambda _: Data.choose_from_datasets(
        [_numbers(20), _numbers(20, 50)], Data.range(2).repeat(15)
    ).batch(4),
    "group_by_window": lambda _: Data.range(50).group_by_window(lambda x: x % 3, lambda _, d: d.batch(4), 4),
    "buckets": lambda _: Data.range(50).map(_long).bucket_by_sequence_length(tf.size, [3, 5], [4, 4, 4]),
    "scan": lambda _: Data.range(40).scan(np.int64(0), lambda s, x: (s + x, s + x)).map(lambda x: 2 * x).batch(4),
    "windows": _windows,
    "padded": lambda _: Data.range(40).shuffle(40).map(_long).padded_batch(4).prefetch(2),
    "ragged": lambda _: Data.range(40).map(_long).ragged_batch(4),
    "sparse": lambda _: Data.range(40).map(lambda x: tf.sparse.from_dense(tf.one_hot(x % 5, 5))).batch(4),
    "zipped": lambda _: Data.zip((_numbers(40).shuffle(40), _numbers(40, 3).shuffle(40))).batch(4),
    "zipped batches": lambda _: Data.zip((_numbers(40).batch(4), _numbers(40, 3).batch(4))),
    "one after the other": lambda _: _numbers(21, 1).batch(4).concatenate(_numbers(13).batch(4)),
    "batched anew": lambda _: Data.range(40).batch(10).map(lambda x: x + 1).rebatch(4),
    "unbatched": lambda _: Data.range(40).batch(8).map(lambda x: tf.random.shuffle(x, seed=3)).unbatch().batch(4),
    "take_while": lambda _: _numbers(40).take_while(lambda x: x < 33).batch(4),
    "filtered": lambda _: Data.range(60).filter(lambda x: x % 3 != 0).map(lambda x: 2 * x).batch(4),
    "numbered": lambda _: Data.range(40).enumerate().map(lambda i, x: 100 * i + x).shuffle(5).batch(4),
    "skip, take": lambda _: (
        Data.range(60).shuffle(60, reshuffle_each_iteration=False).skip(10).take(33).map(lambda x: x + 1).batch(4)
    ),
    "repeated, shuffled": lambda _: Data.range(40).repeat(2).shuffle(16).map(lambda x: x + 1).batch(4),
    "shuffled between maps": lambda _: _numbers(40).shuffle(10).map(lambda x: 3 * x).batch(4),
    "in no fixed order, by option": lambda _: _numbers(40).batch(4).with_options(_saying(False)),
    "in order, by option": lambda _: _numbers(40).batch(4).with_options(_saying(True)).prefetch(1),
    "flat_map": lambda _: Data.range(12).flat_map(Data.range).map(lambda x: x + 1).batch(4),
    "dictionaries": lambda _: Data.range(40).map(lambda x: ({"a": x, "b": (x, x + 1)}, x)).shuffle(10).batch(4),
    "timeseries": lambda _: keras.utils.timeseries_dataset_from_array(
        np.arange(60.0)[:, None], np.arange(60.0), 5, batch_size=4, seed=1, shuffle=True
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("files")
    for file in range(4):
        rows = "".join(f"{file}.0,{row}.0,{row % 2}\n" for row in range(11))
        (path / f"{file}.csv").write_text("a,b,label\n" + rows)
    return path


@pytest.fixture(scope="module", autouse=True)
def horovod() -> Iterator[None]:
    hvd.init()
    yield
    hvd.shutdown()


def _epochs(dataset: Any) -> list[list[Any]]:
    return [[tf.nest.map_structure(_dense, batch) for batch in dataset] for _ in range(EPOCHS)]


def _dense(tensor: Any) -> Any:
    if isinstance(tensor, tf.RaggedTensor):
        return tensor.to_tensor(-1).numpy()
    return tf.sparse.to_dense(tensor).numpy() if isinstance(tensor, tf.SparseTensor) else tensor.numpy()


def _seeded(name: str, folder: Path) -> Any:
    keras.utils.set_random_seed(1)  # as ring.init has it on every rank
    return KINDS[name](folder)


@pytest.mark.parametrize("name", few(KINDS))
def test_the_ranks_batches_are_those_of_a_rank_alone(name: str, folder: Path) -> None:
    alone = _epochs(_seeded(name, folder))
    size = 3 if "shuffle" in name else 2
    for rank in range(size):
        share = sharing._share_of_dataset(_seeded(name, folder), rank, size, "together", None, bounded=False)
        for own, every in zip(_epochs(share), alone, strict=True):
            assert len(own) == len(every) // size
            for ours, theirs in zip(own, every[rank::size], strict=False):
                tf.nest.map_structure(np.testing.assert_array_equal, ours, theirs)


def _odd(x: Any) -> Any:
    return x % 2 == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: Data.range(48).shuffle(48).filter(_odd).batch(4),
        lambda: Data.range(48).filter(_odd).shuffle(48).batch(4),
        lambda: Data.range(24).shuffle(24).batch(4).filter(lambda batch: tf.size(batch) > 0),
    ],
    ids=["shuffled first", "filtered first", "batched first"],
)
def test_what_is_counted_is_shuffled_alike_afterwards(make: Callable[[], Any]) -> None:
    shares = []
    for rank in range(2):  # each with data of its own, as in processes of their own
        keras.utils.set_random_seed(1)
        shares.append(sharing._share_of_dataset(make(), rank, 2, "count", lambda _: 6, bounded=False))
    for one, other in zip(*map(_epochs, shares), strict=True):
        assert len({*np.concatenate([*one, *other]).tolist()}) == 24


@pytest.mark.parametrize(
    "make",
    [
        lambda: Data.range(24).shuffle(24).batch(4),
        lambda: Data.range(24).shuffle(24).map(lambda x: x + tf.random.uniform([], 0, 1, tf.int64)).batch(4),
        lambda: Data.range(6).shuffle(6).flat_map(lambda x: Data.range(4 * x, 4 * x + 4)).shuffle(24).batch(4),
        lambda: Data.range(24).cache().shuffle(24).batch(4).prefetch(2),
    ],
    ids=["shuffled", "drawn", "shuffled twice", "cached"],
)
def test_what_one_rank_alone_has_looked_at_is_shuffled_alike_afterwards(make: Callable[[], Any]) -> None:
    shuffles.count_beginnings()
    data = []
    for _ in range(2):
        keras.utils.set_random_seed(1)
        data.append(make())
    for _ in range(3):
        next(iter(data[0].take(1)))
    shuffles.catch_up(data[1], lambda own: [own, shuffles.begun(data[0])])
    shares = [
        sharing._share_of_dataset(each, rank, 2, "together", None, bounded=False) for rank, each in enumerate(data)
    ]
    for one, other in zip(*map(_epochs, shares), strict=True):
        assert len({*np.concatenate([*one, *other]).tolist()}) == 24


def test_a_cache_of_shuffled_data_that_one_rank_alone_has_begun_is_refused() -> None:
    shuffles.count_beginnings()
    one, other = (Data.range(24).shuffle(24, seed=1).cache().batch(4) for _ in range(2))
    next(iter(one))
    with pytest.raises(RingscopeError, match="iterate over it equally often on all ranks"):
        shuffles.catch_up(other, lambda own: [own, shuffles.begun(one)])


def _training(data: Any, rank: int) -> Any:
    return sharing._share_of_dataset(data, rank, 2, "together", None, bounded=False)


def _evaluation(data: Any, rank: int) -> Any:
    block = blocks.share_of_evaluation(data, None, None, None, None, rank, 2)
    assert block is not None
    return block.x


@pytest.mark.parametrize("batches", [6, 7])
@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("share", [_training, _evaluation])
def test_what_a_cache_holds_is_not_read_again(share: Any, shuffled: bool, batches: int, tmp_path: Path) -> None:
    names = [tmp_path / f"{i}.txt" for i in range(2 * batches)]
    for name in names:
        name.write_text(f"first {name.stem}")

    def data() -> Any:  # each rank has its own, whose shuffles take their own turns
        kept = Data.from_tensor_slices([str(name) for name in names]).map(tf.io.read_file).cache()
        return (kept.shuffle(4, seed=1) if shuffled else kept).batch(2)

    shares = [share(data(), rank) for rank in (0, 1)]
    epoch = [text for each in shares for batch in each for text in batch.numpy()]
    assert len(epoch) == len({*epoch}) == (2 * batches if share is _evaluation else 12)
    for name in names:
        name.write_text("again")
    for each in shares:
        assert all(text.startswith(b"first") for batch in each for text in batch.numpy())


def _words(count: int) -> Any:
    return Data.range(count).map(_long)


@pytest.mark.parametrize(
    ("give", "what"),
    [
        (lambda: {"x": np.zeros((12, 3)), "y": np.zeros(12)}, batches.ALIKE),
        (lambda: {"x": {"a": np.zeros((12, 3)), "b": np.zeros(12)}, "sample_weight": np.ones(12)}, batches.ALIKE),
        (lambda: {"x": scipy.sparse.csr_matrix(np.eye(12)), "y": np.zeros(12)}, batches.EVEN),
        (lambda: {"x": tf.ragged.constant([[1], [2, 3]] * 6), "y": np.zeros(12)}, batches.EVEN),
        (lambda: {"x": tf.sparse.from_dense(np.eye(12)), "y": np.zeros(12)}, batches.EVEN),
        (lambda: {"x": _numbers(12).batch(3, drop_remainder=True)}, batches.ALIKE),
        (lambda: {"x": _numbers(12).batch(3)}, batches.ALIKE),
        (lambda: {"x": _numbers(14).batch(3)}, batches.ALIKE),  # of 5 batches the last one is left out
        (lambda: {"x": _numbers(11).batch(3)}, batches.UNEVEN),  # of 4 the second rank has the smaller one
        (lambda: {"x": _numbers(12).filter(lambda x: x > 3).batch(3), "steps_per_epoch": 2}, batches.UNEVEN),
        (lambda: {"x": _numbers(12).batch(3).prefetch(2)}, batches.ALIKE),
        (lambda: {"x": _numbers(12).batch(3, drop_remainder=True).map(lambda x: 2 * x)}, batches.ALIKE),
        (lambda: {"x": _numbers(12).batch(3).map(lambda x: tf.boolean_mask(x, x % 5 > 0))}, batches.EVEN),
        (lambda: {"x": _words(12).padded_batch(3, drop_remainder=True)}, batches.EVEN),
        (lambda: {"x": _words(12).ragged_batch(3, drop_remainder=True)}, batches.EVEN),
    ],
)
def test_what_the_ranks_batches_are_to_each_other(give: Callable[[], dict[str, Any]], what: str) -> None:
    given = give()
    told = {sharing.share_of_training(dict(given), rank, 2, "count", lambda value: value) for rank in range(2)}
    assert told == {what}


class _Counted(keras.utils.PyDataset):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        return np.zeros((4, 2)), np.zeros(4)


@pytest.mark.parametrize(
    ("x", "loader"),
    [
        (lambda: Data.range(3).batch(1), "tf.data"),
        (_Counted, "PyDataset"),
        (lambda: (one for one in [(np.zeros((4, 2)), np.zeros(4))]), "generator"),
        (lambda: np.zeros((8, 2)), "arrays"),
        (lambda: None, ""),
    ],
)
def test_what_makes_the_batches_has_the_name_that_recordings_are_told(x: Callable[[], Any], loader: str) -> None:
    assert sharing.loader_of(x()) == loader
    assert not loader or loader in marks.LOADERS
