"""Batch normalisation over two real ranks (scripts/moments.py) is as near to its definition as Keras's of the joined
batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.running import prepared, run_python
from tests.ring import SCRIPTS, from_ranks

pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")
pytestmark = [pytest.mark.train, pytest.mark.beside, pytest.mark.ci]


def test_moments_over_ranks_lose_no_more_digits_than_kerass_of_the_joined_batch(tmp_path: Path) -> None:
    """Where inputs are far from the moving mean, too, which is 0 in the first steps."""
    done = run_python(str(SCRIPTS / "moments.py"), str(tmp_path), prefix=prepared("gloo"))
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in from_ranks(tmp_path):
        for name, found in rank.items():
            for mine, theirs in zip(found["ring"], found["keras"], strict=True):
                assert mine <= 5 * theirs + 1e-6, (name, found)
