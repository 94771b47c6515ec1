"""Layers that XLA cannot compile run before the compiled step if they are a model's first (scripts/headed.py).

They alone catch a model with such layers that trains otherwise than by plain Keras.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.harness.running import run_in_turn
from tests.ring import SCRIPTS, from_ranks

pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")
pytestmark = [pytest.mark.train, pytest.mark.beside, pytest.mark.ci]

BEFORE = {
    "table": ["StringLookup", "Hashing"],
    "text": ["TextVectorization"],
    "ragged": ["Lambda", "StringLookup"],
    "custom layer": ["Sizes"],
    "a drawn place": ["Window"],
    "augmented": ["RandomFlip", "RandomElasticTransform"],
    "augmented, bfloat16": ["RandomFlip", "RandomElasticTransform"],
    "nested": ["Sequential"],
    "table, steps at once": ["StringLookup", "Hashing"],
    "table, halves": ["StringLookup", "Hashing"],
    "augmented, priced": ["RandomFlip", "RandomElasticTransform"],
}
REFUSED = {
    "lengths that differ": "can differ from batch to batch",
    "lengths that are drawn": "can differ from batch to batch",
    "a loss of a layer": "they add losses",
    "after weights": "which is or precedes such a layer, has weights that are trained",
    "found later": "which is or precedes such a layer, has weights that are trained",
    "a step of its own": "the model is not made of layers alone, or has a train step of its own",
}


def _asked(out: Path, launcher: str | None) -> list[dict[str, Any]]:
    run_in_turn([[SCRIPTS / "headed.py", out]], launcher)
    return from_ranks(out, 2 if launcher else 1)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return _asked(tmp_path_factory.mktemp("alone"), None)[0]


def _check(ring: dict[str, Any], plain: dict[str, Any], tolerance: float) -> None:
    """tolerance: of weights, which also hold the states of random numbers."""
    for own, kerass in zip(ring["weights"], plain["weights"], strict=True):
        np.testing.assert_allclose(own, kerass, rtol=tolerance, atol=tolerance)
    assert ring["history"].keys() == plain["history"].keys()
    np.testing.assert_allclose(ring["history"]["loss"], plain["history"]["loss"], rtol=tolerance)
    np.testing.assert_allclose(ring["evaluated"], plain["evaluated"], rtol=tolerance)


@pytest.mark.parametrize("case", BEFORE)
def test_they_are_named_and_the_model_trains_as_by_plain_keras(alone: dict[str, Any], case: str) -> None:
    ring = alone[case]["ring"]
    assert "training without XLA" not in ring["said"]
    if "," not in case or "bfloat16" in case:  # a line is said once a process
        assert ring["said"].count("they run before it") == 1
    assert all(f"({kind})" in ring["said"] for kind in BEFORE[case]) and "Embedding" not in ring["said"]
    _check(ring, alone[case]["plain"], 2e-3 if "bfloat16" in case else 1e-5)


def test_their_time_and_the_step_s_are_said_once_after_some_steps(alone: dict[str, Any]) -> None:
    said = [line for line in alone["augmented, priced"]["ring"]["said"].splitlines() if " ms" in line]
    (line,) = said
    layers, step = map(float, re.findall(r"([\d.]+) ms", line))
    assert layers > 0 and step > 0
    assert not any(" ms" in alone[case]["ring"]["said"] for case in BEFORE if not case.endswith("priced"))


def test_to_the_last_bit_as_the_rest_alone_on_what_they_make(alone: dict[str, Any]) -> None:
    ring, rest = alone["table"]["ring"], alone["table, given"]["ring"]
    assert rest["said"] == ""
    assert ring["weights"] == rest["weights"] and ring["history"] == rest["history"]


@pytest.mark.parametrize("case", REFUSED)
def test_where_they_cannot_the_reason_is_said_and_nothing_has_run_twice(alone: dict[str, Any], case: str) -> None:
    ring, plain = alone[case]["ring"], alone[case]["plain"]
    assert REFUSED[case] in ring["said"] and ring["said"].count("training without XLA") == 1
    if case in ("after weights", "found later"):  # no data set can do this work
        assert "if it needs no trained weights, else write it with operations that XLA compiles" in ring["said"]
    assert "they run before it" not in ring["said"]
    assert ring["weights"] == plain["weights"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("launcher", ["gloo", "mpirun"])
def test_two_ranks_train_as_plain_keras_on_the_joined_batch(
    alone: dict[str, Any], tmp_path: Path, launcher: str
) -> None:
    first, second = _asked(tmp_path, launcher)
    assert {case for case, kinds in BEFORE.items() if "Random" not in str(kinds)} - {
        "nested",
        "a drawn place",
    } <= first.keys()
    for case, found in first.items():
        assert found["ring"]["weights"] == second[case]["ring"]["weights"]
        if case in BEFORE:
            assert "training without XLA" not in found["ring"]["said"] + second[case]["ring"]["said"]
        _check(found["ring"], alone[case.removesuffix(", given")]["plain"], 1e-5)
