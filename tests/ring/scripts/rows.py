"""Embeddings whose gradients travel as rows, beside the same as tables. usage: rows.py OUT CASE..."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from ringscope import ring
from ringscope.ring.gradients import embedding_rows

ring.init(seed=3)
out, rank = Path(sys.argv[1]), ring.rank()
packed = embedding_rows.Rows.pack
travelled: list[list[int]] = []
random = np.random.default_rng(0)
ITEMS, USERS = random.integers(0, 5000, (96, 3)), random.integers(0, 900, 96)
ITEMS[::2], ITEMS[5] = 7, (4999, 0, 4999)
Y = random.normal(size=(96, 1)).astype("float32")


def noted(self: embedding_rows.Rows, *given: Any, **options: Any) -> list[Any]:
    """As it is, and which gradients it has sent as rows."""
    found = packed(self, *given, **options)
    travelled.append(sorted(self._tables))
    return found


embedding_rows.Rows.pack = noted  # type: ignore[method-assign]


def two_tables() -> keras.Model:
    items, users = keras.Input((3,), dtype="int32"), keras.Input((), dtype="int32")
    table = layers.Embedding(5000, 6)
    seen = layers.Flatten()(table(items) + table(items) ** 2)  # looked up twice
    x = layers.Concatenate()([seen, layers.Embedding(900, 4)(users)])
    return keras.Model([items, users], layers.Dense(1)(layers.Dense(8, activation="tanh")(x)))


def trained(data: tuple[Any, ...], optimizer: str = "adamw", batch: int | None = 8, **options: Any) -> None:
    keras.utils.set_random_seed(1)
    travelled.clear()
    model = two_tables()
    model.compile(keras.optimizers.get(optimizer), "mse")
    ring.distribute(model, step="compiled", **options)
    history = model.fit(*data, batch_size=batch, epochs=2, shuffle=False, verbose=0)
    facts[name] = {"rows": [list(each) for each in travelled], "loss": history.history["loss"]}
    np.savez(out / f"{name}.{rank}.npz", *[w.numpy() for w in model.weights])


def ends_alone() -> keras.utils.PyDataset:
    class Batches(keras.utils.PyDataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> Any:
            of = slice(8 * index, 8 * index + 5 + index % 3)
            return (ITEMS[of], USERS[of]), Y[of]

    return Batches()


WHOLE: tuple[Any, ...] = ([ITEMS, USERS], Y)
dataset = tf.data.Dataset.from_tensor_slices(((ITEMS, USERS), Y))
CASES: dict[str, Callable[[], None]] = {
    "arrays": lambda: trained(WHOLE),
    "sum": lambda: trained(WHOLE, "sgd", op="sum"),
    "data set": lambda: trained((dataset.batch(8),), batch=None),
    "a last batch that is smaller": lambda: trained((dataset.take(90).batch(8),), batch=None),
    "a last batch that is left out": lambda: trained((dataset.take(84).batch(8),), batch=None),
    "beside the backward pass": lambda: trained(WHOLE, overlap=True),
    "batches of unlike sizes": lambda: trained((ends_alone(),), batch=None),
    "asked for tables": lambda: trained(WHOLE, sparse_as_dense=True),
    "two local steps": lambda: trained(WHOLE, aggregate=2),
}
AS_ROWS = sys.argv[2:]  # the cases to train as tables too
facts: dict[str, Any] = {}
share = embedding_rows.SHARE
for case, train in CASES.items():
    for way in ("rows", "tables") if case in AS_ROWS else ("rows",):
        embedding_rows.SHARE = share if way == "rows" else 0.0
        name = f"{case}, {way}"
        train()
(out / f"rank{rank}.json").write_text(json.dumps(facts))
