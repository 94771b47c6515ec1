"""Losses of people's own, read from their graphs: what they are to the rows of a batch, and of two parts of one what
they are of the whole, in value and gradient."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
pytest.importorskip("horovod.tensorflow")

from keras import ops  # noqa: E402

from ringscope import ring  # noqa: E402
from ringscope.ring.global_batch import totals  # noqa: E402
from ringscope.ring.global_batch.ratios import Apart, look, of_all_ranks  # noqa: E402

ROWS, FIRST = 12, 5  # of the whole, of its first part where these are of unlike sizes
random = np.random.default_rng(1)
X = random.normal(size=(ROWS, 3)).astype("float32")
LABELS = random.integers(0, 3, (ROWS, 4)).astype("float32")
VOID = np.where(random.uniform(size=LABELS.shape) < 0.4, 255, LABELS).astype("float32")
VOID[:2], VOID[-2:] = 255, LABELS[-2:]
UNKNOWN = np.where(VOID == 255, -1, VOID).astype("float32")
SIZES = random.uniform(0.1, 5, (ROWS, 1)).astype("float32")
ONE_HOT = np.eye(3, dtype="float32")[LABELS[:, 0].astype(int)]
WEIGHTS = random.normal(size=(3, 12)).astype("float32") * 0.4


class Case(NamedTuple):
    kind: str
    y: Any
    loss: Callable[[Any, Any], Any]


CASES: dict[str, Case] = {}


def case(kind: str, y: Any) -> Callable[[Callable[[Any, Any], Any]], Callable[[Any, Any], Any]]:
    def kept(loss: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        CASES[loss.__name__] = Case(kind, y, loss)
        return loss

    return kept


def per_label(y: Any, p: Any, void: int) -> tuple[Any, Any]:
    y = tf.cast(y, tf.int32)
    valid = tf.not_equal(y, void)
    logits = tf.reshape(p, [-1, 4, 3])
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.where(valid, y, 0), logits)
    return each, tf.cast(valid, tf.float32)


@case("joined", VOID)
def void_labels(y: Any, p: Any) -> Any:
    each, valid = per_label(y, p, 255)
    return tf.reduce_sum(each * valid) / tf.reduce_sum(valid)


@case("joined", UNKNOWN)
def unknown_labels_or_none(y: Any, p: Any) -> Any:
    each, valid = per_label(y, p, -1)
    return tf.math.divide_no_nan(tf.reduce_sum(each * valid), tf.reduce_sum(valid))


@case("joined", VOID)
def labels_that_a_mask_leaves(y: Any, p: Any) -> Any:
    keep = tf.not_equal(y, 255)
    logits = tf.boolean_mask(tf.reshape(p, [-1, 4, 3]), keep)
    return tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(tf.boolean_mask(y, keep), logits, True))


@case("joined", VOID)
def labels_at_places(y: Any, p: Any) -> Any:
    flat = tf.reshape(y, [-1])
    places = tf.reshape(tf.where(flat < 200), [-1])
    logits = tf.gather(tf.reshape(p, [-1, 3]), places)
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(tf.cast(tf.gather(flat, places), tf.int32), logits)
    )


@case("joined", UNKNOWN)
def by_keras_operations(y: Any, p: Any) -> Any:
    valid = ops.cast(ops.not_equal(y, -1), "float32")
    each = keras.losses.sparse_categorical_crossentropy(ops.maximum(y, 0), ops.reshape(p, (-1, 4, 3)), from_logits=True)
    return ops.sum(each * valid) / (ops.sum(valid) + keras.config.epsilon())


@case("joined", SIZES)
def weights_by_the_targets_size(y: Any, p: Any) -> Any:
    weights = 1 / (0.5 + y)
    return tf.reduce_sum(weights * tf.square(p[:, :1] - y)) / tf.reduce_sum(weights)


@case("joined", LABELS)
def by_the_number_of_positives(y: Any, p: Any) -> Any:
    positive = tf.cast(y > 1.5, tf.float32)
    p = tf.sigmoid(p[:, :4])
    focal = -positive * (1 - p) ** 2 * tf.math.log(p) - (1 - positive) * p**2 * tf.math.log(1 - p)
    return tf.reduce_sum(focal) / tf.maximum(1.0, tf.reduce_sum(positive))


@case("joined", LABELS)
def two_parts_of_a_detector(y: Any, p: Any) -> Any:
    positive = tf.cast(y > 0.5, tf.float32)
    found = tf.math.count_nonzero(positive, dtype=tf.float32) + 1.0
    boxes = tf.reduce_sum(positive * tf.abs(p[:, :4] - y)) / found
    return boxes + 2 * tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(positive, p[:, 4:8]))


@case("joined", ONE_HOT)
def dice_of_a_batch(y: Any, p: Any) -> Any:
    p = tf.nn.softmax(p[:, :3])
    return 1 - (2 * tf.reduce_sum(y * p) + 1) / (tf.reduce_sum(y) + tf.reduce_sum(p) + 1)


@case("joined", ONE_HOT)
def dice_of_each_class(y: Any, p: Any) -> Any:
    p = tf.nn.softmax(p[:, :3])
    return 1 - (2 * tf.reduce_sum(y * p, axis=0) + 1) / (tf.reduce_sum(y, axis=0) + tf.reduce_sum(p, axis=0) + 1)


@case("joined", ONE_HOT)
def tversky_of_what_is_flat(y: Any, p: Any) -> Any:
    y, p = ops.reshape(y, [-1]), ops.reshape(ops.softmax(p[:, :3]), [-1])
    hit, missed, wrong = ops.sum(y * p), ops.sum(y * (1 - p)), ops.sum((1 - y) * p)
    return 1 - (hit + 1) / (hit + 0.7 * missed + 0.3 * wrong + 1)


@case("joined", SIZES)
def root_of_a_mean(y: Any, p: Any) -> Any:
    return tf.sqrt(tf.reduce_mean(tf.square(p[:, :1] - y)))


@case("joined", LABELS)
def classes_weighted_by_a_table(y: Any, p: Any) -> Any:
    weights = tf.gather([1.0, 4.0, 0.5], tf.cast(y[:, 0], tf.int32))
    each = keras.losses.sparse_categorical_crossentropy(y[:, 0], p[:, :3], from_logits=True)
    return tf.reduce_sum(each * weights) / tf.reduce_sum(weights)


@case("joined", LABELS)
def padding_and_a_regulariser(y: Any, p: Any) -> Any:
    real = tf.cast(y != 0, tf.float32)
    each = keras.losses.sparse_categorical_crossentropy(y, tf.reshape(p, [-1, 4, 3]), from_logits=True)
    return tf.reduce_sum(each * real) / tf.reduce_sum(real) + 0.01 * tf.reduce_mean(p**2)


@case("joined", LABELS)
def a_mean_of_each_class(y: Any, p: Any) -> Any:
    hot = tf.one_hot(tf.cast(y[:, 0], tf.int32), 3)
    total = tf.reduce_sum(hot * tf.nn.log_softmax(p[:, :3]), axis=0)
    return -tf.reduce_mean(total / (tf.reduce_sum(hot, axis=0) + 0.5))


@case("joined", LABELS)
def a_mean_of_each_segment(y: Any, p: Any) -> Any:
    return tf.reduce_mean(tf.math.unsorted_segment_mean(tf.square(p[:, 0]), tf.cast(y[:, 0], tf.int32), 3))


@case("joined", LABELS)
def sums_of_segments_by_names(y: Any, p: Any) -> Any:
    ids = tf.cast(y[:, 0], tf.int32)
    total = tf.math.unsorted_segment_sum(num_segments=3, segment_ids=ids, data=tf.square(p[:, 0]))
    return tf.reduce_mean(total / (tf.math.unsorted_segment_sum(tf.ones_like(p[:, 0]), ids, 3) + 1))


@case("joined", LABELS)
def a_mean_of_each_segment_by_keras(y: Any, p: Any) -> Any:
    ids, each = keras.ops.cast(y[:, 0], "int32"), keras.ops.square(p[:, 0])
    counts = keras.ops.segment_sum(keras.ops.ones_like(each), ids, num_segments=3)
    return keras.ops.mean(keras.ops.segment_sum(each, ids, num_segments=3) / keras.ops.maximum(counts, 1))


@case("joined", VOID)
def public_helper(y: Any, p: Any) -> Any:
    each, valid = per_label(y, p, 255)
    return ring.mean(each, valid)


@case("joined", SIZES)
def public_helpers_of_what_compares_rows(y: Any, p: Any) -> Any:
    return tf.sqrt(ring.sum(tf.square(p[:, :1] - y)) / ring.sum(y))


@case("joined", VOID)
def the_number_that_a_mask_leaves(y: Any, p: Any) -> Any:
    keep = tf.not_equal(y, 255)
    left = tf.boolean_mask(tf.square(p[:, :4] - tf.where(keep, y, 0.0)), keep)
    return tf.reduce_sum(left) / tf.cast(tf.size(left), tf.float32)


@case("joined", UNKNOWN)
def the_number_of_places(y: Any, p: Any) -> Any:
    places = tf.where(y >= 0)
    total = tf.reduce_sum(tf.square(tf.gather_nd(p[:, :4], places)))
    return total / tf.cast(tf.maximum(tf.shape(places)[0], 1), tf.float32)


@case("joined", SIZES)
def one_less_than_the_rows(y: Any, p: Any) -> Any:
    return tf.reduce_sum(tf.square(p[:, :1] - y)) / (tf.cast(tf.shape(y)[0], tf.float32) - 1)


@case("joined", SIZES)
def a_share_of_the_variance(y: Any, p: Any) -> Any:
    return tf.reduce_sum((y - p[:, :1]) ** 2) / tf.reduce_sum((y - tf.reduce_mean(y)) ** 2)


@case("mean", LABELS)
def weights_made_one_on_average(y: Any, p: Any) -> Any:
    weights = (1 + y) / tf.reduce_mean(1 + y)
    return tf.reduce_mean(weights * tf.square(p[:, :4] - y))


@case("mean", ONE_HOT)
def positives_weighed_by_negatives(y: Any, p: Any) -> Any:
    weight = tf.reduce_sum(1 - y) / tf.reduce_sum(y)
    return tf.reduce_mean(tf.nn.weighted_cross_entropy_with_logits(y, p[:, :3], weight))


@case("rows", LABELS)
def rows_over_the_mean_of_a_mask(y: Any, p: Any) -> Any:
    real = tf.cast(y != 0, tf.float32)
    return tf.reduce_sum(tf.square(p[:, :4] - y) * real, axis=-1) / tf.reduce_mean(real)


# ---- honest ones, of which nothing is to be exchanged


@case("mean", LABELS)
def a_mean(y: Any, p: Any) -> Any:
    return tf.reduce_mean(tf.square(p[:, :4] - y))


@case("sum", LABELS)
def a_sum(y: Any, p: Any) -> Any:
    return 0.5 * tf.reduce_sum(tf.square(p[:, :4] - y))


@case("mean", LABELS)
def a_sum_over_the_number_of_rows(y: Any, p: Any) -> Any:
    return tf.reduce_sum(tf.square(p[:, :4] - y)) / tf.cast(tf.shape(y)[0], tf.float32)


@case("mean", LABELS)
def a_masked_mean_of_each_row(y: Any, p: Any) -> Any:
    real = tf.cast(y != 0, tf.float32)
    each = tf.reduce_sum(tf.square(p[:, :4] - y) * real, axis=1) / (tf.reduce_sum(real, axis=1) + 1)
    return tf.reduce_mean(each)


@case("mean", ONE_HOT)
def dice_of_each_row(y: Any, p: Any) -> Any:
    p = tf.sigmoid(p[:, :3])
    return tf.reduce_mean(1 - 2 * tf.reduce_sum(y * p, axis=1) / (tf.reduce_sum(y, axis=1) + tf.reduce_sum(p, axis=1)))


@case("rows", LABELS)
def one_of_each_row(y: Any, p: Any) -> Any:
    return keras.losses.huber(y, p[:, :4])


@case("mean", LABELS)
def a_mean_of_masked_elements(y: Any, p: Any) -> Any:
    return tf.reduce_mean(tf.where(y == 2, 0.0, tf.square(p[:, :4] - y)))


@case("mean", LABELS)
def two_means(y: Any, p: Any) -> Any:
    return tf.reduce_mean(tf.abs(p[:, :4] - y)) + 0.1 * tf.add_n([tf.reduce_mean(p), tf.reduce_mean(p**2)])


def found(of: Case) -> Apart | None:
    return look(of.loss, (tf.constant(of.y), tf.zeros((ROWS, 12))), (False, True), is_traced=True)


def one_number(loss: Any, apart: Apart, parts: int) -> Any:
    """As ring makes one of it for a mean over ranks of batches of one size."""
    return tf.reduce_mean(loss) * (parts if apart.kind == "sum" else 1)


def known_or_own(total: list[Any], met: list[Any]) -> totals.Share:
    def share(own: Any) -> Any:
        met.append(own)
        return total[len(met) - 1] if len(met) <= len(total) else own

    return share


def taken(of: Case, apart: Apart, parts: list[slice], *, uneven: bool) -> tuple[Any, Any]:
    """Mean over the parts' losses, and of their gradients."""
    weights = tf.constant(WEIGHTS)

    def found(part: slice, total: list[Any]) -> tuple[Any, Any, list[Any]]:
        def run() -> tuple[Any, Any, list[Any]]:
            met: list[Any] = []
            with tf.GradientTape() as tape:
                tape.watch(weights)
                with of_all_ranks(apart, known_or_own(total, met), len(parts), uneven=uneven):
                    loss = of.loss(tf.constant(of.y[part]), tf.constant(X[part]) @ weights)
                number = one_number(loss, apart, len(parts))
            return number, tape.gradient(number, weights), met

        # Where functions are run, no operation tells of a size.
        is_traced = any(kind == "Size" for kind, _ in apart.cuts)
        return (tf.function(run, autograph=False) if is_traced else run)()  # type: ignore[no-any-return]

    total: list[Any] = []
    while True:  # one may be of what another has made
        of_parts = [found(part, total) for part in parts]
        if len(of_parts[0][2]) == len(total):
            break
        total.append(tf.add_n([met[len(total)] for _, _, met in of_parts]))
    return np.mean([float(value) for value, _, _ in of_parts]), np.mean([g.numpy() for _, g, _ in of_parts], axis=0)


@pytest.mark.parametrize("name", CASES)
def test_a_loss_of_two_parts_is_that_of_the_whole(name: str) -> None:
    of = CASES[name]
    apart = found(of)
    assert apart is not None and apart.kind == of.kind
    if "public" in name:  # those exchange by themselves
        assert not apart.cuts
        return
    assert bool(apart.cuts) == (
        of.kind == "joined"
        or name in ("weights_made_one_on_average", "positives_weighed_by_negatives", "rows_over_the_mean_of_a_mask")
    )
    value, gradient = taken(of, apart, [slice(None)], uneven=False)
    two = [slice(ROWS // 2), slice(ROWS // 2, None)]
    ways = [(two, False)] + ([([slice(FIRST), slice(FIRST, None)], True)] if of.kind == "joined" else [])
    for parts, uneven in ways:
        together, joined = taken(of, apart, parts, uneven=uneven)
        np.testing.assert_allclose(together, value, rtol=1e-5)
        np.testing.assert_allclose(joined, gradient, rtol=2e-4, atol=1e-6)


def test_a_loss_for_each_row_that_a_mask_keeps_is_told_from_one_for_each_row() -> None:
    def kept(y: Any, p: Any) -> Any:
        return tf.boolean_mask(tf.square(p[:, :4] - y), y != 2)

    def each(y: Any, p: Any) -> Any:
        return tf.square(p[:, :4] - y)

    kinds = [apart and apart.kind for apart in (found(Case("", LABELS, loss)) for loss in (kept, each))]
    assert kinds == ["some rows", "rows"]


def pairs(y: Any, p: Any) -> Any:
    return tf.reduce_mean(tf.square(p - tf.transpose(p[:, :1])))


def other_rows(y: Any, p: Any) -> Any:
    return tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(tf.eye(tf.shape(p)[0]), p @ tf.transpose(p)))


def largest(y: Any, p: Any) -> Any:
    return tf.reduce_mean(p / tf.reduce_max(y))


def centred(y: Any, p: Any) -> Any:
    return tf.reduce_mean(tf.square(p - tf.reduce_mean(p, axis=0)))


def neighbours(y: Any, p: Any) -> Any:
    return tf.reduce_mean(tf.square(p[1:] - p[:-1]))


def along_the_batch(y: Any, p: Any) -> Any:
    return tf.reduce_mean(tf.nn.softmax(p, axis=0))


@pytest.mark.parametrize("loss", [pairs, other_rows, largest, centred, neighbours, along_the_batch])
def test_what_compares_rows_with_each_other_is_not_taken_apart(loss: Callable[[Any, Any], Any]) -> None:
    assert found(Case("", LABELS, loss)) is None


def test_a_tf_function_and_one_that_makes_variables() -> None:
    of = CASES["void_labels"]
    assert found(of._replace(loss=partial(of.loss))) == found(of)
    made: list[Any] = []

    def makes(y: Any, p: Any) -> Any:
        made.append(tf.Variable(1.0))
        return tf.reduce_mean(p) * made[0]

    assert found(Case("", LABELS, makes)) is None
    assert not made
