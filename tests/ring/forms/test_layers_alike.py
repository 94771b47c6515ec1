"""Every layer of Keras's, and operations beside them, compiled and staged as on GPUs: it trains as by plain Keras
(scripts/layers_alike.py).

They alone catch a layer of Keras's that the compiled step trains otherwise.
"""

from __future__ import annotations

import inspect
import json
from typing import Any

import keras
import pytest

from tests.harness.running import prepared, run_python
from tests.ring import SCRIPTS

pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")
pytestmark = [pytest.mark.train, pytest.mark.beside, pytest.mark.exhaustive]

# What XLA has no kernel for, in TensorFlow 2.21, after weights: such a step is trained without it.
WITHOUT_XLA = {"ops.scan"}
DRAWS = ("Random", "Dropout", "Gaussian")  # in the names of layers that draw noise, another in XLA
LEFT = {
    "AugMix",
    "AutoContrast",
    "ContrastLimitedAdaptiveHistogramEqualization",
    "CutMix",
    "Equalization",
    "FlaxLayer",
    "HashedCrossing",
    "InputSpec",
    "JaxLayer",
    "Layer",
    "MaxNumBoundingBoxes",
    "MixUp",
    "Pipeline",
    "RandAugment",
    "Solarization",
    "StringLookup",
    "TFSMLayer",
    "TextVectorization",
    "TorchModuleWrapper",
    "Wrapper",
}  # of other frameworks, of strings, for pictures before a model; or part of others


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    out = tmp_path_factory.mktemp("layers") / "found.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("XLA_FLAGS", raising=False)  # as XLA compiles for users: other tests choose what is quick
        done = run_python(str(SCRIPTS / "layers_alike.py"), str(out), prefix=prepared())
    assert done.returncode == 0, done.stdout + done.stderr
    loaded: dict[str, dict[str, Any]] = json.loads(out.read_text())
    return loaded


def test_they_train_to_the_same_weights(found: dict[str, dict[str, Any]]) -> None:
    assert {case: one["apart"] for case, one in found.items() if not one["apart"] < 2e-5} == {}


def test_xla_compiles_all_that_it_has_kernels_for(found: dict[str, dict[str, Any]]) -> None:
    assert {case for case, one in found.items() if one["refused"]} == WITHOUT_XLA


def test_no_layer_is_left_out_unsaid(found: dict[str, dict[str, Any]]) -> None:
    tried = {name for one in found.values() for name in one["layers"]}
    kinds = {kind for _, kind in inspect.getmembers(keras.layers, inspect.isclass)}
    missing = {kind.__name__ for kind in kinds} - tried
    assert {name for name in missing if not any(word in name for word in DRAWS)} == LEFT
