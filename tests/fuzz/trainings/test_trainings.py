"""Some random trainings on two real ranks against one; `python -m tests.fuzz.trainings` takes more.

They alone catch options that are right one by one and wrong together.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from .__main__ import trained
from .combination import draw

pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")


OVERFLOW = 406  # float16, with batches that overflow, compiled and sharded
MORE = (64, 978, 1076)  # such ones: not compiled; not sharded; with a recurrent layer, sharded
# Losses that layers add, a model of one's own, sizes that differ by rank, and normalisation over all ranks, sharded.
MIXED = (4, 5, 6, 11)


@pytest.mark.train
@pytest.mark.beside
@pytest.mark.ci
def test_trainings_whose_losses_and_batches_ranks_share_are_those_of_one_rank(tmp_path: Path) -> None:
    assert draw(OVERFLOW)["overflow"]
    assert set(trained(tmp_path, (*MIXED, OVERFLOW), seed=0).values()) == {"equal"}


@pytest.mark.train
@pytest.mark.beside
@pytest.mark.exhaustive
def test_random_trainings_are_those_of_one_rank_or_refused(tmp_path: Path) -> None:
    verdicts = trained(tmp_path, [n for n in (*range(24), *MORE) if n not in MIXED], seed=0)
    assert all(verdicts[n] == "equal" and draw(n)["overflow"] for n in MORE)
    assert not {n: (verdict, draw(n)) for n, verdict in verdicts.items() if verdict.startswith("WRONG")}
    assert sum(verdict == "equal" for verdict in verdicts.values()) >= 12


def test_the_same_seed_draws_the_same_training() -> None:
    assert draw(7) == draw(7)
    assert draw(7) != draw(7, seed=1)
