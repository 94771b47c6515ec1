"""Embeddings' gradients as rows: the table that all ranks' rows make, and training as by tables, to the bit."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.harness.running import run_in_turn
from tests.ring import SCRIPTS, from_ranks
from tests.tiers import few

tf = pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")
pytestmark = [pytest.mark.train, pytest.mark.beside]

from ringscope.ring.gradients import embedding_rows  # noqa: E402

Given = list[tuple[np.ndarray, np.ndarray]]  # by rank: values and indices


def _together(
    monkeypatch: pytest.MonkeyPatch, given: Given, shape: tuple[int, ...], *, averages: bool, narrow: bool = False
) -> Any:
    """What each of so many ranks makes of all ranks' rows, compiled by XLA: it packs, they are summed, it unpacks.
    narrow: they were computed in bfloat16."""
    table = SimpleNamespace(shape=tf.TensorShape(shape))
    sent = []
    for rank in range(len(given)):
        monkeypatch.setattr(
            embedding_rows, "hvd", SimpleNamespace(rank=lambda rank=rank: rank, size=lambda: len(given))
        )
        one = embedding_rows.Rows(True, averages=averages, keeps=narrow)

        @tf.function(jit_compile=True)  # type: ignore[untyped-decorator]
        def pack(values: Any, indices: Any, one: embedding_rows.Rows = one) -> Any:
            values = tf.cast(tf.cast(values, tf.bfloat16), tf.float32) if narrow else values
            return one.pack([tf.IndexedSlices(values, indices, tf.constant(shape))], [table], alike=True)

        (packed,) = pack(*given[rank])
        assert one._tables == {0: (shape, len(given[rank][1]))}
        assert packed.dtype == (tf.bfloat16 if narrow else tf.float32)
        sent.append(packed.numpy())
    kind = sent[0].dtype.type
    # Each place has one rank's numbers and zeros, which sum exactly; NCCL multiplies by the inverse, in this type.
    total = np.sum([each.astype(np.float32) for each in sent], axis=0).astype(kind)
    (unpacked,) = tf.function(one.unpack, jit_compile=True)(
        [tf.constant(total * kind(1 / len(given) if averages else 1))]
    )
    return unpacked.numpy()


@pytest.mark.parametrize(
    ("width", "averages", "ranks"), few(product([(5,), (2, 3), (1,)], [True, False], [2, 3, 7]), 5)
)
def test_all_ranks_rows_make_the_tables_gradient(
    ranks: int, averages: bool, width: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(ranks)
    length, count = 70_001, 40
    indices = [random.integers(0, length, count).astype(np.int64) for _ in range(ranks)]
    for each in indices:
        each[:9], each[9:12], each[12] = 4097, 0, length - 1  # several of one number, on all ranks
    values = [random.normal(size=(count, *width)).astype(np.float32) for _ in range(ranks)]
    expected = np.zeros((length, *width))
    for each, value in zip(indices, values, strict=True):
        np.add.at(expected, each, value.astype(float))
    shape = (length, *width)
    found = _together(monkeypatch, list(zip(values, indices, strict=True)), shape, averages=averages)
    np.testing.assert_allclose(found, expected / (ranks if averages else 1), rtol=1e-5, atol=1e-6)
    assert (found != 0).any(axis=tuple(range(1, found.ndim))).sum() == len(set(np.concatenate(indices)))


@pytest.mark.parametrize(("averages", "ranks"), few(product([True, False], [2, 3, 7]), 5))
def test_rows_computed_in_bfloat16_travel_as_that(ranks: int, averages: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of one number are added up in float32 first."""
    random = np.random.default_rng(ranks)
    length, count, width = 70_001, 40, 5
    indices = [random.integers(0, length, count).astype(np.int64) for _ in range(ranks)]
    for each in indices:
        each[:9], each[9:12], each[12] = 4097, 0, length - 1
    values = [random.normal(size=(count, width)).astype(np.float32) for _ in range(ranks)]
    expected = np.zeros((length, width))
    for each, value in zip(indices, values, strict=True):
        np.add.at(expected, each, value.astype(tf.bfloat16.as_numpy_dtype).astype(float))
    given = list(zip(values, indices, strict=True))
    found = _together(monkeypatch, given, (length, width), averages=averages, narrow=True)
    # A sum of a rank's rows is rounded once, and once more where it is divided.
    np.testing.assert_allclose(found, expected / (ranks if averages else 1), rtol=2**-7, atol=2**-7)
    assert (found != 0).any(axis=1).sum() == len(set(np.concatenate(indices)))


def test_a_table_made_of_rows_computed_in_bfloat16_travels_as_that() -> None:
    @tf.function(jit_compile=True)  # type: ignore[untyped-decorator]
    def sent(values: Any, keeps: bool) -> Any:
        wide = tf.reshape(tf.cast(tf.cast(values, tf.bfloat16), tf.float32), [6, 2])
        slices = tf.IndexedSlices(wide, tf.constant([0, 1, 1, 2, 2, 2]), tf.constant([4, 2]))
        one = embedding_rows.Rows(False, averages=True, keeps=keeps)
        return one.pack(
            [slices, tf.IndexedSlices(values[0], tf.constant([0, 1, 1]), tf.constant([4, 2]))], [None, None], alike=True
        )

    values = np.random.default_rng(0).normal(size=(2, 3, 2)).astype(np.float32)
    expected = np.zeros((4, 2))
    np.add.at(expected, [0, 1, 1, 2, 2, 2], values.astype(tf.bfloat16.as_numpy_dtype).astype(float).reshape(6, 2))
    for keeps, kind in ((True, tf.bfloat16), (False, tf.float32)):
        table, other = sent(values, keeps)
        assert table.dtype == kind and other.dtype == tf.float32  # the other's rows were computed in float32
        np.testing.assert_allclose(tf.cast(table, tf.float32), expected, rtol=2**-8 if keeps else 1e-6)


@pytest.mark.parametrize("ranks", range(2, 65))
@pytest.mark.parametrize("kind", [np.float32, tf.bfloat16.as_numpy_dtype])
def test_a_rows_number_arrives_whatever_the_ranks_divide_it_by(ranks: int, kind: Any) -> None:
    random = np.random.default_rng(ranks)
    bits, digits = embedding_rows.digits_of(tf.as_dtype(kind))
    assert bits * digits >= 31
    numbers = np.concatenate([random.integers(0, 1 << 31, 5000), [0, 1, (1 << bits) - 1, 1 << bits, (1 << 31) - 1]])
    for shift in range(0, bits * digits, bits):
        part = numbers >> shift & ((1 << bits) - 1)
        sent = part.astype(kind)
        # Multiplied by the inverse, as NCCL does, or divided.
        for divided in (sent * kind(1 / ranks), sent / kind(ranks)):
            assert (np.round(divided.astype(np.float32) * np.float32(ranks)).astype(np.int64) == part).all()


@pytest.mark.parametrize(
    ("count", "length", "width", "fewer"),
    [(100, 1000, 16, True), (300, 1000, 16, False), (100, 1000, 1, False), (131_072, 1_000_000, 64, True)],
)
def test_rows_travel_where_they_are_half_of_the_table(
    count: int, length: int, width: int, fewer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding_rows, "hvd", SimpleNamespace(size=lambda: 2))
    slices = tf.IndexedSlices(tf.zeros([count, width]), tf.zeros([count], tf.int32), tf.constant([length, width]))
    assert (
        embedding_rows.are_fewer(slices, (length, width), tf.float32)
        is fewer
        is (2 * count * (width + 2) <= length * width / 2)
    )
    narrow = tf.IndexedSlices(tf.zeros([count, width], tf.float16), slices.indices, slices.dense_shape)
    for other in (narrow, tf.zeros([length, width])):
        assert not embedding_rows.are_fewer(other, (length, width), other.dtype)


# ---- two real ranks


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    out = tmp_path_factory.mktemp("rows")
    run_in_turn([(SCRIPTS / "rows.py", out, *(case for case, as_rows in CASES.items() if as_rows))], "gloo")
    return out, from_ranks(out)


CASES = {
    "arrays": True,
    "sum": True,
    "data set": True,
    "a last batch that is smaller": False,  # rank 1 has it
    "a last batch that is left out": True,
    "beside the backward pass": True,
    "batches of unlike sizes": False,
    "asked for tables": False,
    "two local steps": False,
}


@pytest.mark.ci
@pytest.mark.parametrize(("case", "as_rows"), CASES.items())
def test_ranks_train_as_by_tables_to_the_bit(ran: tuple[Path, list[dict[str, Any]]], case: str, as_rows: bool) -> None:
    out, ranks = ran
    sent = [each for rank in ranks for each in rank[f"{case}, rows"]["rows"]]
    assert all(each == ([0, 1] if as_rows else []) for each in sent) and (sent or not as_rows)
    ways = ("rows", "tables") if as_rows else ("rows",)  # what sends no rows is the same training
    assert not any(any(rank[f"{case}, {way}"]["rows"]) for rank in ranks for way in ways[1:])
    weights = []
    for way in ways:
        for rank in range(2):
            with np.load(out / f"{case}, {way}.{rank}.npz") as kept:
                weights.append([kept[each] for each in kept.files])
    first, *others = weights
    assert all(np.array_equal(a, b) for other in others for a, b in zip(first, other, strict=True))
    assert all(ranks[0][f"{case}, rows"]["loss"] == ranks[0][f"{case}, {way}"]["loss"] for way in ways)
