"""What would train wrongly in silence, or raise where Keras alone trains, asked of two ranks (scripts/guards.py)."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.harness.ring import SCRIPTS
from tests.harness.running import prepared, run_python

pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")
pytestmark = pytest.mark.train


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    out = tmp_path_factory.mktemp("guards")
    done = run_python(str(SCRIPTS / "guards.py"), str(out), prefix=prepared("gloo"))
    assert (out / "rank0.json").exists(), done.stdout + done.stderr
    return [json.loads((out / f"rank{rank}.json").read_text()) for rank in range(2)]


def test_data_is_drawn_alike_and_noise_apart(facts: list[dict[str, Any]]) -> None:
    assert facts[0]["permutation"] == facts[1]["permutation"]
    assert facts[0]["shuffle"] == facts[1]["shuffle"]
    for one, other in zip(facts[0]["noise"], facts[1]["noise"], strict=True):
        assert one != other


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("another order", "x differs between rank 0 and rank 1"),
        ("another vocabulary", "the vocabulary of layer"),
        ("an unequal source", "source 0 of x differs"),
        ("assigned by hand", "kernel differs between rank 0 and rank 1 after step 3"),
        ("hvd.DistributedOptimizer", "take hvd.DistributedOptimizer out"),
        ("hvd.callbacks", "take hvd.BroadcastGlobalVariablesCallback out"),
        ("adasum", "Gloo has no Adasum"),
        ("elastic", "start a fixed number of ranks"),
        ("another order, its own share", "no error"),
        ("the optimizer of a part", "no error"),
    ],
)
def test_what_cannot_be_right_is_refused_and_nothing_else(facts: list[dict[str, Any]], what: str, says: str) -> None:
    assert all(says in fact[what] for fact in facts)


@pytest.mark.parametrize(
    "what",
    [
        "the optimizer of a part, weights",
        "sparse",
        "tensorboard",
        "otherwise named, rows",
        *(
            f"{name}, {step}"
            for name in (
                "scipy",
                "built by its shape",
                "unfrozen",
                "sum",
                "predivided",
                "dense",
                "average",
                "otherwise named",
            )
            for step in ("fit", "compiled")
        ),
    ],
)
def test_ranks_end_alike(facts: list[dict[str, Any]], what: str) -> None:
    assert facts[0][what] == facts[1][what]
    assert np.all(np.isfinite(facts[0][what]))


@pytest.mark.parametrize("step", ["fit", "compiled"])
def test_dividing_before_the_sum_and_dense_exchanges_change_nothing(facts: list[dict[str, Any]], step: str) -> None:
    for name in ("predivided", "dense"):
        assert np.allclose(facts[0][f"{name}, {step}"], facts[0][f"average, {step}"], atol=1e-5)
    assert not np.allclose(facts[0][f"sum, {step}"], facts[0][f"average, {step}"], atol=1e-5)


def test_a_backup_of_rank_0_goes_to_all(facts: list[dict[str, Any]]) -> None:
    for fact in facts:
        assert [fact["backup of 2"][0], fact["backup of 4"][0]] == [[0, 1], [2, 3]]
    assert facts[0]["backup of 4"] == facts[1]["backup of 4"]


def test_rank_0_may_evaluate_alone(facts: list[dict[str, Any]]) -> None:
    assert facts[0]["evaluated alone"] > 0


def test_the_rate_warms_up_over_epochs(facts: list[dict[str, Any]]) -> None:
    assert facts[0]["rate after warming up"] == pytest.approx(0.2)
