"""A step that has no halves is compiled as a whole, whatever it does, on one rank and on two (scripts/whole.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.harness.running import run_in_turn
from tests.ring import SCRIPTS, from_ranks

pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")
pytestmark = [pytest.mark.train, pytest.mark.beside, pytest.mark.ci]

ALONE = {
    "two optimizers": 12,
    "assigned between": 12,
    "twice, and clipped after it": 24,
    "numbers of two types": 24,
    "no update": 0,
    "of Keras's": 12,
    "rows of a table": 12,
    "rows of a large table": 12,
}
PAIR = {case: count for case, count in ALONE.items() if case != "assigned between"}


def _asked(out: Path, launcher: str | None) -> list[dict[str, Any]]:
    run_in_turn([[SCRIPTS / "whole.py", out]], launcher)
    return from_ranks(out, 2 if launcher else 1)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return _asked(tmp_path_factory.mktemp("alone"), None)[0]


@pytest.fixture(scope="module")
def pair(alone: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two ranks found, beside what plain Keras found alone."""
    ranks = _asked(tmp_path_factory.mktemp("pair"), "gloo")
    for found in ranks:
        for case, both in found.items():
            if isinstance(both, dict) and case in alone:
                both |= {"plain": alone[case]["plain"]} if "plain" in alone[case] else {}
    return ranks


@pytest.mark.parametrize(("case", "iterations"), ALONE.items())
def test_alone_it_trains_as_plain_keras_does(alone: dict[str, Any], case: str, iterations: int) -> None:
    _check(alone[case], iterations)


@pytest.mark.parametrize(("case", "iterations"), PAIR.items())
def test_two_ranks_train_as_plain_keras_on_the_joined_batch(
    pair: list[dict[str, Any]], case: str, iterations: int
) -> None:
    assert len(pair) == 2
    assert pair[0][case]["ring"]["weights"] == pair[1][case]["ring"]["weights"]
    _check(pair[0][case], iterations)


def _check(found: dict[str, Any], iterations: int) -> None:
    ring, plain = found["ring"], found["plain"]
    assert ring["iterations"] == plain["iterations"] == iterations
    np.testing.assert_allclose(ring["loss"], plain["loss"], rtol=1e-5)
    for own, keras_own in zip(ring["weights"], plain["weights"], strict=True):
        np.testing.assert_allclose(own, keras_own, rtol=1e-5, atol=1e-5)
    moved = not np.allclose(ring["loss"][0], ring["loss"][1], rtol=1e-3)
    assert moved == (iterations > 0)


def test_of_a_large_table_two_ranks_sum_the_rows_that_they_have_looked_up(pair: list[dict[str, Any]]) -> None:
    assert [(found["tables sent"], found["rows sent"]) for found in pair] == [(0, 1)] * 2


@pytest.mark.parametrize(("compression", "tolerance"), [("fp16", 1e-3), ("fp32", 1e-5)])
def test_gradients_travel_as_is_asked_for(pair: list[dict[str, Any]], compression: str, tolerance: float) -> None:
    plain = pair[0]["two optimizers"]["plain"]
    one, other = (found[f"two optimizers, {compression}"]["ring"] for found in pair)
    assert one["weights"] == other["weights"]
    np.testing.assert_allclose(one["loss"], plain["loss"], rtol=tolerance)
    assert [found["halves sent"] for found in pair] == [2, 2]  # of the two optimizers', with fp16 alone


@pytest.mark.parametrize("case", ["two optimizers", "of Keras's"])
def test_a_rank_that_takes_a_step_without_xla_ends_with_the_same_weights(pair: list[dict[str, Any]], case: str) -> None:
    one, other = (found[f"{case}, without XLA in one step"]["ring"] for found in pair)
    assert one["weights"] == other["weights"]
    assert one["iterations"] == 12


def test_alone_each_is_one_program(alone: dict[str, Any]) -> None:
    assert alone["programs"] == len(ALONE)


@pytest.mark.parametrize("case", ["of Keras's, some ignored", "of Keras's, a short last batch"])
def test_a_step_asks_the_other_ranks_how_many_count_inside_of_its_program(
    alone: dict[str, Any], pair: list[dict[str, Any]], case: str
) -> None:
    for found in (alone, *pair):
        assert found["in halves"] == 0
        _check(found[case], 12)
    assert pair[0][case]["ring"]["weights"] == pair[1][case]["ring"]["weights"]


def test_where_there_is_a_gpu_several_optimizers_are_compiled_too(
    alone: dict[str, Any], pair: list[dict[str, Any]]
) -> None:
    assert [found["auto"] for found in (alone, *pair)] == ["compiled"] * 3
