"""Losses that are built before the first step have the structure of what the model returns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

keras = pytest.importorskip("keras")
pytest.importorskip("horovod.tensorflow")

from ringscope.ring.step.variables import _build_of_layers  # noqa: E402


@pytest.mark.parametrize(
    "pack", [lambda out: out, lambda out: [out], lambda out: (out,)], ids=["bare", "list", "tuple"]
)
def test_a_model_with_one_output_has_the_loss_of_all_its_samples(pack: Any) -> None:
    random = np.random.default_rng(0)
    x, y = random.normal(size=(6, 4)).astype("float32"), np.array([0, 1, 2, 2, 1, 1])
    inputs = keras.Input((4,))
    model = keras.Model(inputs, pack(keras.layers.Dense(3)(inputs)))
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    batch = keras.ops.convert_to_tensor(x), keras.ops.convert_to_tensor(y)
    _build_of_layers(model, batch)
    scores = x @ model.get_weights()[0]
    own = np.log(np.exp(scores).sum(1)) - scores[np.arange(6), y]
    assert model._compile_loss.built
    assert float(model.compute_loss(y=batch[1], y_pred=model(x))) == pytest.approx(own.mean(), rel=1e-5)
