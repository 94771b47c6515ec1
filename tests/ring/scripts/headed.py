"""Models whose first layers XLA cannot compile, trained by plain Keras and by ring as it does on GPUs. usage:
headed.py OUT

OUT gets a file for each rank: by case what the training came to, and what ring said."""

import contextlib
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from ringscope import ring
from tests.harness import as_on_gpus

os.environ["RINGSCOPE_WITHOUT_FORMS"] = "elastic"  # so that XLA refuses RandomElasticTransform
ring.init(seed=3)
as_on_gpus.begin()
random = np.random.default_rng(0)
ROWS, IMAGES, STEPS = 32, 8, 4  # Keras traces a transform of each image of a batch, and of each of its colours
VOCABULARY = ["red", "green", "blue"]
numbers = random.normal(5, 3, (ROWS, 3)).astype("float32")
colours = random.choice(VOCABULARY, (ROWS, 1))
towns = random.choice(["Ulm", "Bern", "Graz", "Linz", "Wien"], (ROWS, 1))
texts = random.choice(["the cat sat", "a dog ran far away", "eels swim", "dog and cat"], (ROWS, 1))
images = random.uniform(0, 255, (IMAGES, 10, 10, 1)).astype("float32")
labels = random.integers(0, 3, ROWS, np.int32)
weights = random.uniform(0.5, 2, ROWS).astype("float32")
lists = tf.ragged.constant([random.choice(VOCABULARY, size).tolist() for size in random.integers(1, 6, ROWS)])
Made = tuple[keras.Model, Any]


def table(*, given: bool = False, before: Any = None) -> Made:
    """given: the model gets what its lookups would make of the strings. before: a layer before the numbers' part."""
    lookup = layers.StringLookup(vocabulary=VOCABULARY, output_mode="one_hot")
    hashing = layers.Hashing(7)
    norm = layers.Normalization(mean=[5.0, 5.0, 5.0], variance=[9.0, 9.0, 9.0])
    inputs = {
        "number": keras.Input((3,), name="number"),
        "colour": keras.Input((4,), name="colour") if given else keras.Input((1,), name="colour", dtype="string"),
        "town": keras.Input((1,), name="town", dtype="int64" if given else "string"),
    }
    colour, town = (inputs[name] if given else of(inputs[name]) for name, of in (("colour", lookup), ("town", hashing)))
    number = norm(inputs["number"]) if before is None else before(norm(inputs["number"]))
    parts = [layers.Flatten()(layers.Embedding(7, 4)(town)), layers.Dense(2)(colour), number]
    x = {"number": numbers, "colour": colours, "town": towns}
    if given:
        x |= {"colour": lookup(colours).numpy(), "town": hashing(towns).numpy()}
    return keras.Model(inputs, layers.Dense(3)(layers.concatenate(parts))), (x, labels, weights)


def text(length: int | None = 6) -> Made:
    vectorized = layers.TextVectorization(output_sequence_length=length, vocabulary=["cat", "dog", "eels", "far"])
    tokens = vectorized(inputs := keras.Input((1,), dtype="string"))
    pooled = layers.GlobalAveragePooling1D()(layers.Embedding(9, 4, mask_zero=True)(tokens))
    return keras.Model(inputs, layers.Dense(3)(pooled)), (texts, labels)


def ragged() -> Made:
    """Rows of unlike lengths, which a layer before the lookup fills up."""
    inputs = keras.Input((None,), dtype="string", ragged=True)
    filled = layers.Lambda(lambda rows: rows.to_tensor("", shape=(None, 5)), output_shape=(5,), dtype="string")(inputs)
    ids = layers.Embedding(5, 3)(layers.StringLookup(vocabulary=VOCABULARY)(filled))
    return keras.Model(inputs, layers.Dense(3)(layers.Flatten()(ids))), (lists, labels)


def augmented(*more: Any) -> Made:
    """A Sequential in bfloat16, whose images are cast before the layers."""
    head = [layers.RandomFlip(seed=3), layers.RandomElasticTransform(seed=5), layers.Rescaling(1 / 255)]
    rest = [layers.Conv2D(4, 3, strides=2), *more, layers.GlobalAveragePooling2D(), layers.Dense(3, dtype="float32")]
    return keras.Sequential([keras.Input((10, 10, 1)), *head, *rest]), (images, labels[:IMAGES])


def nested() -> Made:
    augment = keras.Sequential([layers.RandomFlip(seed=3), layers.RandomElasticTransform(seed=5)])
    inputs = keras.Input((10, 10, 1))
    rest = layers.Dropout(0.0)(layers.Conv2D(4, 3)(layers.Rescaling(1 / 255)(augment(inputs))))
    return keras.Model(inputs, layers.Dense(3)(layers.GlobalAveragePooling2D()(rest))), (images, labels[:IMAGES])


class Sizes(layers.Layer):
    """The lengths of strings, with a loss of their own if asked for."""

    def __init__(self, *, loses: bool = False) -> None:
        super().__init__()
        self.loses = loses

    def call(self, words: Any) -> Any:
        found = tf.cast(tf.strings.length(words), tf.float32)
        if self.loses:
            self.add_loss(tf.reduce_mean(found) * 1e-3)
        return found

    def compute_output_spec(self, words: Any) -> Any:
        return keras.KerasTensor(words.shape, "float32")


def sized(*, loses: bool) -> Made:
    inputs = keras.Input((1,), dtype="string")
    return keras.Model(inputs, layers.Dense(3)(Sizes(loses=loses)(inputs))), (towns, labels)


class OfStrings(layers.Layer):
    """A layer that XLA cannot compile, for a place after weights that are trained."""

    def call(self, x: Any) -> Any:
        return x + tf.cast(tf.size(tf.strings.as_string(tf.stop_gradient(x[:1]))) * 0, x.dtype)


class Counted(layers.Layer):
    """A layer that XLA cannot compile; XLA finds out only after it has refused layers before."""

    def call(self, x: Any) -> Any:
        size = tf.cast(tf.reduce_sum(tf.stop_gradient(x)) * 0, tf.int32) + 1
        return x + tf.cast(tf.reduce_sum(tf.range(size)), x.dtype)


class Window(layers.Layer):
    """Rows of an image from a drawn row on: XLA takes their place as a constant, and would compile every step again."""

    def __init__(self) -> None:
        super().__init__()
        self.seeds = keras.random.SeedGenerator(4)

    def call(self, x: Any) -> Any:
        first = keras.random.randint((), 0, 3, seed=self.seeds)
        return tf.ensure_shape(x[:, first : first + 8], (None, 8, *x.shape[2:]))


def windowed() -> Made:
    inputs = keras.Input((10, 10, 1))
    rest = layers.Conv2D(4, 3, strides=2)(layers.Rescaling(1 / 255)(Window()(inputs)))
    return keras.Model(inputs, layers.Dense(3)(layers.GlobalAveragePooling2D()(rest))), (images, labels[:IMAGES])


class Shortened(layers.Layer):
    """A drawn number of rows, of which Keras knows only the most: at first it calls layers as in prediction."""

    def __init__(self) -> None:
        super().__init__()
        self.seeds = keras.random.SeedGenerator(4)

    def call(self, x: Any, training: bool = False) -> Any:
        return x[:, : keras.random.randint((), 5, 11, seed=self.seeds)] if training else x


def shortened() -> Made:
    inputs = keras.Input((10, 10, 1))
    rest = layers.GlobalAveragePooling2D()(layers.Rescaling(1 / 255)(Shortened()(inputs)))
    return keras.Model(inputs, layers.Dense(3)(rest)), (images, labels[:IMAGES])


class OfItsOwn(keras.Model):
    def train_step(self, data: Any) -> Any:
        return super().train_step(data)


def stepped() -> Made:
    model, data = table()
    return OfItsOwn(model.inputs, model.outputs), (tuple(data[0][one.name] for one in model.inputs), *data[1:])


CASES: dict[str, Callable[[], Made]] = {
    "table": table,
    "table, given": lambda: table(given=True),
    "text": text,
    "ragged": ragged,
    "custom layer": lambda: sized(loses=False),
    "a drawn place": windowed,
    "augmented": augmented,
    "augmented, bfloat16": augmented,
    "nested": nested,
    "lengths that differ": lambda: text(None),
    "lengths that are drawn": shortened,
    "a loss of a layer": lambda: sized(loses=True),
    "after weights": lambda: table(before=keras.Sequential([layers.Dense(3), OfStrings()])),
    "found later": lambda: augmented(Counted()),
    "a step of its own": stepped,
}
BY_RING = ("table, given",)  # alone
# Each rank draws for itself.
RANDOM = ("a drawn place", "augmented", "augmented, bfloat16", "nested", "found later", "lengths that are drawn")
BY_OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "table, steps at once": ("table", {"steps_per_execution": 2}),
    "table, halves": ("table", {"aggregate": 2}),
    "augmented, priced": ("augmented", {"epochs": 5}),
}


def trained(case: str, by_ring: bool, options: dict[str, Any]) -> dict[str, Any]:
    keras.config.set_dtype_policy("mixed_bfloat16" if case.endswith("bfloat16") else "float32")
    keras.utils.set_random_seed(2)
    options = dict(options)
    model, data = CASES[case]()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    steps, epochs = options.pop("steps_per_execution", 1), options.pop("epochs", 2)
    sgd = keras.optimizers.SGD(0.1, gradient_accumulation_steps=None if by_ring else options.get("aggregate"))
    model.compile(sgd, loss, metrics=["accuracy"], jit_compile=False, steps_per_execution=steps)
    said = io.StringIO()
    batch = len(data[1]) // STEPS // ring.size()
    batches = tf.data.Dataset.from_tensor_slices(data).batch(batch, drop_remainder=True)
    with contextlib.redirect_stderr(said):
        if by_ring:
            ring.distribute(model, **options)
        history = model.fit(batches, epochs=epochs, verbose=0).history
    return {
        "history": history,
        "weights": [np.asarray(ops.cast(v, "float64")).tolist() for v in model.variables if v.dtype != "string"],
        "evaluated": model.evaluate(batches, verbose=0),
        "said": said.getvalue(),
    }


found: dict[str, Any] = {}
for case in [*CASES, *BY_OPTIONS]:
    made, options = BY_OPTIONS.get(case, (case, {}))
    if ring.size() > 1 and made in RANDOM:
        continue
    compares = ring.size() == 1 and case not in BY_RING
    plain = {"plain": trained(made, False, options)} if compares else {}
    found[case] = plain | {"ring": trained(made, True, options)}
Path(sys.argv[1], f"rank{ring.rank()}.json").write_text(json.dumps(found))
