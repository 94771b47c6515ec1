"""What two ranks must train to like one rank on the joined batch. usage: joined.py OUT RANKS

Trained by two ranks with batches of B in both step modes, and by one with 2 B as `fit` trains; each rank writes, by
case, its weights, history and evaluation, or the refusal."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import scipy.sparse
import tensorflow as tf
from keras import layers, losses

from profiles.ground.errors import RingscopeError
from ringscope import ring

ring.init(seed=7)
if "debug" in sys.argv:
    keras.config.disable_traceback_filtering()
    sys.argv.remove("debug")
out, ranks = Path(sys.argv[1]), int(sys.argv[2])
joined = ranks // ring.size()  # batches that one rank takes at once
random = np.random.default_rng(0)
X, Y = random.normal(size=(96, 4)).astype("float32"), random.normal(size=(96, 1)).astype("float32")
LABELS, WEIGHTS = random.integers(0, 2, (96, 1)), random.uniform(0, 3, 96).astype("float32")
WORDS = random.integers(0, 9, (96, 6))  # 0 is padding, more of it in some samples
WORDS[::3, 3:] = 0
TAGS = random.integers(0, 3, (96, 6))
SGD = lambda: keras.optimizers.SGD(0.05, momentum=0.9)  # noqa: E731

Case = Callable[[str], dict[str, Any]]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    CASES[function.__name__.replace("_", " ")] = function
    return function


def dense(*inner: Any, outputs: int = 1, **options: Any) -> keras.Model:
    return keras.Sequential([keras.Input((4,)), *inner, layers.Dense(outputs, **options)])


def trained(
    model: keras.Model, step: str, *data: Any, batch: int = 8, epochs: int = 2, **options: Any
) -> dict[str, Any]:
    ring.distribute(model, step=step)
    if not isinstance(data[0], (tf.data.Dataset, keras.utils.PyDataset)):
        options |= {"batch_size": batch * joined}
    history = model.fit(*data, epochs=epochs, shuffle=False, verbose=0, **options)
    return {
        "weights": [w.numpy().tolist() for w in model.weights if not w.path.endswith("seed_generator_state")],
        "history": {name: np.asarray(values, float).tolist() for name, values in history.history.items()},
    }


def smaller_last() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X[:92], Y[:92])).batch(8 * joined)


@case
def mean(step: str) -> dict[str, Any]:
    model = dense(layers.Dense(8, activation="tanh"))
    model.compile(SGD(), "mse")
    return trained(model, step, X, Y, validation_data=(X[:40], Y[:40]))


@case
def weights_of_two_types_and_sizes(step: str) -> dict[str, Any]:
    """In each type one of more than a megabyte, which travels by itself."""
    model = dense(layers.Dense(520), layers.Dense(520), layers.Dense(380, dtype="float64"))
    model.add(layers.Dense(380, activation="tanh", dtype="float64"))
    model.add(layers.Dense(1, dtype="float32"))
    model.compile(keras.optimizers.SGD(1e-4), "mse")
    return trained(model, step, X, Y)


@case
def sum_of_losses(step: str) -> dict[str, Any]:
    model = dense(layers.Dense(8, kernel_regularizer="l2"))
    model.compile(keras.optimizers.SGD(0.005), losses.MeanSquaredError(reduction="sum"))
    return trained(model, step, X, Y)


@case
def sum_of_weighted_losses_without_reduction(step: str) -> dict[str, Any]:
    model = dense(layers.Dense(8))
    model.compile(keras.optimizers.SGD(0.002), losses.MeanSquaredError(reduction="none"))
    return trained(model, step, X, Y, sample_weight=WEIGHTS)


@case
def one_loss_a_sample_beside_a_mean(step: str) -> dict[str, Any]:
    inputs = keras.Input((4,))
    hidden = layers.Dense(6, activation="tanh")(inputs)
    model = keras.Model(inputs, [layers.Dense(1)(hidden), layers.Dense(1)(hidden)])
    model.compile(keras.optimizers.SGD(0.002), [losses.MeanSquaredError(reduction="none"), "mae"])
    return trained(model, step, X, [Y, Y])


@case
def a_mean_by_weight(step: str) -> dict[str, Any]:
    model = dense(layers.Dense(8, kernel_regularizer="l2"))
    model.compile(SGD(), losses.MeanSquaredError(reduction="mean_with_sample_weight"))
    return trained(model, step, X, Y, sample_weight=WEIGHTS)


@case
def weights_of_samples_and_classes(step: str) -> dict[str, Any]:
    model = dense(activation="sigmoid")
    model.compile(SGD(), "binary_crossentropy", weighted_metrics=["accuracy"])
    return trained(model, step, X, LABELS, class_weight={0: 1.0, 1: 3.0})


@case
def masked_tokens(step: str) -> dict[str, Any]:
    model = keras.Sequential([keras.Input((6,)), layers.Embedding(9, 5, mask_zero=True), layers.Dense(3)])
    model.compile(SGD(), losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return trained(model, step, WORDS, TAGS)


@case
def one_loss_a_token_that_the_loss_keeps(step: str) -> dict[str, Any]:
    def of_tagged(y: Any, p: Any) -> Any:
        tagged = tf.reshape(y, [-1]) != -100
        tags, logits = tf.boolean_mask(tf.reshape(y, [-1]), tagged), tf.boolean_mask(tf.reshape(p, [-1, 3]), tagged)
        return losses.sparse_categorical_crossentropy(tags, logits, from_logits=True)

    model = keras.Sequential([keras.Input((6,)), layers.Embedding(9, 4), layers.Dense(3)])
    model.compile(SGD(), of_tagged)
    return trained(model, step, WORDS, np.where(WORDS == 0, -100, TAGS))


@case
def recurrent_layers_of_masked_tokens(step: str) -> dict[str, Any]:
    model = keras.Sequential([keras.Input((6,)), layers.Embedding(9, 5, mask_zero=True)])
    model.add(layers.Bidirectional(layers.GRU(4, return_sequences=True)))
    model.add(layers.LSTM(3, go_backwards=True))
    model.add(layers.Dense(1))
    model.compile(SGD(), "mse")
    return trained(model, step, WORDS, Y, validation_data=(WORDS[:40], Y[:40]))


@case
def two_masks_and_a_regulariser(step: str) -> dict[str, Any]:
    one, other = keras.Input((6,), name="one"), keras.Input((6,), name="other")
    tags = layers.Dense(3, name="tags", kernel_regularizer="l2")(layers.Embedding(9, 5, mask_zero=True)(one))
    more = layers.Dense(3, name="more")(layers.Embedding(9, 5, mask_zero=True)(other))
    model = keras.Model([one, other], [tags, more])
    loss = losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(SGD(), [loss, loss], loss_weights=[1.0, 0.3])
    return trained(model, step, [WORDS, WORDS[::-1].copy()], [TAGS, TAGS])


@case
def a_last_batch_that_is_smaller(step: str) -> dict[str, Any]:
    model = dense(layers.Dense(8, kernel_regularizer="l2"))
    model.compile(SGD(), "mse", metrics=["mae"])
    return trained(model, step, smaller_last())


@case
def one_loss_a_sample_and_a_last_batch_that_is_smaller(step: str) -> dict[str, Any]:
    model = dense(layers.Dense(8, activation="tanh"))
    model.compile(keras.optimizers.SGD(0.002), losses.MeanSquaredError(reduction="none"))
    return trained(model, step, smaller_last())


@case
def reported_losses_of_two_outputs(step: str) -> dict[str, Any]:
    """The last batch is smaller; of the validation data one rank gets whole batches and the other the smaller one."""
    inputs = keras.Input((4,))
    hidden = layers.Dense(6, activation="tanh")(inputs)
    outputs = {name: layers.Dense(1, name=name)(hidden) for name in ("one", "two")}
    model = keras.Model(inputs, outputs)
    model.compile(SGD(), {"one": "mse", "two": losses.Huber(reduction="sum")}, loss_weights={"one": 1.0, "two": 0.02})
    rows = tf.data.Dataset.from_tensor_slices((X[:92], {"one": Y[:92], "two": Y[:92]})).batch(8 * joined)
    validation = X[:24], {"one": 3 * Y[:24], "two": Y[:24]}
    return trained(model, step, rows, validation_data=validation, validation_batch_size=10)


def tokens(*steps: int) -> tf.data.Dataset:
    """Batches of 4 samples and so many steps, those of all ranks padded to the longest where one rank takes them."""

    def batches() -> Any:
        for i in range(0, len(steps), joined):
            longest = max(steps[i : i + joined])
            group = [slice(4 * k, 4 * k + 4) for k in range(i, i + joined)]
            words = [np.pad(WORDS[rows, :6], [(0, 0), (0, 6)]) for rows in group]
            tags = [np.pad(TAGS[rows, :6], [(0, 0), (0, 6)]) for rows in group]
            yield np.concatenate(words)[:, :longest], np.concatenate(tags)[:, :longest]

    spec = tf.TensorSpec((None, None), tf.int64)
    found = tf.data.Dataset.from_generator(batches, output_signature=(spec, spec))
    return found.apply(tf.data.experimental.assert_cardinality(len(steps) // joined))


@case
def batches_whose_shapes_one_rank_meets_alone(step: str) -> dict[str, Any]:
    model = keras.Sequential([keras.Input((None,)), layers.Embedding(9, 5, mask_zero=True), layers.Dense(3)])
    model.compile(SGD(), losses.SparseCategoricalCrossentropy(from_logits=True))
    return trained(model, step, tokens(6, 6, 6, 8, 6, 6, 12, 8, 12, 6, 8, 9))


@case
def a_second_fit_on_batches_of_unlike_sizes(step: str) -> dict[str, Any]:
    model = dense(layers.Dense(8))
    model.compile(SGD(), "mse")
    trained(model, step, X[:64], Y[:64])
    data = smaller_last()
    history = model.fit(data, epochs=2, verbose=0)
    model.fit(X[:64], Y[:64], sample_weight=WEIGHTS[:64], batch_size=8 * joined, shuffle=False, verbose=0)
    model.fit(data, verbose=0)
    return {"weights": [w.tolist() for w in model.get_weights()], "history": history.history}


@case
def regularised_activities(step: str) -> dict[str, Any]:
    model = dense(layers.Dense(8, activity_regularizer="l2"), layers.ActivityRegularization(l1=1e-3))
    model.compile(SGD(), "mse")
    return trained(model, step, X, Y)


@case
def means_that_were_taken_before_of_batches_of_unlike_sizes(step: str) -> dict[str, Any]:
    class AddsLoss(layers.Layer):
        def call(self, x: Any) -> Any:
            self.add_loss(keras.ops.mean(x**2))
            return x

    model = dense(layers.Dense(8, activity_regularizer="l2", kernel_regularizer="l1"), AddsLoss())
    model.compile(SGD(), lambda y, p: keras.ops.mean(keras.ops.abs(y - p)))
    return trained(model, step, smaller_last())


@case
def one_number_for_a_batch_by_weight(step: str) -> dict[str, Any]:
    model = dense(layers.Dense(8))
    model.compile(SGD(), lambda y, p: keras.ops.mean(keras.ops.square(y - p)))
    return trained(model, step, X, Y, sample_weight=WEIGHTS)


@case
def one_number_for_a_batch_of_masked_tokens(step: str) -> dict[str, Any]:
    model = keras.Sequential([keras.Input((6,)), layers.Embedding(9, 5, mask_zero=True), layers.Dense(3)])
    each = losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    model.compile(SGD(), lambda y, p: keras.ops.mean(each(y, p)))
    return trained(model, step, tf.data.Dataset.from_tensor_slices((WORDS[:92], TAGS[:92])).batch(8 * joined))


@case
def train_on_batch_with_unlike_sizes(step: str) -> dict[str, Any]:
    model = dense(layers.Dense(8))
    model.compile(SGD(), "mse")
    found = trained(model, step, X[:64], Y[:64])
    for begin in (0, 8, 16):
        rows = slice(begin, begin + 7) if joined > 1 else slice(begin + 4 * ring.rank(), begin + 4 + 3 * ring.rank())
        model.train_on_batch(X[rows], Y[rows])
    return found | {"weights": [w.tolist() for w in model.get_weights()]}


@case
def own_data_that_ends_earlier_on_one_rank(step: str) -> dict[str, Any]:
    def own() -> Any:
        for i in range(4 if joined > 1 else 4 + 2 * ring.rank()):
            begin = 16 * i + 8 * ring.rank()
            yield X[begin : begin + 8 * joined], Y[begin : begin + 8 * joined]

    spec = tf.TensorSpec((None, 4)), tf.TensorSpec((None, 1))
    model = dense(layers.Dense(8))
    model.compile(SGD(), "mse")
    return trained(model, step, tf.data.Dataset.from_generator(own, output_signature=spec), shard=False)


@case
def synchronised_normalisation(step: str) -> dict[str, Any]:
    model = dense(layers.Dense(8), layers.BatchNormalization(synchronized=True, momentum=0.9))
    model.compile(SGD(), "mse")
    return trained(model, step, X * 3 + 5, Y)


@case
def synchronised_normalisation_of_masked_steps(step: str) -> dict[str, Any]:
    model = keras.Sequential(
        [
            keras.Input((6,)),
            layers.Embedding(9, 5, mask_zero=True),
            layers.BatchNormalization(synchronized=True),
            layers.Dense(3),
        ]
    )
    model.compile(SGD(), losses.SparseCategoricalCrossentropy(from_logits=True))
    return trained(model, step, WORDS, TAGS)


def mean_by_hand(y: Any, p: Any) -> Any:
    return tf.reduce_mean(tf.square(y - p))


def sum_by_hand(y: Any, p: Any) -> Any:
    return tf.reduce_sum(tf.abs(y - p)) * 0.1


@case
def losses_that_reduce_themselves(step: str) -> dict[str, Any]:
    inputs = keras.Input((4,))
    model = keras.Model(inputs, [layers.Dense(1, name="one")(inputs), layers.Dense(1, name="other")(inputs)])
    model.compile(SGD(), [mean_by_hand, sum_by_hand])
    return trained(model, step, X, [Y, Y], sample_weight=None)


class Adds(layers.Layer):
    """Losses of layers: a sum over the batch, one for each sample, and a mean."""

    def call(self, inputs: Any) -> Any:
        each = tf.reduce_sum(inputs**2, axis=-1)
        self.add_loss(0.01 * tf.reduce_sum(each))
        self.add_loss(0.02 * each)
        self.add_loss(0.5 * tf.reduce_mean(each))
        return inputs


@case
def losses_that_layers_add(step: str) -> dict[str, Any]:
    model = dense(layers.Dense(8, kernel_regularizer="l2"), Adds(), layers.Dropout(1e-9))
    model.compile(keras.optimizers.SGD(0.005), "mse")
    return trained(model, step, X, Y)


class Own(keras.Model):
    """Takes its loss itself, beside or in the place of Keras's."""

    take: Callable[..., Any]

    def compute_loss(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None, training: bool = True) -> Any:
        return type(self).take(y, y_pred)


def own(take: Callable[[Any, Any], Any]) -> keras.Model:
    inputs = keras.Input((4,))
    model: keras.Model = type("Own", (Own,), {"take": staticmethod(take)})(
        inputs, layers.Dense(1)(layers.Dense(8, activation="tanh")(inputs))
    )
    model.compile(keras.optimizers.SGD(0.02))
    return model


@case
def a_mean_that_the_model_takes_itself(step: str) -> dict[str, Any]:
    return trained(own(lambda y, p: keras.ops.mean(keras.ops.square(y - p))), step, smaller_last())


@case
def a_sum_that_the_model_takes_itself(step: str) -> dict[str, Any]:
    return trained(own(lambda y, p: 0.05 * keras.ops.sum(keras.ops.square(y - p))), step, smaller_last())


@case
def one_loss_a_sample_that_the_model_takes_itself(step: str) -> dict[str, Any]:
    return trained(own(lambda y, p: 0.05 * keras.ops.sum(keras.ops.square(y - p), axis=-1)), step, smaller_last())


class CallsAgain(keras.Model):
    """Its own part of the loss calls layers that have added a loss which Keras's part has yet to count."""

    def compute_loss(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None, training: bool = True) -> Any:
        taken = super().compute_loss(x, y, y_pred, sample_weight)
        return taken + 0.1 * keras.ops.mean(keras.ops.abs(self.get_layer("inner")(x)))


@case
def a_mean_that_the_model_takes_beside_what_its_layers_add(step: str) -> dict[str, Any]:
    inputs = keras.Input((4,))
    inner = keras.Sequential([keras.Input((4,)), layers.Dense(8, activity_regularizer="l2")], name="inner")
    model = CallsAgain(inputs, layers.Dense(1)(inner(inputs)))
    model.compile(SGD(), "mse")
    return trained(model, step, X, Y)


@case
def alignments_by_ctc(step: str) -> dict[str, Any]:
    model = keras.Sequential([keras.Input((6,)), layers.Embedding(9, 5), layers.Dense(4)])
    model.compile(SGD(), losses.CTC())
    return trained(model, step, WORDS, np.maximum(TAGS[:, :3], 1))


def embedded(*first: Any) -> keras.Model:
    return keras.Sequential([*first, layers.Embedding(9, 4), layers.GlobalAveragePooling1D(), layers.Dense(1)])


@case
def rows_of_a_scipy_matrix(step: str) -> dict[str, Any]:
    model = dense(layers.Dense(8))
    model.compile(SGD(), "mse")
    return trained(model, step, scipy.sparse.csr_matrix(np.where(X > 0, X, 0)), Y)


@case
def rows_of_a_sparse_tensor(step: str) -> dict[str, Any]:
    model = dense(layers.Dense(8))
    model.compile(SGD(), "mse")
    return trained(model, step, tf.sparse.from_dense(np.where(X > 0, X, 0)), Y)


class Padded(keras.Model):
    """Of ragged rows."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = embedded()

    def call(self, rows: Any) -> Any:
        return self.inner(rows.to_tensor(shape=(None, 6)) if isinstance(rows, tf.RaggedTensor) else rows)


@case
def rows_of_a_ragged_tensor(step: str) -> dict[str, Any]:
    model = Padded()
    model.compile(SGD(), "mse")
    ragged = tf.RaggedTensor.from_tensor(WORDS.astype("int32"), lengths=1 + np.arange(96) % 6)
    model(ragged[:2])
    return trained(model, step, ragged, Y)


@case
def rows_of_strings(step: str) -> dict[str, Any]:
    letters = np.array(list("abcdefghi"))[WORDS]
    model = embedded(keras.Input((6,), dtype="string"), layers.StringLookup(vocabulary=list("bcdefghi")))
    model.compile(SGD(), "mse")
    return trained(model, step, tf.constant(letters), Y)


@case
def a_data_set_that_is_counted(step: str) -> dict[str, Any]:
    model = dense(layers.Dense(8))
    model.compile(SGD(), "mse")
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8 * joined, drop_remainder=True).filter(lambda a, b: True)
    return trained(model, step, data, unknown_length="count")


@case
def metrics_that_are_no_means(step: str) -> dict[str, Any]:
    model = dense(layers.Dense(8), activation="sigmoid")
    names = [
        "accuracy",
        keras.metrics.AUC(),
        keras.metrics.Precision(),
        keras.metrics.Recall(),
        keras.metrics.F1Score(threshold=0.5),
        keras.metrics.R2Score(),
        keras.metrics.RootMeanSquaredError(),
    ]
    model.compile(SGD(), "binary_crossentropy", metrics=[*names, keras.metrics.BinaryIoU()])
    y = LABELS.astype("float32")
    found = trained(model, step, X, y, validation_data=(X[:50], y[:50]))
    results = model.evaluate(X[:70], y[:70], batch_size=8, verbose=0)
    found["evaluated"] = [np.asarray(value, float).tolist() for value in results]
    found["predicted"] = model.predict(X[:70], batch_size=8, verbose=0).tolist()
    return found


@case
def a_split_for_validation(step: str) -> dict[str, Any]:
    model = dense(layers.Dense(8))
    model.compile(SGD(), "mse", metrics=["mae"])
    return trained(model, step, X[:95], Y[:95], validation_split=0.2)


@case
def batches_of_a_py_dataset(step: str) -> dict[str, Any]:
    class Batches(keras.utils.PyDataset):
        def __len__(self) -> int:
            return 96 // (8 * joined)

        def __getitem__(self, i: int) -> Any:
            rows = slice(i * 8 * joined, (i + 1) * 8 * joined)
            return X[rows], Y[rows]

    model = dense(layers.Dense(8))
    model.compile(SGD(), "mse")
    return trained(model, step, Batches(), validation_data=Batches())


def kept(case: Case, step: str) -> dict[str, Any]:
    keras.utils.set_random_seed(3)
    try:
        return case(step)
    except RingscopeError as error:
        return {"refused": str(error)}
    finally:
        keras.backend.clear_session(free_memory=False)


found = {
    f"{name}, {step}": kept(case, step)
    for name, case in CASES.items()
    for step in (("fit", "compiled") if ring.size() > 1 else ("fit",))
    if step == "fit" or name not in ("rows of a ragged tensor", "rows of strings")  # XLA takes neither
    if not sys.argv[3:] or any(word in name for word in sys.argv[3:])
}
(out / f"{ring.size()}ranks{ring.rank()}.json").write_text(json.dumps(found))
