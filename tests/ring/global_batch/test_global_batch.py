"""Losses, metrics and normalisation of two real ranks against one rank on the joined batch (scripts/joined.py).

They alone catch a loss or a metric of some kind that is a rank's own and not the joined batch's.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.harness.running import prepared, run_python
from tests.ring import SCRIPTS

pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")
pytestmark = [pytest.mark.train, pytest.mark.beside, pytest.mark.exhaustive]

SCRIPT = str(SCRIPTS / "joined.py")
CASES = [
    "mean",
    "weights of two types and sizes",
    "sum of losses",
    "sum of weighted losses without reduction",
    "one loss a sample beside a mean",
    "a mean by weight",
    "weights of samples and classes",
    "masked tokens",
    "one loss a token that the loss keeps",
    "recurrent layers of masked tokens",
    "two masks and a regulariser",
    "a last batch that is smaller",
    "one loss a sample and a last batch that is smaller",
    "reported losses of two outputs",
    "batches whose shapes one rank meets alone",
    "a second fit on batches of unlike sizes",
    "regularised activities",
    "means that were taken before of batches of unlike sizes",
    "one number for a batch by weight",
    "one number for a batch of masked tokens",
    "train on batch with unlike sizes",
    "own data that ends earlier on one rank",
    "synchronised normalisation",
    "synchronised normalisation of masked steps",
    "losses that reduce themselves",
    "losses that layers add",
    "a mean that the model takes itself",
    "a sum that the model takes itself",
    "one loss a sample that the model takes itself",
    "a mean that the model takes beside what its layers add",
    "alignments by ctc",
    "rows of a scipy matrix",
    "rows of a sparse tensor",
    "a data set that is counted",
    "metrics that are no means",
    "a split for validation",
    "batches of a py dataset",
]
NOT_COMPILED = ["rows of a ragged tensor", "rows of strings"]
EVERY = [(name, step) for name in CASES for step in ("fit", "compiled")] + [(name, "fit") for name in NOT_COMPILED]
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What one rank found on joined batches, then what each of two ranks did."""
    out = tmp_path_factory.mktemp("joined")
    for launcher in ("gloo", None):
        done = run_python(SCRIPT, str(out), "2", prefix=prepared(launcher), timeout_s=900)
        assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads((out / name).read_text()) for name in ("1ranks0.json", "2ranks0.json", "2ranks1.json")]


def of(found: list[dict[str, Any]], name: str, step: str) -> tuple[Any, list[Any]]:
    """What one rank came to by `fit`, and each of two ranks by this step."""
    return found[0][f"{name}, fit"], [rank[f"{name}, {step}"] for rank in found[1:]]


def numbers(values: Any) -> Any:
    return np.concatenate([np.ravel(np.asarray(value, float)) for value in values])


@pytest.mark.parametrize(("name", "step"), EVERY)
def test_two_ranks_train_and_report_what_one_does_on_the_joined_batch(
    found: list[dict[str, Any]], name: str, step: str
) -> None:
    alone, together = of(found, name, step)
    assert together[0] == together[1]
    # Moving variances are in the tens: to them a float32 is exact to some 1e-6.
    assert np.allclose(numbers(alone["weights"]), numbers(together[0]["weights"]), atol=TOLERANCE, rtol=TOLERANCE)
    assert alone["history"].keys() == together[0]["history"].keys()
    for metric, values in alone["history"].items():
        assert np.allclose(values, together[0]["history"][metric], atol=1e-5, rtol=1e-5), metric


@pytest.mark.parametrize("step", ["fit", "compiled"])
def test_evaluate_and_predict_give_every_rank_what_one_would_get(found: list[dict[str, Any]], step: str) -> None:
    alone, together = of(found, "metrics that are no means", step)
    for what in ("evaluated", "predicted"):
        assert np.allclose(numbers(alone[what]), numbers(together[0][what]), atol=1e-5)
        assert together[0][what] == together[1][what]


def test_every_case_of_the_script_is_asked(found: list[dict[str, Any]]) -> None:
    assert {f"{name}, {step}" for name, step in EVERY} == set(found[1])
