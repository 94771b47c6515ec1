"""What one rank alone need not compare, and need not refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.running import prepared, run_python

pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")

SCRIPT = """
import keras, numpy as np, tensorflow as tf
from ringscope import ring
from ringscope.ring.alike import weights
ring.init()
asked = []
own, weights.weights_digest = weights.weights_digest, lambda variables: asked.append(len(variables)) or own(variables)
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2), keras.layers.BatchNormalization()])
model.compile("sgd", "mse")
ring.distribute(model)
x = np.ones((8, 3), "float32")
model.fit(x, x[:, :2], batch_size=2, epochs=2, verbose=0)
model.evaluate(x, x[:, :2], verbose=0)
weights.weights_digest(model.trainable_weights)
print("asked for", asked)
new = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
new.compile("sgd", "mse", metrics=["mae"])
ring.distribute(new)
none = tf.data.Dataset.from_tensor_slices((x, x[:, :2])).batch(2).filter(lambda x, y: False)
print("without a batch", new.fit(none, epochs=2, verbose=0).history, new.fit(x, x[:, :2], verbose=0).history.keys())
"""


@pytest.mark.train
@pytest.mark.beside
def test_its_weights_are_not_hashed_and_data_without_a_batch_is_warned_of_as_by_keras(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = run_python(str(script), prefix=prepared())
    assert done.returncode == 0, done.stderr
    assert "asked for [4]" in done.stdout  # by the script itself
    assert "without a batch {} dict_keys(['loss', 'mae'])" in done.stdout
    assert "Your input ran out of data" in done.stderr
