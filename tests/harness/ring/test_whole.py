"""On one rank a step is compiled as a whole, whatever it does (scripts/whole.py)."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.harness.ring import SCRIPTS
from tests.harness.running import run_in_turn

pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")
pytestmark = [pytest.mark.train, pytest.mark.beside]

CASES = {
    "two optimizers": 12,
    "assigned between": 12,
    "twice, and clipped after it": 24,
    "no update": 0,
    "of Keras's": 12,
    "rows of a table": 12,
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("whole")
    run_in_turn([[SCRIPTS / "whole.py", out]])
    return json.loads((out / "rank0.json").read_text())  # type: ignore[no-any-return]


@pytest.mark.parametrize(("case", "iterations"), CASES.items())
def test_it_trains_as_plain_keras_does(found: dict[str, Any], case: str, iterations: int) -> None:
    ring, plain = found[case]["ring"], found[case]["plain"]
    assert ring["iterations"] == plain["iterations"] == iterations
    np.testing.assert_allclose(ring["loss"], plain["loss"], rtol=1e-5)
    for own, keras_own in zip(ring["weights"], plain["weights"], strict=True):
        np.testing.assert_allclose(own, keras_own, rtol=1e-5, atol=1e-5)
    moved = not np.allclose(ring["loss"][0], ring["loss"][1], rtol=1e-3)
    assert moved == (iterations > 0)


def test_each_is_one_program(found: dict[str, Any]) -> None:
    assert found["programs"] == len(CASES)


def test_where_there_is_a_gpu_several_optimizers_are_compiled_too(found: dict[str, Any]) -> None:
    assert found["auto"] == "compiled"
