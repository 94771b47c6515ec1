"""Weights of other types than float32: two real ranks against one on the joined batch (scripts/kinds.py).

They alone catch weights of other types that are trained or refused wrongly.
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

# By the narrowest type of the weights, which are below 1: what some roundings of each of twelve steps come to. Keras
# computes losses in float32 whatever the weights are.
ROUNDING = {"bfloat16": 3e-2, "float16": 3e-3, "float64": 1e-6}
CASES = {
    "bfloat16": "bfloat16",
    "float16": "float16",
    "float64": "float64",
    "four types": "bfloat16",
    "rows of bfloat16": "bfloat16",
    "normalised over ranks": "bfloat16",
    "divided before": "bfloat16",
    "two steps": "bfloat16",
    "a loop of one's own": "bfloat16",
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What one rank found on joined batches, then what each of two ranks did."""
    out = tmp_path_factory.mktemp("kinds")
    for launcher in ("gloo", None):
        done = run_python(str(SCRIPTS / "kinds.py"), str(out), prefix=prepared(launcher))
        assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads((out / name).read_text()) for name in ("1ranks0.json", "2ranks0.json", "2ranks1.json")]


def _numbers(values: Any) -> Any:
    return np.concatenate([np.ravel(np.asarray(value, float)) for value in values])


@pytest.mark.parametrize("step", ["fit", "compiled"])
@pytest.mark.parametrize("name", CASES)
def test_two_ranks_train_what_one_does_up_to_the_type_s_rounding(
    found: list[dict[str, Any]], name: str, step: str
) -> None:
    alone, (one, other) = found[0][f"{name}, fit"], (rank[f"{name}, {step}"] for rank in found[1:])
    assert one == other
    assert CASES[name] in one["types"] == alone["types"]
    assert one["change"] > 0.1
    near = ROUNDING[CASES[name]]
    np.testing.assert_allclose(_numbers(one["weights"]), _numbers(alone["weights"]), atol=near)
    if "loaded" in one:
        assert one["loaded"] == one["weights"]
        np.testing.assert_allclose(_numbers(one["predicted"]), _numbers(alone["predicted"]), atol=4 * near)
        assert one["evaluated"] == pytest.approx(alone["evaluated"], abs=near + 1e-6)


def test_what_is_not_trained_in_such_types_is_refused(found: list[dict[str, Any]]) -> None:
    why = "sharded=True works with float32 weights, and the weights here are bfloat16; leave sharded=True out"
    # The rank that comes to it later may have heard first that the other has left the training for it.
    left = [f"rank {rank} left the training: RingscopeError: {why}" for rank in range(2)]
    assert found[1]["sharded"] in (why, *left)
