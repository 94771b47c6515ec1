"""Sharded optimizers of two real ranks against one rank on the joined batch (scripts/sharded.py).

They alone catch an optimizer in shares whose state or update is not the whole one's.
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
pytestmark = [pytest.mark.train, pytest.mark.exhaustive]

CASES = [
    "momentum",
    "no state",
    "moments",
    "decay of some weights",
    "a schedule",
    "a number of the step",
    "clipped by the norm of all",
    "clipped by the norm of each",
    "clipped by value",
    "sums of steps",
    "rows of an embedding and a weight without a gradient",
    "dense layers over words",
    "a loop of its own",
    "weights assigned between",
    "saved and loaded",
    "restored on rank 0",
]
STEPS = ("fit", "compiled")
EVERY = [(name, step) for name in CASES for step in STEPS]
TOLERANCE = 1e-6


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What one rank found on joined batches, then what each of two ranks did."""
    out = tmp_path_factory.mktemp("sharded")
    for launcher in ("gloo", None):
        done = run_python(str(SCRIPTS / "sharded.py"), str(out), "2", prefix=prepared(launcher), timeout_s=900)
        assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads((out / name).read_text()) for name in ("1ranks0.json", "2ranks0.json", "2ranks1.json")]


def apart(one: list[Any], other: list[Any]) -> float:
    """The most by which arrays differ, which are as many and of the same shapes."""
    assert [np.shape(a) for a in one] == [np.shape(b) for b in other]
    return max(float(np.max(np.abs(np.subtract(a, b)), initial=0)) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(("name", "step"), EVERY)
def test_two_ranks_train_what_one_does_and_save_its_state(found: list[dict[str, Any]], name: str, step: str) -> None:
    alone, together = found[0][f"{name}, fit"], [rank[f"{name}, {step}"] for rank in found[1:]]
    assert together[0]["weights"] == together[1]["weights"] and together[0]["state"] == together[1]["state"]
    assert apart(alone["weights"], together[0]["weights"]) < TOLERANCE
    assert apart(alone["state"], together[0]["state"]) < TOLERANCE


@pytest.mark.parametrize(("name", "step"), EVERY)
def test_each_rank_keeps_half_of_the_state(found: list[dict[str, Any]], name: str, step: str) -> None:
    whole, *parts = (each[f"{name}, {step}"]["bytes"] for each in found)
    assert sum(parts) == whole and all(abs(part - whole / 2) <= 4 * 3 for part in parts)


@pytest.mark.parametrize("step", STEPS)
def test_an_overflow_on_one_rank_is_skipped_by_all(found: list[dict[str, Any]], step: str) -> None:
    """Beside the same ranks without sharding: one rank alone rounds the joined batch to float16 otherwise."""
    for rank in found[1:]:
        sharded = rank[f"float16, {step}"]
        plain = sharded["plain"]
        assert sharded["updates"] == plain["updates"] == 10  # of 12 steps
        assert sharded["scale"] == plain["scale"] == 2**15 / 4
        assert apart(sharded["weights"], plain["weights"]) < TOLERANCE
    assert found[1][f"float16, {step}"]["weights"] == found[2][f"float16, {step}"]["weights"]


@pytest.mark.parametrize("step", STEPS)
def test_what_cannot_be_right_is_refused(found: list[dict[str, Any]], step: str) -> None:
    first, second = (rank[f"refusals, {step}"] for rank in found[1:])
    lamb, ema, sums, op, alone, narrow = first["refused"]
    assert "Lamb would train something else" in lamb and "use_ema" in ema and "aggregate=k" in sums
    assert "not with op=sum" in op and "not with reduce=False" in alone and "not with compression=bf16" in narrow
    assert found[0][f"refusals, {step}"]["refused"] == first["refused"]
    for rank in (first, second):
        assert "ring.gather(model) on all ranks" in rank["saved by this rank after a step more"]
        assert "save_freq='epoch'" in rank["saved in between"] and "has a constraint" in rank["bound"]


def test_every_case_of_the_script_is_asked(found: list[dict[str, Any]]) -> None:
    assert {f"{name}, {step}" for name in (*CASES, "float16", "refusals") for step in STEPS} == set(found[1])
