"""What a loss of one's own is to the samples of its batch, found out by trying it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
pytest.importorskip("horovod.tensorflow")

from ringscope.ring.forms import layers as forms  # noqa: E402
from ringscope.ring.global_batch import added_losses, loss_kinds, losses, trial  # noqa: E402
from tests.ring.global_batch import adding  # noqa: E402
from tests.tiers import few  # noqa: E402

BOUNDS = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]
Shape = tuple[int, ...]


def kind(function: Callable[[Any, Any], Any], shape: Shape = (16, 1), *, by_itself: bool = True) -> str | None:
    loss = keras.src.losses.losses.LossFunctionWrapper(function)
    return loss_kinds._loss_kind(loss, tf.zeros(shape), tf.zeros(shape), by_itself=by_itself)


@pytest.mark.parametrize(("bound", "shape"), few(product(BOUNDS, [(16, 1), (16, 3), (16, 4, 4, 1)]), 4))
def test_a_mean_weighted_by_its_own_labels_is_no_mean_over_samples(bound: float, shape: Shape) -> None:
    def weighted(y: Any, p: Any) -> Any:
        weights = tf.where(y > bound, 3.0, 1.0)
        return tf.reduce_sum(weights * (y - p) ** 2) / tf.reduce_sum(weights)

    assert kind(weighted, shape) == loss_kinds.NEITHER


@pytest.mark.parametrize("bound", few(BOUNDS, 4))
def test_weights_within_a_mean_or_a_sum_leave_it_one(bound: float) -> None:
    def each(y: Any, p: Any) -> Any:
        return tf.where(y > bound, 3.0, 1.0) * (y - p) ** 2

    assert kind(lambda y, p: tf.reduce_mean(each(y, p))) == loss_kinds.MEAN
    assert kind(lambda y, p: tf.reduce_sum(each(y, p))) == loss_kinds.SUM
    assert kind(lambda y, p: tf.reduce_mean(each(y, p), axis=-1), by_itself=False) == loss_kinds.MEAN


@pytest.mark.parametrize("first", few((0, 15, 30)))
def test_a_loss_with_noise_of_its_own_is_a_mean_where_it_is_one_without(first: int) -> None:
    """Of 15 such losses one has a draw by chance that looks as if it were not noisy."""
    for seed in range(first, first + 15):
        tf.random.set_seed(seed)
        found = kind(lambda y, p: tf.reduce_mean((y + 0.01 * tf.random.normal(tf.shape(y)) - p) ** 2))
        assert found == loss_kinds.MEAN, seed


def test_what_refuses_made_up_rows_is_not_known() -> None:
    def refuses(y: Any, p: Any) -> Any:
        raise ValueError

    assert kind(refuses) is None


@pytest.mark.parametrize("reduce", [tf.reduce_sum, tf.reduce_mean])
def test_what_is_0_on_all_made_up_rows_is_not_known(reduce: Callable[[Any], Any]) -> None:
    assert kind(lambda y, p: reduce(tf.nn.relu(p - 9))) is None


def test_what_a_loss_keeps_is_not_changed_by_trying_it() -> None:
    kept = keras.Variable(1.0, trainable=False)

    def keeps(y: Any, p: Any) -> Any:
        kept.assign(0.5 * kept + 0.5 * tf.reduce_mean(p))
        return tf.reduce_mean((y - p) ** 2)

    assert kind(keeps) == loss_kinds.MEAN
    assert float(kept) == 1.0


def test_nor_is_what_it_keeps_in_variables_of_tensorflow() -> None:
    kept, times = tf.Variable(1.0), tf.Variable(0, trainable=False)

    def keeps(y: Any, p: Any) -> Any:
        kept.assign(0.5 * kept + 0.5 * tf.reduce_mean(p))
        times.assign_add(1)
        return tf.reduce_mean((y - p) ** 2)

    found = []

    @partial(tf.function, autograph=False)  # a train step is traced when its losses are tried
    def traced() -> Any:
        found.append(kind(keeps))
        return tf.constant(0)

    traced()
    assert found == [loss_kinds.MEAN]
    assert (float(kept), int(times)) == (1.0, 0)
    kept.assign_add(1.0)
    assert float(kept) == 2.0


class Adds(keras.layers.Layer):
    """Adds a mean of its inputs' squares: over all, or weighted by which of them are above a bound."""

    def __init__(self, bound: float | None) -> None:
        super().__init__()
        self.bound = bound

    def call(self, x: Any) -> Any:
        weights = tf.ones_like(x) if self.bound is None else tf.where(x > self.bound, 3.0, 1.0)
        self.add_loss(tf.reduce_sum(weights * x**2) / tf.reduce_sum(weights))
        return x


def test_what_a_layer_adds_is_told_in_the_same_way() -> None:
    model = keras.Sequential([keras.Input((1,)), Adds(None), *[Adds(bound) for bound in BOUNDS]])
    x = tf.zeros((16, 1))
    model(x)
    found = loss_kinds._tried_kinds(model, x)
    assert found is not None and found[0] == loss_kinds.MEAN
    assert found[1:] == [loss_kinds.NEITHER] * len(BOUNDS)


def _from_without(layer: Any, x: Any) -> None:
    layer.add_loss(tf.reduce_mean(x))


class AddsInHelper(keras.layers.Layer):
    def call(self, x: Any) -> Any:
        return self._kept(x)

    def _kept(self, x: Any) -> Any:
        self.add_loss(tf.reduce_mean(x))
        return x


class AddsNested(keras.layers.Layer):
    def call(self, x: Any) -> Any:
        return tuple(self.add_loss(each) or each for each in [x])[0]


class AddsFromWithout(keras.layers.Layer):
    def call(self, x: Any) -> Any:
        _from_without(self, x)
        return x


class Penalty:
    def of(self, layer: Any, x: Any) -> None:
        layer.add_loss(tf.reduce_mean(x))


class AddsByAttribute(keras.layers.Layer):
    def __init__(self, penalty: Any) -> None:
        super().__init__()
        self.penalty = penalty

    def call(self, x: Any) -> Any:
        self.penalty(self, x)
        return x


class AddsByObject(AddsByAttribute):
    def call(self, x: Any) -> Any:
        self.penalty.of(self, x)
        return x


class AddsUnconverted(keras.layers.Layer):
    @tf.autograph.experimental.do_not_convert
    def call(self, x: Any) -> Any:
        self.add_loss(tf.reduce_mean(x))
        return x


class AddsFromAnotherModule(keras.layers.Layer):
    def call(self, x: Any) -> Any:
        adding.adds(self, x)
        return x


class Inherits(AddsInHelper):
    def call(self, x: Any) -> Any:
        return super().call(2 * x)


class AddsNothing(keras.layers.Dense):
    def call(self, x: Any, training: bool = False) -> Any:
        return super().call(x) + tf.reduce_mean(x)


ADDING = (
    AddsInHelper(),
    AddsNested(),
    AddsFromWithout(),
    AddsByAttribute(lambda layer, x: layer.add_loss(tf.reduce_mean(x))),
    AddsByAttribute(partial(_from_without)),
    AddsByAttribute(Penalty().of),
    AddsByObject(Penalty()),
    AddsUnconverted(),
    AddsFromAnotherModule(),
    Inherits(),
)


@pytest.mark.parametrize("layer", [*ADDING, AddsNothing(1)])
def test_a_layer_that_adds_a_loss_is_known_wherever_its_class_does_it(layer: Any) -> None:
    assert added_losses._may_add(layer) == (not isinstance(layer, AddsNothing))
    assert not added_losses._may_add(keras.layers.Dense(1))


class Settings:
    """Looks every name up by itself, as settings and clients do; `always` gives another such object for each."""

    def __init__(self, *, always: bool) -> None:
        self.__dict__["always"] = always

    def __getattr__(self, name: str) -> Any:
        if not self.always:
            raise KeyError(name)
        return Settings(always=True)


@pytest.mark.parametrize("always", [False, True])
def test_an_attribute_of_a_layer_is_not_asked_for_names(always: bool) -> None:
    layer = AddsNothing(1)
    layer.settings = Settings(always=always)
    assert not added_losses._may_add(layer)


class AddsSums(keras.layers.Layer):
    def call(self, x: Any) -> Any:
        self.add_loss(keras.ops.sum(keras.ops.square(x)))
        self.add_loss(keras.ops.mean(keras.ops.square(x)))
        return x


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_what_a_layer_adds_is_told_though_it_is_rounded(policy: str) -> None:
    for seed in range(8):
        keras.utils.set_random_seed(seed)
        layers = [keras.layers.Dense(7, dtype=policy) for _ in range(2)]
        model = keras.Sequential([keras.Input((5,)), *layers, AddsSums(dtype=policy)])
        x = tf.zeros((16, 5))
        model(x)
        assert loss_kinds._tried_kinds(model, x) == [loss_kinds.SUM, loss_kinds.MEAN]


def test_what_is_added_of_inputs_that_are_drawn_is_told_of_more_rows() -> None:
    """A few rows tell of noise as much that it may look like any number."""
    for seed in range(8):
        keras.utils.set_random_seed(seed)
        noise = [keras.layers.Lambda(lambda x: tf.nn.dropout(x, 0.2)), keras.layers.GaussianNoise(0.1)]
        model = keras.Sequential([keras.Input((12,)), *noise, keras.layers.Dense(3), AddsSums()])
        x = tf.zeros((16, 12))
        model(x, training=True)
        assert loss_kinds._tried_kinds(model, x) == [loss_kinds.SUM, loss_kinds.MEAN]


def test_what_a_layer_adds_is_told_while_forms_that_xla_alone_runs_are_laid_over_layers() -> None:
    model = keras.Sequential([keras.Input((19, 3)), keras.layers.LSTM(4), AddsSums()])
    found: list[Any] = []

    @tf.function(autograph=False)
    def traced(x: Any) -> Any:
        with forms.forms(model):
            model(x)
            found.append(loss_kinds._tried_kinds(model, x))
            found.append("inner_loop" in vars(model.layers[0]))
            return model(x)

    traced.get_concrete_function(tf.zeros((16, 19, 3)))
    assert found == [[loss_kinds.SUM, loss_kinds.MEAN], True]
    assert "inner_loop" not in vars(model.layers[0])


def test_labels_that_a_loss_compares_with_are_tried_where_its_graph_cannot_be_read() -> None:
    def of_each(y: Any, p: Any) -> Any:
        """Row by row, in a loop."""
        known = tf.map_fn(lambda row: tf.cast(tf.reduce_all(row != -1), tf.float32), y)
        return tf.reduce_sum(known * tf.reduce_sum((y - p) ** 2, axis=-1)) / tf.reduce_sum(known)

    loss = keras.src.losses.losses.LossFunctionWrapper(of_each)
    assert loss_kinds.apart_of(loss, tf.zeros((16, 2)), tf.zeros((16, 2))) is None
    assert kind(of_each, (16, 2)) == loss_kinds.NEITHER


def test_a_loss_that_depends_on_the_order_of_its_samples_is_no_mean() -> None:
    def by_rank(y: Any, p: Any) -> Any:
        return -tf.reduce_mean(p - tf.math.cumulative_logsumexp(p, axis=0, reverse=True))

    assert kind(by_rank, (16, 2)) == loss_kinds.NEITHER


def test_a_loss_whose_class_replaces_call_by_its_own_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    class Masked(keras.losses.Loss):
        def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
            return tf.reduce_sum(tf.abs(y_true - y_pred))

    for loss, lines in ((Masked(name="by_itself"), 1), (keras.losses.MeanSquaredError(), 0)):
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", loss)
        model.train_on_batch(tf.zeros((2, 1)), tf.zeros((2, 1)))
        with losses._compiled_losses(model, 2, lambda own: own, None, []):
            assert capsys.readouterr().err.count("has a `__call__` of its own") == lines


def test_labels_of_the_training_are_tried_where_no_constant_of_the_graph_tells_of_a_mask() -> None:
    def by_python(y: Any, p: Any) -> Any:
        known = tf.numpy_function(lambda labels: (labels != 77).astype("float32"), [y], tf.float32)
        return tf.reduce_sum(known * (y - p) ** 2) / tf.reduce_sum(known)

    loss = keras.src.losses.losses.LossFunctionWrapper(by_python)
    of = tf.zeros((16, 2)), tf.zeros((16, 2))
    assert loss_kinds.apart_of(loss, *of) is None
    assert kind(by_python, (16, 2)) is None  # made-up labels are never 77, and no graph says so
    labels = tf.constant([[77.0, 1.0]] * 5 + [[0.0, 1.0]] * 11)
    with trial.at_hand(lambda: (of[1], labels)):
        assert loss_kinds._differs_of_labels_at_hand(loss, *of)
    with trial.at_hand(lambda: (of[1], tf.ones((16, 2)))):
        assert not loss_kinds._differs_of_labels_at_hand(loss, *of)


def test_labels_of_the_training_are_tried_in_other_orders_if_both_halves_have_the_same() -> None:
    def of_segments(y: Any, p: Any) -> Any:
        ids = tf.cast(y[:, 0], tf.int32)
        order = tf.argsort(ids)
        return tf.reduce_mean(tf.math.segment_mean(tf.gather(p[:, 0] ** 2, order), tf.gather(ids, order)))

    loss = keras.src.losses.losses.LossFunctionWrapper(of_segments)
    of = tf.zeros((16, 1)), tf.zeros((16, 1))
    alike = tf.constant([[float(segment)] for segment in (0, 0, 1, 1, 1, 1, 1, 2) * 2])
    with trial.at_hand(lambda: (of[1], alike)):
        assert loss_kinds._differs_of_labels_at_hand(loss, *of)


class OwnLoss(keras.losses.Loss):
    """A loss of a script: what `function` gives, with a variable if `keeps`."""

    def __init__(self, function: Callable[[Any, Any], Any], name: str, *, keeps: bool = False) -> None:
        super().__init__(name=name)
        self._function = function
        if keeps:
            self.seen = keras.Variable(0.0, name="seen")

    def call(self, y: Any, p: Any) -> Any:
        return self._function(y, p)


def _weighted(y: Any, p: Any) -> Any:
    weights = tf.where(y > 0.5, 3.0, 1.0)
    return tf.reduce_sum(weights * (y - p) ** 2) / tf.reduce_sum(weights)


def _refuses(y: Any, p: Any) -> Any:
    raise ValueError


def _counts_in_python(y: Any, p: Any) -> Any:
    return tf.reduce_sum(tf.where(y != 77, (y - p) ** 2, 0.0)) / max(float(tf.math.count_nonzero(y != 77)), 1.0)


@pytest.mark.parametrize(
    ("loss", "found", "says"),
    [
        (OwnLoss(_weighted, "by_label"), loss_kinds.NEITHER, "loss 'by_label' is not a mean over samples."),
        (OwnLoss(_refuses, "odd"), None, "loss 'odd' gives one number for its batch, and ring could not try"),
        (OwnLoss(_counts_in_python, "eager"), None, "loss 'eager' gives one number for its batch, and ring could not"),
        (
            OwnLoss(lambda y, p: tf.reduce_mean((y - p) ** 2), "counting", keeps=True),
            loss_kinds.MEAN,
            "loss 'counting' keeps seen between batches",
        ),
        (OwnLoss(lambda y, p: tf.reduce_mean((y - p) ** 2), "plain"), loss_kinds.MEAN, ""),
    ],
    ids=lambda given: getattr(given, "name", None),
)
def test_a_line_says_once_what_the_mean_of_gradients_does_not_give(
    loss: Any, found: str | None, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        given, name = tf.zeros((16, 1)), repr(loss.name)
        assert loss_kinds.kind_of(loss, given, given, None, by_itself=True, name=name) == found
    said = capsys.readouterr().err
    assert [line.startswith(f"ring: {says}") for line in said.splitlines() if line.startswith("ring:")] == [
        True
    ] * bool(says)
