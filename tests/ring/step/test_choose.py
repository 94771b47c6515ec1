"""What `step="auto"` chooses, and how it goes back on it, asked by two real ranks (scripts/chosen.py).

They alone catch two ranks of which `auto` chooses unlike steps, or goes back on one wrongly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.harness.running import prepared, run_python
from tests.ring import SCRIPTS, from_ranks

pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")
pytestmark = [pytest.mark.train, pytest.mark.beside, pytest.mark.exhaustive]


ITERATIONS = {"applied twice": 16, "applied twice, by no calls": 16, "frozen": 0, "parts alone": 8}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    out = tmp_path_factory.mktemp("chosen")
    script = SCRIPTS / "chosen.py"
    done = run_python(str(script), str(out), prefix=prepared("gloo"))
    assert done.returncode == 0, done.stdout + done.stderr
    return from_ranks(out)


CASES = ("here", "taken", "refused", "narrow", "one short batch", "parts alone", "rows once", "rows once, halved")
NO_HALVES = ("applied twice", "frozen", "applied twice, by no calls")


@pytest.mark.parametrize("case", CASES)
def test_however_it_is_trained_the_ranks_end_bit_equal(found: list[dict[str, Any]], case: str) -> None:
    assert found[0][case]["weights"] == found[1][case]["weights"]
    assert found[0][case]["iterations"] == found[1][case]["iterations"] == 8


def test_compiled_refused_or_on_a_cpu_it_is_the_same_training(found: list[dict[str, Any]]) -> None:
    for case in ("taken", "refused"):
        for mine, theirs in zip(found[0][case]["weights"], found[0]["here"]["weights"], strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", [*NO_HALVES, "parts alone"])
def test_a_step_that_has_no_halves_is_the_same_training(found: list[dict[str, Any]], case: str) -> None:
    for rank, facts in enumerate(found):
        assert facts[case]["weights"] == found[0][case]["weights"]
        here = facts[f"{case.removesuffix(', by no calls')}, here"]
        for mine, theirs in zip(facts[case]["weights"], here["weights"], strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
        assert facts[case]["iterations"] == here["iterations"] == ITERATIONS[case]
        said = [line for line in _ours(facts[case]["said"]) if "without XLA" in line]
        assert len(said) == (case.endswith("by no calls") and rank == 0), said
        assert all("applies gradients" in line for line in said)


def test_a_loss_scale_that_has_halved_is_what_the_next_step_is_traced_with(found: list[dict[str, Any]]) -> None:
    for facts in found:
        compiled, here = facts["a scale that halves"], facts["a scale that halves, here"]
        assert compiled["weights"] == found[0]["a scale that halves"]["weights"]
        for mine, theirs in zip(compiled["weights"], here["weights"], strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
        assert 0 < compiled["iterations"] == here["iterations"] < 8  # the others were skipped


def test_rows_of_one_index_are_added_before_they_are_exchanged(found: list[dict[str, Any]]) -> None:
    """By SGD, for which a sum of rows is what the rows are one by one."""
    for kind, tolerance in (("", 1e-6), (", halved", 1e-3)):
        gathered, once = (found[0][f"rows {how}{kind}"]["weights"] for how in ("gathered", "once"))
        for mine, theirs in zip(once, gathered, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance)
        assert any(np.any(np.not_equal(a, b)) for a, b in zip(once, gathered, strict=True)) or not kind


def test_what_is_chosen_is_said_by_rank_0_and_why(found: list[dict[str, Any]]) -> None:
    (line,) = _ours(found[0]["refused"]["said"])
    assert line.startswith("ring: training without XLA: XLA does not compile this step (")
    assert not _ours(found[1]["refused"]["said"])
    for facts in found:
        assert not _ours(facts["here"]["said"])
        for case in ("taken", "one short batch"):
            assert not any("without XLA" in line for line in _ours(facts[case]["said"]))


def test_batches_of_many_shapes_are_trained_without_xla_after_eight(found: list[dict[str, Any]]) -> None:
    assert found[0]["many shapes"]["weights"] == found[1]["many shapes"]["weights"]
    for rank, facts in enumerate(found):
        assert facts["many shapes"]["iterations"] == 10
        (line,) = _ours(facts["many shapes"]["said"])
        says = "training without XLA: batches come in more than 8 shapes; shapes seen so far stay compiled"
        assert line == f"ring: rank {rank}: {says}"


def _ours(said: str) -> list[str]:
    """What is said of the choice; on standard error there is more."""
    words = ("training without XLA", "is trained with step")
    return [line for line in said.splitlines() if line.startswith("ring: ") and any(word in line for word in words)]


def test_what_is_compiled_is_kept_on_disk(found: list[dict[str, Any]]) -> None:
    assert all(rank["cached programs"] > 0 for rank in found)
