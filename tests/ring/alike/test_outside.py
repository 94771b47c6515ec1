"""Variables that a train step reads and its model does not hold, on two real ranks (scripts/outside.py)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.running import prepared, run_python
from tests.ring import SCRIPTS, from_ranks

pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")
pytestmark = [pytest.mark.train, pytest.mark.beside, pytest.mark.ci]

STEPS = ("fit", "compiled")


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    out = tmp_path_factory.mktemp("outside")
    done = run_python(str(SCRIPTS / "outside.py"), str(out), prefix=prepared("gloo"))
    assert done.returncode == 0, done.stdout + done.stderr
    return from_ranks(out)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    ("case", "named"), [("centres", "'centres_{}' of shape (3, 2)"), ("metric", "'seen_{}/total'")]
)
def test_a_variable_that_ranks_have_unlike_is_named_once(
    facts: list[dict[str, Any]], case: str, named: str, step: str
) -> None:
    (line,), others = (fact[f"{case}, {step}"] for fact in facts)
    assert named.format(step) in line and "ring.sum" in line
    assert others == []


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("case", ["centres of all ranks", "aggregated", "sharded", "noise"])
def test_alike_variables_random_generators_and_rings_own_are_not_named(
    facts: list[dict[str, Any]], case: str, step: str
) -> None:
    assert [fact[f"{case}, {step}"] for fact in facts] == [[], []]
