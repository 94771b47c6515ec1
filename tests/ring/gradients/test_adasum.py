"""Adasum of two real ranks under MPI, held against the formula of its paper (scripts/adasum.py).

They alone catch gradients that Adasum joins otherwise than by its formula.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.harness.running import LAUNCHERS, run_python
from tests.ring import SCRIPTS, from_ranks

pytest.importorskip("tensorflow")
pytest.importorskip("horovod.tensorflow")
pytestmark = [pytest.mark.train, pytest.mark.exhaustive]


def test_under_mpi_gradients_are_joined_by_adasum_as_its_paper_has_it(tmp_path: Path) -> None:
    done = run_python(str(SCRIPTS / "adasum.py"), str(tmp_path), prefix=LAUNCHERS["mpirun"])
    assert done.returncode == 0, done.stdout + done.stderr
    ranks = from_ranks(tmp_path)
    for step in ("fit", "compiled"):
        first, second = (rank[step] for rank in ranks)
        assert first["weights"] == second["weights"]
        for found, expected, averaged in zip(first["weights"], first["expected"], first["averaged"], strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
            assert not np.allclose(found, averaged, atol=1e-3)
