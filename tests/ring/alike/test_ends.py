"""How a training ends, asked of two real ranks (scripts/ends.py).

They alone catch ranks that stop after unlike steps, or wait for one that has left.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.harness.running import prepared, run_python
from tests.ring import SCRIPTS, from_ranks

pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")
pytestmark = [pytest.mark.train, pytest.mark.exhaustive]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    out = tmp_path_factory.mktemp("ends")
    return out, run_python(str(SCRIPTS / "ends.py"), str(out), prefix=prepared("gloo"), timeout_s=900)


@pytest.fixture(scope="module")
def facts(ended: tuple[Path, subprocess.CompletedProcess[str]]) -> list[dict[str, Any]]:
    out, done = ended
    assert (out / "rank0.json").exists(), done.stdout + done.stderr
    return from_ranks(out)


@pytest.mark.parametrize("step", ["fit", "compiled"])
@pytest.mark.parametrize("by", ["thread", "signal", "between epochs"])
def test_all_ranks_stop_after_the_same_step_whoever_asks_for_it(
    facts: list[dict[str, Any]], by: str, step: str
) -> None:
    first, second = (fact[f"{by}, {step}"] for fact in facts)
    assert first == second
    steps = first[0]
    # Of 16000, 4 an epoch; it is asked for in the second epoch or later, between epochs after the second.
    assert 9 <= steps <= 17 if by == "between epochs" else 4 <= steps < 4_000


def test_a_rank_that_is_late_has_not_left(facts: list[dict[str, Any]]) -> None:
    assert facts[0]["after a late rank"] == facts[1]["after a late rank"]
    assert facts[0]["after a late rank"][0] == 4


def test_some_ranks_average_alone_in_a_loop_of_their_own(facts: list[dict[str, Any]]) -> None:
    assert [fact["averages"] for fact in facts] == [[[1.0, 1.0], [1.5, 1.5]], [[2.0, 2.0], [1.5, 1.5]]]


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("a model of one rank", "ring.distribute trains a model on all ranks"),
        ("distributed on one rank", "another rank has ended, or calls another function"),
    ],
)
def test_what_only_some_ranks_do_is_refused(facts: list[dict[str, Any]], what: str, says: str) -> None:
    assert all(says in fact[what] for fact in facts)


def test_weights_that_a_loop_has_left_apart_end_the_script_with_an_error(
    ended: tuple[Path, subprocess.CompletedProcess[str]], facts: list[dict[str, Any]]
) -> None:
    done = ended[1]
    assert done.returncode != 0
    assert "kernel differs between rank 0 and rank 1 at the end" in done.stdout + done.stderr
