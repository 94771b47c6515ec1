"""What ring keeps of a model: Keras does not see it."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")

import h5py  # noqa: E402
import keras  # noqa: E402

from ringscope.ring.models import kept  # noqa: E402


class Subclassed(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, inputs: Any) -> Any:
        return self.dense(inputs)


def sequential() -> keras.Model:
    return keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])


def told_of(model: keras.Model, folder: Path) -> tuple[Any, ...]:
    """All that Keras says of a model, and what it writes."""
    lines: list[str] = []
    model.summary(print_fn=lambda line, **_: lines.append(line))
    model.save_weights(folder / "own.weights.h5")
    groups: list[str] = []
    with h5py.File(folder / "own.weights.h5") as file:
        file.visit(groups.append)
    paths = [variable.path for variable in model.variables]
    return lines, groups, paths, len(list(model._flatten_layers())), sorted(model._trackable_children())


@pytest.mark.parametrize("made", [sequential, Subclassed])
def test_keras_neither_tracks_nor_saves_what_ring_keeps(made: Callable[[], keras.Model], tmp_path: Path) -> None:
    model = made()
    model.compile("sgd", "mse")
    model(tf.ones((1, 2)))
    before = tmp_path / "before.weights.h5"
    model.save_weights(before)
    told = told_of(model, tmp_path)
    kept(model).draws[3] = keras.random.SeedGenerator(1)
    kept(model).watch = [keras.layers.Dense(1), tf.Variable(1.0)]
    assert told_of(model, tmp_path) == told
    model.load_weights(before)


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copied_model_begins_without_what_ring_keeps(copied: Callable[[Any], Any]) -> None:
    model = sequential()
    kept(model).step, kept(model).loop = "compiled", lambda: model  # which cannot be pickled
    assert vars(kept(model)) != vars(kept(sequential()))
    assert vars(kept(copied(model))) == vars(kept(sequential()))
    assert vars(copied(kept(model))) == vars(kept(sequential()))
    assert kept(model) is kept(model) and kept(model).step == "compiled"
