"""Some random trainings on two real ranks against one; `python -m tests.fuzz.trainings` takes more."""

from __future__ import annotations

from pathlib import Path

import pytest

from .__main__ import trained
from .combination import draw

pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")


@pytest.mark.train
@pytest.mark.beside
@pytest.mark.long
def test_random_trainings_are_those_of_one_rank_or_refused(tmp_path: Path) -> None:
    verdicts = trained(tmp_path, range(24), seed=0)
    assert not {n: (verdict, draw(n)) for n, verdict in verdicts.items() if verdict.startswith("WRONG")}
    assert sum(verdict == "equal" for verdict in verdicts.values()) >= 12


def test_the_same_seed_draws_the_same_training() -> None:
    assert draw(7) == draw(7)
    assert draw(7) != draw(7, seed=1)
