"""Moving statistics that one rank has set by hand, on two real ranks."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.running import prepared, run_python
from tests.ring import SCRIPTS, from_ranks

pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")
pytestmark = [pytest.mark.train, pytest.mark.beside, pytest.mark.ci]

ASKED = ("fit", "evaluate", "predict", "gather")


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    out = tmp_path_factory.mktemp("statistics")
    done = run_python(str(SCRIPTS / "statistics_set.py"), str(out), prefix=prepared("gloo"))
    assert done.returncode == 0, done.stdout + done.stderr
    return from_ranks(out)


@pytest.mark.parametrize("asked", ASKED)
def test_what_one_rank_alone_has_set_is_said_once_and_alike_then(facts: list[dict[str, Any]], asked: str) -> None:
    (lines, one), (others, other) = (fact[f"shifted, {asked}"] for fact in facts)
    assert (lines, others) == (1, 0)
    assert one == other


@pytest.mark.parametrize("asked", ASKED)
def test_what_a_ranks_own_batches_have_parted_is_alike_without_a_word(facts: list[dict[str, Any]], asked: str) -> None:
    (lines, one), (others, other) = (fact[f"stepped, {asked}"] for fact in facts)
    assert (lines, others) == (0, 0)
    assert one == other
