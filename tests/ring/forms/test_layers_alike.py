"""Every layer of Keras's, and operations beside them, compiled and staged as on GPUs: it trains as by plain Keras
(scripts/layers_alike.py).

They alone catch a layer of Keras's that the compiled step trains otherwise.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
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


PARTS = 8  # of the cases, each a start: together they take longer than one test may on a slow machine
Found = dict[str, dict[str, Any]]


def written(out: Path, *part: object) -> Any:
    """What the script finds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("XLA_FLAGS", raising=False)  # as XLA compiles for users: other tests choose what is quick
        done = run_python(str(SCRIPTS / "layers_alike.py"), str(out), *map(str, part), prefix=prepared())
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(out.read_text())


@pytest.fixture(scope="module", params=range(PARTS))
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Found:
    out = tmp_path_factory.mktemp("layers") / "found.json"
    loaded: Found = written(out, request.param, PARTS)
    return loaded


def test_they_train_to_the_same_weights(found: Found) -> None:
    assert {case: one["apart"] for case, one in found.items() if not one["apart"] < 2e-5} == {}


def test_xla_compiles_all_that_it_has_kernels_for(found: Found) -> None:
    assert {case for case, one in found.items() if one["refused"]} == WITHOUT_XLA & found.keys()


def test_no_layer_is_left_out_unsaid(tmp_path: Path) -> None:
    tried = {name for layers in written(tmp_path / "found.json").values() for name in layers}
    kinds = {kind for _, kind in inspect.getmembers(keras.layers, inspect.isclass)}
    missing = {kind.__name__ for kind in kinds} - tried
    assert {name for name in missing if not any(word in name for word in DRAWS)} == LEFT
